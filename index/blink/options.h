// Options of an open tree: local knobs of this process, never part of the format.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>

#include "dsm/base/status.h"
#include "index/blink/leaf_homes.h"

namespace farleaf::index {

enum class CacheMode : uint8_t {
  kSearchLayer,  ///< internal nodes are cached (RF-tree)
  kNone,         ///< every internal node is read from the pool (the FG-style baseline)
};

enum class ReadSharing : uint8_t {
  kOff,
  kOn,  ///< gets of a worker that want the same parts of a leaf, or the same leaf, at the same time share a READ
};

enum class WriteCombining : uint8_t {
  kOff,
  kOn,  ///< changes of one leaf that wait for its lock in this process are made by who holds it
};

enum class HandOver : uint8_t {
  kOff,
  kOn,  ///< a lock that another operation of this process waits for goes to it without the network
};

enum class InPlace : uint8_t {
  kOff,
  /// Leaves in mapped memory are looked at where they are: the parts that a get wants; of byte strings some lines, and
  /// values are replaced there.
  kOn,
};

enum class SmallWriteBacks : uint8_t {
  kOff,
  kOn,  ///< a page that stays what it is has what changed of it written back, not all of it
};

enum class BackOff : uint8_t {
  kOff,
  kOn,  ///< who finds a page locked by another compute server waits before the next attempt, each time longer
};

enum class LearnSplits : uint8_t {
  kOff,
  kOn,  ///< a cached parent learns of a split from the leaf that was found split; at every second one it is read anew
};

/// The most that value_hint_bytes and value_list_bytes may be.
inline constexpr uint64_t kRememberedBytesMax = uint64_t{1} << 40;

struct TreeOptions {
  CacheMode cache = CacheMode::kSearchLayer;
  /// The most memory that the search-layer cache is to take; 0: no bound. With less than all nodes need,
  /// those directly above the leaves are read again when they are wanted, which costs a round trip.
  uint64_t cache_bytes = 0;
  /// Moves to a right sibling in one descent after which the whole search layer's change counters
  /// are re-read, and with them every changed node. 1..64.
  uint32_t hop_threshold = 4;
  /// The longest wait for one lock, and for a page that stays torn, if the operation's own deadline
  /// is later. 1..600000.
  uint64_t lock_wait_ms = 10'000;
  /// A node filled below this after a removal looks for a neighbour to merge with. 0..0.5.
  double merge_below = 0.25;
  /// Two neighbours merge if they then fill at most this. merge_below..1.
  double merge_up_to = 0.75;
  /// Leaves read ahead in one round trip of a scan. 1..256.
  uint32_t scan_leaves_max = 64;
  /// The most memory for where out-of-line values are, so that a get reads the value beside the leaf
  /// (value_hints.h). Taken as values are met, some 26 bytes each; 8 each once the most is reached, beyond which those
  /// read most often stay. 0: nothing. To
  /// kRememberedBytesMax.
  uint64_t value_hint_bytes = uint64_t{1} << 30;
  /// The same for scans (value_lists.h): of leaves that were scanned which blocks they name, some 12 bytes a
  /// value, so that a scan reads its values beside the leaves. 0: nothing. To kRememberedBytesMax.
  uint64_t value_list_bytes = uint64_t{1} << 30;
  /// How this process places the entries of a parted leaf that it writes whole. kOrdered: in the order of
  /// keys where they are spread evenly, so that a scan reads parts of leaves; kHashed: it reads all.
  Placement placement = Placement::kOrdered;
  ReadSharing read_sharing = ReadSharing::kOn;
  WriteCombining write_combining = WriteCombining::kOn;
  HandOver hand_over = HandOver::kOn;
  InPlace in_place = InPlace::kOn;
  SmallWriteBacks small_write_backs = SmallWriteBacks::kOn;
  BackOff back_off = BackOff::kOn;
  LearnSplits learn_splits = LearnSplits::kOn;

  Status Validate() const;
};

}  // namespace farleaf::index
