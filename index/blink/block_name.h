// BlockNames: a value block, and how much of it is in use, in few bits of a word.
//
//   bits 0..9    bytes of the block that are in use, in units of 8; 0: no block
//   bits 10..    the block, in units of 64 bytes, all servers' regions counted through
//
// Thread rule: immutable.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "dsm/address.h"
#include "dsm/region_layout.h"

namespace farleaf::index {

/// A block, as something remembered names it.
struct ValueHint {
  dsm::GlobalAddress block;
  uint32_t bytes = 0;  ///< that are in use, header included; a multiple of 8
  bool operator==(const ValueHint&) const = default;
};

class BlockNames {
 public:
  /// Longer blocks have no name: a round trip saved is little of what they cost.
  static constexpr uint32_t kBlockBytesMax = 1023 * 8;
  static constexpr int kBitsMax = 55;

  explicit BlockNames(std::span<const dsm::RegionLayout> layouts) {
    uint64_t units = 0;
    for (const dsm::RegionLayout& layout : layouts) {
      if (first_unit_.size() <= layout.server) first_unit_.resize(layout.server + size_t{1}, units);
      first_unit_[layout.server] = units;
      units += (layout.first_chunk + layout.chunk_count * layout.chunk_bytes) / kUnitBytes;
    }
    first_unit_.push_back(units);
    bits_ = kLengthBits + std::bit_width(units);
    if (bits_ <= kBitsMax) return;
    bits_ = kBitsMax;  // no block has a name
    first_unit_.clear();
  }

  /// Of every name: bits above are 0.
  int bits() const { return bits_; }
  /// False: the pool is too large, so that no block has a name.
  bool any() const { return !first_unit_.empty(); }
  /// 0: it has none: it is too long, at an odd address, or not inside its server's region.
  uint64_t NameOf(const ValueHint& block) const {
    const uint64_t offset = block.block.offset();
    const dsm::ServerId server = block.block.server();
    if (block.bytes > kBlockBytesMax || offset % kUnitBytes != 0) return 0;
    if (server + size_t{1} >= first_unit_.size()) return 0;
    const uint64_t unit = first_unit_[server] + offset / kUnitBytes;
    const uint64_t end = unit + (block.bytes + kUnitBytes - 1) / kUnitBytes;
    return end > first_unit_[server + size_t{1}] ? 0 : unit << kLengthBits | block.bytes / 8;
  }
  /// REQUIRES: a name, not 0.
  ValueHint BlockOf(uint64_t name) const {
    const uint64_t unit = name >> kLengthBits;
    const auto next = std::upper_bound(first_unit_.begin(), first_unit_.end(), unit);
    const auto server = static_cast<dsm::ServerId>(next - first_unit_.begin() - 1);
    const uint64_t length = name & ((uint64_t{1} << kLengthBits) - 1);
    return {{server, (unit - first_unit_[server]) * kUnitBytes}, static_cast<uint32_t>(length) * 8};
  }

 private:
  static constexpr uint64_t kUnitBytes = 64;
  static constexpr int kLengthBits = 10;
  std::vector<uint64_t> first_unit_;  ///< index: server id; one more for the end
  int bits_ = 0;
};

}  // namespace farleaf::index
