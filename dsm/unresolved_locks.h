// UnresolvedLocks: locks that stand in this member's name in the pool, perhaps, and that nobody here
// holds: connections broke, and it was not to be learned whether a release, or the taking itself, has
// landed. Whoever put a lock on the list (an index) takes it off when it has found out.
//
// Of a batch that ended as Unknown a part may land at any later time, until the worker that posted it
// has a new connection to that memory server. Locks noted meanwhile are bound to that worker: what
// another one reads proves nothing.
//
// Invariant: a lock that was noted counts until it is resolved, also one that was too many to remember,
// and one whose worker or tree is no more: such a member does not leave the pool (Pool::Leave).
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/clock.h"

namespace farleaf::dsm {

class UnresolvedLocks {
 public:
  struct Lock {
    GlobalAddress address;
    uint64_t word = 0;
    uint16_t tree = 0;        ///< that the page belongs to; 0: it is the catalog's lock
    uint8_t level = 0;        ///< of the page in its tree
    uint64_t worker = 0;      ///< the only one that can find out (Worker::number); 0: any
    bool keeps_slot = false;  ///< the redo slot is in use until the lock is resolved
    /// The block that the write-back in doubt has ceased to name, if it has landed; and its unique id.
    GlobalAddress old_block = {};
    uint64_t old_block_id = 0;
    /// Of a tree's first leaf: which tree has that number, and what its leaves are like, is not known. 0: the
    /// page is of that tree for certain.
    uint32_t page_bytes = 0;
    uint64_t due_ns = 0;  ///< of the next attempt
    uint64_t wait_ns = 0;
  };
  static constexpr size_t kLocksMax = 4096;
  static constexpr uint64_t kWaitNsMin = 1 * kNsPerMs, kWaitNsMax = 100 * kNsPerMs;

  void Add(const Lock& lock);
  /// Whether this lock is on the list, and `worker` may find out.
  bool Has(GlobalAddress address, uint64_t word, uint64_t worker) const;
  /// Whether it is on the list, and only a worker other than `worker` may find out.
  bool IsBoundElsewhere(GlobalAddress address, uint64_t word, uint64_t worker) const;
  /// The lock is resolved. Nullopt: it was not on the list.
  std::optional<Lock> Remove(GlobalAddress address, uint64_t word);
  /// Those of `tree` whose turn it is on `worker`, or will be within `ahead_ns`; their next turn is later.
  std::vector<Lock> TakeDue(uint16_t tree, uint64_t worker, uint64_t now_ns, uint64_t ahead_ns = 0);
  /// How many of `tree` may be dealt with on `worker`.
  size_t CountFor(uint16_t tree, uint64_t worker) const;
  /// The trees of those that may be dealt with on `worker`.
  std::set<uint16_t> TreesFor(uint64_t worker) const;
  bool empty() const { return size() == 0; }
  size_t size() const { return count_.load(std::memory_order_relaxed); }
  /// "2 locks on memory servers 0, 3".
  std::string Describe() const;

 private:
  static bool MayFindOut(const Lock& lock, uint64_t worker) {
    return lock.worker == 0 || lock.worker == worker;
  }
  /// REQUIRES: mutex_ is held.
  const Lock* Find(GlobalAddress address, uint64_t word) const;
  void Count() { count_.store(locks_.size() + forgotten_, std::memory_order_relaxed); }

  mutable std::mutex mutex_;  // guards locks_ and forgotten_
  /// By address and lock word: among pages of one server words are unique, but the catalog's lock is no page's.
  std::map<std::pair<GlobalAddress, uint64_t>, Lock> locks_;
  size_t forgotten_ = 0;  ///< were too many
  std::atomic<size_t> count_{0};
};

}  // namespace farleaf::dsm
