// ValueLists: which value blocks a leaf's entries named when this compute server last saw the leaf, in the
// order of keys. A scan reads those that it will want beside the leaf, in one round trip, and the leaf decides.
//
// One word an entry:
//
//   low bits    the name of its value's block (block_name.h); 0: its value lies in the leaf, or has no name
//   tag         a few bits of a hash of its key
//   the rest    where its key stands in the order of the leaf's keys, as far as the bits go: 16 in a pool of
//               64 GiB
//
// That is the order of a slot (node_bytes.h: where the key leaves the low fence, and 4 bytes more) as a number
// whose digits are only as large as the leaf's keys have them, so that keys of decimal digits take 15 bits or so. By
// it a scan that begins or ends inside of a leaf finds which entries it will want. Of those that it does not tell
// apart, the tag tells which has the key that the scan begins or ends at, or the greatest key below that. Where none
// has, some more are read. A list may be out of date: whoever uses one finds out by the unique ids that the
// leaf names. Its blocks were ones when they were noted, so that they can be read.
//
// A scan notes the leaves that it takes values out of line of; from then on this compute server's writes keep
// the list right, as long as scans ask for it. A list that proves mostly wrong, time after time, is used less often, down to every 16th time.
//
// Replacement: first in, first out, save that one that was used since it was last passed over is passed over.
// Invariants: no more than the bytes that it was given, what the maps take included, as far as one can tell.
// Thread rule: thread-safe; each leaf has one of several mutexes, which is held for an image's entries at most.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dsm/address.h"
#include "dsm/region_layout.h"
#include "index/blink/block_name.h"
#include "index/blink/node.h"

namespace farleaf::index {

/// What a scan wants of a leaf, or of several: first <= key < end.
struct WantedEntries {
  std::string_view first;
  std::optional<std::string_view> end;
  bool forward = true;
  uint64_t rows = 0;   ///< no more of them, from the side where it begins
  uint64_t bytes = 0;  ///< no more of them than it takes to reach as many, of keys and values
};

/// What a leaf has of that, as far as its list tells; rather too little than too much.
struct ListedEntries {
  size_t wanted = 0;   ///< were there no limit of rows and bytes
  size_t rows = 0;     ///< within both
  uint64_t bytes = 0;  ///< of those, keys and values
};

/// What came of what a list said.
struct ListVerdict {
  size_t guessed = 0;  ///< blocks that were read for it
  size_t right = 0;    ///< of those: the leaf names them
  size_t missed = 0;   ///< that the leaf named and nothing had, of those that can be listed
};

class ValueLists {
 public:
  /// `bytes_max` 0: nothing is remembered.
  ValueLists(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts);

  /// Nothing is remembered of any leaf. Costs a load.
  bool empty() const { return lists_.load(std::memory_order_relaxed) == 0; }

  /// Adds the blocks of what is wanted to `blocks`, and of what may be wanted, in the scan's order. nullopt: it is
  /// not known what the leaf has.
  std::optional<ListedEntries> Find(GlobalAddress leaf, const WantedEntries& wanted,
                                    std::vector<ValueHint>* blocks) const;
  /// A scan has taken entries of the leaf, as it was read. REQUIRES: a leaf of byte strings.
  void NoteScanned(GlobalAddress address, const ConstNode& leaf, const ListVerdict& verdict);
  /// The leaf is about to be written: if it has a list, that becomes what the image names; or it goes, if no scan has
  /// asked for it for long. `replaced`: the entry whose value is all that differs from the version before.
  void NoteWritten(GlobalAddress address, const ConstNode& leaf,
                   std::optional<uint32_t> replaced = std::nullopt);
  /// `right` is split off `left`: it has a list if that has one.
  void NoteSplit(GlobalAddress left, GlobalAddress right_address, const ConstNode& right);

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  size_t lists() const { return lists_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kHeadBytes = 4;
  struct List {
    uint64_t leaf = 0;
    uint64_t version = 0;                             ///< of the image that it was made of
    std::string low;                                  ///< what key orders are relative to
    uint64_t base_level = 0, base = 0;                ///< the first entry's level and number
    std::array<uint8_t, kHeadBytes> least{}, most{};  ///< of the bytes of heads
    uint32_t count = 0, capacity = 0;
    uint8_t shift = 0;          ///< of numbers, less the first one's
    uint8_t bad = 0;            ///< verdicts that it was mostly wrong, less those that it was not
    mutable uint8_t pause = 0;  ///< so many scans do without
    mutable bool used = false;
    uint16_t key_bytes_min = 0;    ///< of the shortest key
    mutable uint16_t unasked = 0;  ///< what writes have cost since a scan asked
    std::unique_ptr<uint64_t[]> words;
  };
  using Lists = std::list<List>;
  struct Shard {
    std::mutex mutex;  // guards all of it
    Lists lists;       ///< the oldest first
    std::unordered_map<uint64_t, Lists::iterator> by_leaf;
    uint64_t bytes = 0;
  };

  Shard& ShardOf(GlobalAddress leaf) const;
  static uint64_t BytesOf(const List& list);
  /// How many entries lie below a key, at least and at most.
  struct Below {
    size_t least = 0, most = 0;
    size_t unsure() const { return most - least; }
  };
  static uint64_t NumberOf(const List& list, uint64_t order);
  int order_shift() const { return names_.bits() + tag_bits_; }
  uint64_t TagOf(std::string_view rest) const;
  Below EntriesBelow(const List& list, std::string_view key) const;
  /// Of those among [alike.least, alike.most) that have the tag.
  std::optional<Below> Tagged(const List& list, Below alike, uint64_t tag) const;
  /// Words with the slots' orders, and what makes numbers of those.
  void FillOrders(List& list, const ConstNode& leaf) const;
  /// Of the entry's value: 0 if it lies in the leaf, or has none.
  uint64_t NameOf(const ConstNode& leaf, size_t i) const;
  /// Whether anything of it is out of line.
  bool Fill(List& list, const ConstNode& leaf) const;
  /// Makes the leaf's list what the image says, or takes it out. `unasked`: as of a list. REQUIRES: the mutex.
  void Put(Shard& shard, GlobalAddress address, const ConstNode& leaf, uint16_t unasked);
  void Erase(Shard& shard, Lists::iterator list);
  void MakeRoom(Shard& shard);

  BlockNames names_;
  const int tag_bits_, order_bits_;
  uint64_t shard_bytes_max_ = 0;
  size_t shard_mask_ = 0;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<size_t> lists_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace farleaf::index
