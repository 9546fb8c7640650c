// The rules by which Redis' commands change strings and expiries: each is decided in one RecordRule, so each is
// atomic. Those that memcached's commands share are in string_rules.h.
//
// Thread rule: value types; one operation at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/records/record_store.h"
#include "server/records/string_rules.h"

namespace farleaf::server {

struct SetRule final : RecordRule {
  enum class When : uint8_t { kAlways, kAbsent, kPresent };
  When when = When::kAlways;
  bool keep_expiry = false;
  bool fetch = false;  ///< the old value is wanted: it must be a string
  uint64_t expiry_ms = 0;
  std::string_view data;
  // What was found:
  RuleOutcome outcome = RuleOutcome::kDone;  ///< or kNotStored, kWrongType
  bool existed = false;
  std::string old;  ///< where fetch

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
  bool blind() const override { return when == When::kAlways && !keep_expiry && !fetch; }
};

/// A signed number of 64 bits; an absent key counts as 0.
struct IncrementRule final : RecordRule {
  int64_t delta = 1;
  RuleOutcome outcome =
      RuleOutcome::kDone;  ///< or kNotANumber, kTooLarge (it would overflow), kWrongType
  int64_t result = 0;
  char digits[24];

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

struct IncrementFloatRule final : RecordRule {
  long double delta = 0;
  RuleOutcome outcome = RuleOutcome::kDone;  ///< as of IncrementRule
  std::string result;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

/// Writes `data` at an offset, with zeros before it where the value is shorter. Empty data change nothing.
struct SpliceRule final : RecordRule {
  uint64_t offset = 0;
  std::string_view data;
  size_t data_bytes_max = SIZE_MAX;
  RuleOutcome outcome = RuleOutcome::kDone;  ///< or kTooLarge, kWrongType
  size_t stored_bytes = 0;
  std::string buffer;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

/// Reads and deletes a string.
struct TakeRule final : RecordRule {
  RuleOutcome outcome = RuleOutcome::kDone;  ///< or kNotFound, kWrongType
  std::string data;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

/// Of records of any type.
struct ExpiryRule final : RecordRule {
  uint64_t expiry_ms = 0;  ///< 0: never, from now on
  bool only_without = false, only_with = false, only_later = false, only_sooner = false;
  bool done = false;

  RecordAction Decide(const Record* current, Record* next, std::string_view* tail) override;
};

/// All of `text`, without spaces; false if it is no number; inf is one.
bool ParseLongDouble(std::string_view text, long double* number);
/// As Redis writes the results of INCRBYFLOAT: 17 digits behind the point at most, no exponent.
std::string LongDoubleText(long double number);
/// Digits with a minus sign at most, no leading zeros.
bool ParseSigned(std::string_view text, int64_t* number);

}  // namespace farleaf::server
