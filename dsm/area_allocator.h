// AreaAllocator: divides a range of a region (dsm/registered_memory.h) into areas of any size, first fit. It touches no memory:
// who takes an area that was used before finds there what it was left with.
//
// Invariants: areas that are taken do not overlap; neighbours that are free are one range.
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "dsm/base/result.h"

namespace farleaf::dsm {

/// [offset, offset + bytes) of a region.
struct Area {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Area&) const = default;
};

class AreaAllocator {
 public:
  explicit AreaAllocator(Area whole);
  AreaAllocator(const AreaAllocator&) = delete;

  /// The first free range of `bytes` at a multiple of `alignment`, which is a power of two. ResourceExhausted says how
  /// much is free, and how much of it in a row. REQUIRES: bytes > 0.
  Result<Area> Take(uint64_t bytes, uint64_t alignment);
  /// REQUIRES: taken by Take, and not released since. Nothing may be on its way to it.
  void Release(Area area);

  uint64_t free_bytes() const;

 private:
  const Area whole_;
  mutable std::mutex mutex_;           // guards what follows
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes
  std::map<uint64_t, uint64_t> taken_;
  uint64_t free_bytes_;
};

}  // namespace farleaf::dsm
