// PrefixedIndex: a tree that is a part of an index: the keys that begin with its number. So one store, with one log and one
// budget of memory, holds any number of trees.
//
//   key in the whole index   u16 number, big-endian | key in the tree
//
// Invariant: neither keys nor ranges reach beyond the tree's number, which is less than kNumberEnd.
// Thread rule: that of RangeIndex. The whole index outlives it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/range_index.h"

namespace farleaf::index {

class PrefixedIndex final : public RangeIndex {
 public:
  static constexpr size_t kPrefixBytes = 2;
  static constexpr uint16_t kNumberEnd = UINT16_MAX;
  /// Of keys, in the tree.
  static constexpr size_t kKeyBytesMax = 4094;

  enum class Sizes : uint8_t { kAny, kFixed8 };
  struct Limits {
    Sizes sizes = Sizes::kAny;  ///< kFixed8: keys and values have 8 bytes, and key_bytes_max is 8
    size_t key_bytes_max = 1024;
  };

  /// REQUIRES: limits.key_bytes_max <= kKeyBytesMax.
  PrefixedIndex(RangeIndex* whole, uint16_t number, Limits limits);

  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override;
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override;
  size_t VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                     ValueVisitor& visitor) override;
  Task<Result<ModifyResult>> Modify(OpContext& op, std::string_view key,
                                    const ModifyFunction& modify, CurrentValue current) override;
  /// Nothing of a fixed8 tree.
  Task<size_t> ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                              CurrentValue use, KeyChanges& changes) override;
  Task<Status> BlindPut(OpContext& op, std::string_view key, std::string_view value) override;
  Task<Status> Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) override;
  Task<Status> DeleteRange(OpContext& op, std::string_view start, std::string_view end) override;
  /// That of the whole index.
  Task<Status> Upkeep(OpContext& op) override { return whole_->Upkeep(op); }

 private:
  std::string Whole(std::string_view key) const;
  Status CheckKey(std::string_view key) const;

  RangeIndex* const whole_;
  const uint16_t number_;
  const Limits limits_;
};

}  // namespace farleaf::index
