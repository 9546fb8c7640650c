// LocalPages: the pages of one class on one memory server that this compute server may grant
// without asking anyone: its limbo (freed, grace period running), its free list, and the chunk it
// carves.
//
// When none is left, one coroutine of the process at a time fetches more (it holds the refill);
// the others wait and share what it brings.
//
// Invariants:
//   - the carved chunk is replaced only by who holds the refill, and only when it is used up;
//   - a chunk is told to be carved up only when all its pages are known to have been written, or to say that
//     they are free: until then a page bears nobody's name but by its chunk, and its taker may die;
//   - limbo is in the order of the ends of the grace periods (all are equally long).
// Thread rule: thread-safe. No call blocks or suspends.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pages/free_bundle.h"

namespace farleaf::dsm {

class LocalPages {
 public:
  /// How a chunk is carved: pages `next` to `count`, `page_bytes` apart, page 0 at `first_offset`.
  struct Carving {
    uint64_t chunk = 0;
    uint64_t first_offset = 0;
    uint32_t page_bytes = 0;
    uint64_t next = 0;
    uint64_t count = 0;
    bool is_none() const { return count == 0; }
    bool used_up() const { return next == count; }
  };

  std::optional<FreePage> Take(const Clock& clock) {
    std::lock_guard lock(mutex_);
    return TakeLocked(clock);
  }

  enum class Refill : uint8_t {
    kNotNeeded,  ///< a page was there after all
    kMine,       ///< the caller fetches, and ends with EndRefill
    kBusy,       ///< another coroutine is at it
    kFull,       ///< the server had nothing a moment ago
  };
  enum class AskFull : uint8_t { kNo, kYes };  ///< whether a server known to be full is asked again
  /// Takes a page, or else the refill. `page` is set for kNotNeeded.
  Refill TakeOrBeginRefill(const Clock& clock, AskFull ask_full, FreePage* page);
  /// `full_until_ns`: 0, or until when it is not worth asking the server again.
  void EndRefill(uint64_t full_until_ns);

  /// Returns how many pages are free or in limbo now.
  size_t Retire(uint64_t due_ns, FreePage page) {
    std::lock_guard lock(mutex_);
    limbo_.push_back({due_ns, page});
    return free_.size() + limbo_.size();
  }
  /// Free pages whose grace period is over.
  void AddFree(std::span<const FreePage> pages);
  /// REQUIRES: the caller holds the refill; no carving, or used_up.
  void SetCarving(const Carving& carving);
  /// A page that was granted has been written wholly, or says that it is free.
  void NoteWritten(uint64_t offset) {
    std::lock_guard lock(mutex_);
    if (!unwritten_.empty()) unwritten_.erase(offset);
  }
  /// Takes a chunk that is carved up, and whose pages have all been written; nullopt: there is none.
  std::optional<Carving> TakeCarvedUp();
  /// Whether there are others, or the chunk that is being carved has pages that were not written.
  bool has_unwritten() const;
  /// Ends carving for good and returns how far it came; none, if it is used up.
  Carving TakeCarving();

  /// Up to `count_max` free pages, and only as many as leave `keep` pages here (limbo included).
  std::vector<FreePage> TakeSurplus(const Clock& clock, size_t keep, size_t count_max);
  size_t size() const;  ///< free and in limbo
  /// The end of the last (first) grace period that still runs; nullopt: limbo is empty.
  std::optional<uint64_t> last_due_ns() const;
  std::optional<uint64_t> first_due_ns() const;

  FreeListHead known_head() const;
  void set_known_head(FreeListHead head);

 private:
  struct Retired {
    uint64_t due_ns;
    FreePage page;
  };
  std::optional<FreePage> TakeLocked(const Clock& clock);
  std::optional<FreePage> TakeFreeLocked(const Clock& clock);

  mutable std::mutex mutex_;  // guards everything below
  std::vector<FreePage> free_;
  std::deque<Retired> limbo_;
  Carving carving_;
  std::vector<Carving> carved_up_;  ///< before it
  std::set<uint64_t> unwritten_;    ///< carved, and granted; offsets
  bool refilling_ = false;
  uint64_t full_until_ns_ = 0;
  FreeListHead known_head_;  // of the pool's list when last seen: a guess
};

}  // namespace farleaf::dsm
