// Memtable: the changes since the last flush, as an ordered map of (key, sequence descending) -> entry.
//
// A B+-tree in an arena, to which entries are only ever added. Writers lock the leaf they change, or the node they split and its
// parent; readers lock nothing: they read a node's version, the node, and the version again (optimistic locks after Leis et al.
// 2016), and begin anew if it has changed. Nodes hold, for each key, the 8 bytes behind what all keys between the node's
// fences have in common, so that a search follows a pointer to an entry only where these 8 bytes do not decide.
// (The alternative, a skip list, has a cache miss a step, and three times as many steps; micro has the numbers.)
//
// Invariants:
//   - an entry never changes nor moves: views of it are valid as long as the memtable;
//   - a node's low fence never changes, and is an entry of the subtree below it: so the entry behind a leaf's last is the
//     leaf's high fence, and a leaf other than the first is never empty;
//   - fields that readers read are stored with release and loaded with acquire: a reader that has seen a writer's store
//     also sees, when it looks at the version again, that the node was locked.
// Thread rule: thread-safe; a Cursor belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "dsm/base/spin_lock.h"
#include "index/lsm/arena.h"
#include "index/lsm/expiry_times.h"
#include "index/lsm/memtable_ranges.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

namespace memtable_internal {
struct Record;
struct Node;
struct Place;
}  // namespace memtable_internal

class Memtable {
 public:
  /// With so many range deletes it counts as full: a bound on what reads cost, not on what can be inserted.
  static constexpr uint32_t kRangesFull = 4096;
  /// ... and with pointers to this many times its bytes in the value log: what they overwrite is not known for garbage before it
  /// is flushed, and recovery reads these values.
  static constexpr double kValuesToBytes = 16;

  Memtable();
  Memtable(const Memtable&) = delete;

  /// Copies the entry. REQUIRES: nobody has inserted this key with this sequence; 0 < sequence <= kSequenceMax.
  void Insert(const Entry& entry);
  /// Keys in [start, end) that are older than `sequence` are deleted.
  void InsertRange(std::string_view start, std::string_view end, Sequence sequence) {
    ranges_.Insert(start, end, sequence);
  }

  /// The newest version of the key that is not newer than `max`, or that a range deleted it.
  std::optional<Entry> Find(std::string_view key, Sequence max) const;
  /// Of any change of the key, deletions of ranges included; 0: none.
  Sequence NewestSequence(std::string_view key) const;

  /// Of ranges; nothing in Cursor knows of them.
  std::vector<RangeDelete> Ranges() const { return ranges_.All(); }
  bool has_ranges() const { return ranges_.any(); }
  /// The newest range that covers the key and is not newer than `max`; 0: none.
  Sequence CoveredAt(std::string_view key, Sequence max) const {
    return ranges_.CoveredAt(key, max);
  }

  /// Of keys and values: no more than have expired by then (since 1970), overwritten ones included.
  uint64_t ExpiredBytes(uint64_t now_ms) const {
    std::lock_guard lock(expiry_lock_);
    return expiry_.ExpiredBytes(now_ms);
  }

  /// Of the process's memory.
  uint64_t bytes() const { return arena_.bytes(); }
  /// Of the value log's records that entries name.
  uint64_t value_bytes() const { return value_bytes_.load(std::memory_order_relaxed); }
  uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }
  /// Entries and range deletes.
  uint64_t changes() const { return entries() + ranges_.count(); }
  bool empty() const { return entries() == 0 && !has_ranges(); }
  /// How much of what a memtable of `bytes_max` should hold is there; 1 and more: it is full.
  double Fullness(uint64_t bytes_max) const {
    const double of_bytes = static_cast<double>(bytes()) / static_cast<double>(bytes_max);
    return std::max(
        {of_bytes, ValuesFullness(bytes_max), static_cast<double>(ranges_.count()) / kRangesFull});
  }
  /// The same without range deletes.
  double EntriesFullness(uint64_t bytes_max) const {
    const auto entries_bytes = static_cast<double>(bytes() - ranges_.bytes());
    return std::max(entries_bytes / static_cast<double>(bytes_max), ValuesFullness(bytes_max));
  }

  class Cursor;

 private:
  friend class Cursor;
  using Record = memtable_internal::Record;
  using Node = memtable_internal::Node;
  using Place = memtable_internal::Place;

  /// A leaf, as it was when its version was `version`.
  struct Leaf {
    const Node* node;
    uint64_t version;
  };
  enum class Side : uint8_t { kAt, kBefore };
  Leaf Descend(const Place& place, Side side) const;
  bool TryInsert(const Place& place, Record* record);
  bool SplitOnTheWay(Node* parent, uint64_t parent_version, Node* node, uint64_t version);
  void Split(Node* parent, Node* node);
  Node* NewNode(uint32_t level, const Record* low, const Record* high);
  Record* NewRecord(const Entry& entry);
  double ValuesFullness(uint64_t bytes_max) const {
    return static_cast<double>(value_bytes()) / (static_cast<double>(bytes_max) * kValuesToBytes);
  }

  Arena arena_;
  std::atomic<Node*> root_;
  std::atomic<uint64_t> entries_{0};
  std::atomic<uint64_t> value_bytes_{0};  // of the records that pointers name
  MemtableRanges ranges_{&arena_};
  mutable SpinLock expiry_lock_;  // guards expiry_
  ExpiryTimes expiry_;
};

/// Stands on an entry, or on none. It takes a leaf's entries at a time: what is inserted into that leaf later, it may not
/// see; it sees every entry that was there when it was placed, in order, none twice.
class Memtable::Cursor {
 public:
  /// `memtable` outlives the cursor.
  explicit Cursor(const Memtable* memtable) : memtable_(memtable) {}

  /// To the first entry that does not come before (key, sequence).
  void Seek(std::string_view key, Sequence sequence);
  /// To the last entry that comes before (key, sequence).
  void SeekBefore(std::string_view key, Sequence sequence);
  void SeekFirst() { Seek({}, kSequenceMax); }
  void SeekLast();
  bool valid() const { return at_ < count_; }
  /// REQUIRES: valid. Views are valid as long as the memtable.
  Entry entry() const;
  /// REQUIRES: valid.
  void Next();
  void Previous();

 private:
  static constexpr uint32_t kTakenMax = 64;
  void TakeAt(const Place& place);
  void TakeBefore(const Place& place);

  const Memtable* memtable_;
  uint32_t at_ = 0, count_ = 0;
  std::array<const Record*, kTakenMax> taken_;
};

}  // namespace farleaf::index::lsm
