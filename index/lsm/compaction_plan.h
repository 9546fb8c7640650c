// What is to be merged, and when: functions of a version, and of the store's size.
//
// A merge is named by the level that it merges into: level 0 takes all fresh runs, any other one the sinking run above it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "index/lsm/version.h"

namespace farleaf::index::lsm {

/// So many fresh runs are merged into level 0 if they are half as large as its growing run, which is written anew.
inline constexpr size_t kFreshFew = 4;
/// So many are merged in any case; with them, whatever has come besides.
inline constexpr size_t kFreshMany = 8;
/// With so many of them writers are slowed down (write_pace.h), the more the nearer there are kFreshMax.
inline constexpr size_t kFreshSlow = 9;
/// With so many of them no memtable is flushed.
inline constexpr size_t kFreshMax = 16;

struct CompactionPlan {
  uint64_t memtable_bytes = 0;
  uint64_t flush_bytes = 0;  ///< StoreState::flush_bytes
  uint32_t growth_factor = 0;
  bool eager = false;    ///< whatever there is sinks at the next occasion
  bool full = false;     ///< the device is: all is merged that may give room
  bool frugal = false;   ///< merges may have to take of the reserve: one at a time
  uint32_t merging = 0;  ///< bit: a level that is being merged into

  /// Of the growing run; kFreshFew flushes are the unit.
  uint64_t TargetBytes(uint8_t level) const;
  /// Whether the level's growing run is full, and may become the sinking one. `version`: loaded before `merging` was.
  bool Sinks(const Version& version, uint8_t level) const;
  /// Whether it may become the sinking one for the sake of room: something is below it.
  bool SinksForRoom(const Version& version, uint8_t level) const;
  bool IsDue(const Version& version, uint8_t into) const;
};

/// The newest first; the last one is the growing run that takes all.
std::vector<RunPlace> SourcesOf(const Version& version, uint8_t into);

}  // namespace farleaf::index::lsm
