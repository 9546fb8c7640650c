// MemtableRanges: the range deletes of a memtable, any number of them.
//
// A list of all, the newest insertion first, and an index of those that were there when it was made: their fragments
// (range_deletes.h), each with the newest sequence only. A reader looks at what was inserted since, which is an eighth or less of all,
// one by one, and then at one fragment. What is newest there may be too new for a snapshot: then, which is rare, it looks at all.
// An index that was replaced lives on with the memtable, since readers may look at it; all of them together are 9 times
// the last one at most.
//
// Thread rule: thread-safe; readers lock nothing. Nothing ever changes that was inserted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "index/lsm/arena.h"
#include "index/lsm/range_deletes.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class MemtableRanges {
 public:
  /// `arena` outlives it.
  explicit MemtableRanges(Arena* arena) : arena_(arena) {}
  MemtableRanges(const MemtableRanges&) = delete;

  /// Copies the bounds.
  void Insert(std::string_view start, std::string_view end, Sequence sequence);
  bool any() const { return newest_.load(std::memory_order_acquire) != nullptr; }
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  /// Of the arena.
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  /// The newest range that covers the key and is not newer than `max`; 0: none.
  Sequence CoveredAt(std::string_view key, Sequence max) const;
  /// In no order.
  std::vector<RangeDelete> All() const;

 private:
  struct Node {
    std::string_view start, end;
    Sequence sequence;
    const Node* older;
  };
  struct Index {
    const Node* newest;  ///< of those in it
    std::vector<RangeDelete> fragments;
  };
  /// Whoever looks at so many does not feel it.
  static constexpr uint32_t kUnindexedMin = 64;
  static Sequence NewestOf(const Node* from, const Node* to, std::string_view key, Sequence max);
  void BuildIndex();

  Arena* const arena_;
  std::atomic<const Node*> newest_{nullptr};
  std::atomic<const Index*> index_{nullptr};
  std::atomic<uint32_t> count_{0};
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;  // guards who inserts, and:
  uint32_t indexed_ = 0;
  std::vector<std::unique_ptr<const Index>> indexes_;
};

}  // namespace farleaf::index::lsm
