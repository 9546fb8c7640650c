#include "dsm/area_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::dsm {

AreaAllocator::AreaAllocator(Area whole) : whole_(whole), free_bytes_(whole.bytes) {
  FARLEAF_CHECK(whole.bytes > 0, whole.offset);
  free_[whole.offset] = whole.bytes;
}

Result<Area> AreaAllocator::Take(uint64_t bytes, uint64_t alignment) {
  FARLEAF_CHECK(bytes > 0 && std::has_single_bit(alignment), bytes, alignment);
  std::lock_guard lock(mutex_);
  uint64_t longest = 0;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [begin, length] = *range;
    longest = std::max(longest, length);
    const uint64_t offset = RoundUp(begin, alignment), before = offset - begin;
    if (before > length || length - before < bytes) continue;
    free_.erase(range);
    if (before > 0) free_[begin] = before;
    if (const uint64_t behind = length - before - bytes; behind > 0) free_[offset + bytes] = behind;
    taken_[offset] = bytes;
    free_bytes_ -= bytes;
    return Area{offset, bytes};
  }
  return Status::ResourceExhausted(
      "no " + std::to_string(bytes) + " bytes of registered memory at a multiple of " +
      std::to_string(alignment) + ": of " + std::to_string(whole_.bytes) + " are " +
      std::to_string(free_bytes_) + " free, " + std::to_string(longest) + " in a row");
}

void AreaAllocator::Release(Area area) {
  std::lock_guard lock(mutex_);
  const auto taken = taken_.find(area.offset);
  FARLEAF_CHECK(taken != taken_.end() && taken->second == area.bytes, area.offset, area.bytes);
  taken_.erase(taken);
  free_bytes_ += area.bytes;
  auto next = free_.upper_bound(area.offset);
  if (next != free_.end() && next->first == area.offset + area.bytes) {
    area.bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == area.offset) {
      previous->second += area.bytes;
      return;
    }
  }
  free_[area.offset] = area.bytes;
}

uint64_t AreaAllocator::free_bytes() const {
  std::lock_guard lock(mutex_);
  return free_bytes_;
}

}  // namespace farleaf::dsm
