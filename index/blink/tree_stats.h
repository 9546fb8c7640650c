// TreeStats: what rarely happens in a tree, counted.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace farleaf::index {

/// What rarely happens, counted. Relaxed counters: each is exact, together they are no snapshot.
struct TreeStats {
  std::atomic<uint64_t> splits{0}, merges{0}, roots_grown{0}, roots_shrunk{0};
  std::atomic<uint64_t> hops{0};  ///< moves to a right sibling, or forward from a dead node
  std::atomic<uint64_t> path_refreshes{0};   ///< descents from the root word, re-reading each node
  std::atomic<uint64_t> cache_refreshes{0};  ///< re-reads of change counters and changed nodes
  // Bytes of internal nodes (and of what tells which of them changed) that were READ, by cause. Not
  // among them: parents that are read behind their lock to be changed.
  std::atomic<uint64_t> descent_bytes{0};       ///< nodes that the cache lacked
  std::atomic<uint64_t> cache_misses{0};        ///< those nodes
  std::atomic<uint64_t> path_refresh_bytes{0};  ///< descents from the root word
  std::atomic<uint64_t> hop_refresh_bytes{0};  ///< the parent, beside the sibling that was moved to
  std::atomic<uint64_t> cache_refresh_bytes{0};  ///< cache refreshes
  std::atomic<uint64_t> torn_reads{0};      ///< READs repeated because the checksum did not hold
  std::atomic<uint64_t> lock_conflicts{0};  ///< CASes lost to another compute server
  std::atomic<uint64_t> slot_waits{0};      ///< waits for a redo slot
  std::atomic<uint64_t> handovers{0};       ///< locks passed on without the network
  std::atomic<uint64_t> separators_completed{0};  ///< missing separators found and inserted
  std::atomic<uint64_t> locks_unresolved{0};      ///< left with their fate unknown
  std::atomic<uint64_t> locks_resolved{0};        ///< of those
  std::atomic<uint64_t> locks_taken_over{0};      ///< of members that are gone, or resolved
  std::atomic<uint64_t> separators_deferred{0};   ///< splits whose parents could not be told
  std::atomic<uint64_t> merges_given_up{0};  ///< merges that failed after their delete was done
  std::atomic<uint64_t> upkeep_given_up{0};  ///< refreshes, separators and freed blocks that failed
  // Under way now: the dead one's record is copied, the lock not taken yet; or is taken, and not done with.
  std::atomic<uint64_t> takeovers_copying{0}, takeovers_finishing{0};
  // Of the locks taken over, those that were dealt with to the end:
  std::atomic<uint64_t> dead_locks_without_record{0};  ///< nothing had been written under them
  std::atomic<uint64_t> redo_replays{0};
  std::atomic<uint64_t> dead_merges_finished{0}, dead_splits_published{0}, dead_pages_voided{0};
  std::atomic<uint64_t> readers_recovered{0};  ///< a read found a page half-written by the dead
  std::atomic<uint64_t> forwards{0};     ///< of the hops those from a dead node to who took over
  std::atomic<uint64_t> restarts{0};     ///< a node was found that does not lead to the key
  std::atomic<uint64_t> stale_locks{0};  ///< pages locked that did not cover the key any more
  std::atomic<uint64_t> root_races{0};   ///< the tree had grown before a new root was named
  std::atomic<uint64_t> publications_done_by_others{0};  ///< a parent had nothing to be changed
  std::atomic<uint64_t> publications_across_parents{0};  ///< went on to the next parent
  std::atomic<uint64_t> torn_values{0};                  ///< blocks whose checksum did not hold
  std::atomic<uint64_t> reused_values{0};  ///< blocks that held another value than the leaf named
  std::atomic<uint64_t> stale_value_hints{0};  ///< blocks read beside a leaf that named another one
  std::atomic<uint64_t> stale_listed_values{0};  ///< blocks that a scan read in vain beside a leaf
  // Of leaves read in part:
  std::atomic<uint64_t> stale_parts{0};  ///< parts of a leaf whose fences are not the cached ones
  std::atomic<uint64_t> more_parts{0};   ///< the answer lay in a part that had not been read
  std::atomic<uint64_t> more_locked_parts{0};  ///< the same of a change, which had the leaf's lock
  std::atomic<uint64_t> combined{0};      ///< changes made by another's holder of the leaf's lock
  std::atomic<uint64_t> shared_reads{0};  ///< gets that were answered by another's READ
};

}  // namespace farleaf::index
