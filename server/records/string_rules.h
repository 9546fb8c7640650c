// The rules by which memcached's commands, and some of Redis', change strings: each is decided in one RecordRule,
// so each is atomic. What is no string is deleted and replaced by them as a whole, and otherwise left alone.
//
// Thread rule: value types; one operation at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/records/record_store.h"

namespace farleaf::server {

enum class RuleOutcome : uint8_t {
  kDone,
  kNotStored,  ///< the key is there and must not, or the other way round
  kExists,     ///< its cas is another
  kNotFound,
  kNotANumber,
  kTooLarge,
  kWrongType,  ///< the key is there, and no string
};

enum class StoreMode : uint8_t { kSet, kAdd, kReplace, kAppend, kPrepend };

/// There is a record, but none of a string, which the rule needs.
inline bool IsOther(const Record* current) {
  return current != nullptr && current->type != RecordType::kString;
}

struct StoreRule final : RecordRule {
  StoreMode mode = StoreMode::kSet;
  std::optional<uint64_t> compare_cas;
  /// A `compare_cas` smaller than the record's is no failure: stored, and stale.
  bool accept_older = false;
  uint64_t next_cas = 0;  ///< 0: a new one
  uint32_t flags = 0;
  uint64_t expiry_ms = 0;
  std::string_view data;
  /// kAppend, kPrepend on an absent key store it, with this expiry.
  std::optional<uint64_t> create_expiry_ms;
  size_t data_bytes_max = SIZE_MAX;
  RuleOutcome outcome = RuleOutcome::kDone;
  size_t stored_bytes = 0;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
  bool blind() const override { return mode == StoreMode::kSet && !compare_cas; }
};

/// An unsigned decimal number of 64 bits: up wraps around, down stops at 0.
struct CountRule final : RecordRule {
  bool down = false;
  uint64_t delta = 1;
  std::optional<uint64_t> compare_cas;
  uint64_t next_cas = 0;
  /// An absent key is created with `initial`.
  std::optional<uint64_t> create_expiry_ms;
  uint64_t initial = 0;
  std::optional<uint64_t> expiry_ms;  ///< a new one, of a key that is there
  RuleOutcome outcome = RuleOutcome::kDone;
  char digits[20];  ///< the result
  size_t digit_count = 0;
  Record stored;  ///< without data

  std::string_view result() const { return {digits, digit_count}; }
  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

struct DeleteRule final : RecordRule {
  std::optional<uint64_t> compare_cas;
  uint64_t next_cas = 0;
  /// Marks the record stale, with a new cas and this expiry if there is one, rather than to delete it.
  bool invalidate = false;
  std::optional<uint64_t> expiry_ms;
  RuleOutcome outcome = RuleOutcome::kDone;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
  bool blind() const override { return !compare_cas && !invalidate; }
};

/// A read that writes: a new expiry, and who is to store anew. The data and its cas stay as they are.
struct FetchRule final : RecordRule {
  std::optional<uint64_t> expiry_ms;
  /// An absent key is created, empty.
  std::optional<uint64_t> create_expiry_ms;
  /// Who is told to store anew: the first to find it expiring before this.
  std::optional<uint64_t> renew_before_ms;
  uint64_t next_cas = 0;
  bool with_data = true;
  // What was found:
  RuleOutcome outcome = RuleOutcome::kDone;
  bool created = false;
  bool won = false;  ///< by this
  bool won_before = false;
  Record found;  ///< as it is now; its data views `data`
  std::string data;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

/// Whether a FetchRule would write: otherwise a read says as much.
bool NeedsWrite(const FetchRule& rule, const Record& record);

}  // namespace farleaf::server
