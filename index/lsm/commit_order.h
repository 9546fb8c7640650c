// CommitOrder: when everything up to a sequence is in the memtable.
//
// A commit gets its sequence under the recovery log's lock, and goes into the memtable behind it, so that commits end up there in
// any order. Each announces its sequence in a slot, under that lock, and clears the slot when it is in the memtable. A
// snapshot takes the last sequence that was given, S, under the lock as well, and waits until no slot holds one that is S or older.
// Then every commit up to S is there, by cases:
//   - its slot was announced under the lock in front of the snapshot's turn, so the snapshot sees it, or something later in it;
//   - it sees the sequence: it waits; the clearing store releases what went into the memtable, and the load that sees it acquires;
//   - it sees 0, or what a later commit put there: the slot was cleared since. Whoever took it acquired that, and releases
//     it with what he stores (kClaimed is stored by a read-modify-write, which does as well).
// A commit does not suspend between announcing and clearing, so the wait is for threads that are in the middle of it.
//
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dsm/base/spin_lock.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class CommitOrder {
 public:
  /// A commit's slot, from before it gets its sequence until it is in the memtable.
  class Slot {
   public:
    /// `hint`: where to look for a free one; the worker's number, say.
    Slot(CommitOrder* order, uint64_t hint) : word_(order->Claim(hint)) {}
    Slot(const Slot&) = delete;
    ~Slot() { word_->store(kFree, std::memory_order_release); }
    /// REQUIRES: under the lock under which sequences are given.
    void Announce(Sequence first) { word_->store(first, std::memory_order_release); }

   private:
    std::atomic<Sequence>* word_;
  };

  /// Until each commit with a sequence up to `last` that was announced is in the memtable. REQUIRES: `last` was read under the
  /// lock, and the caller holds none.
  void AwaitUpTo(Sequence last) const {
    for (const Word& word : words_) {
      uint32_t turns = 0;
      for (;;) {
        const Sequence announced = word.value.load(std::memory_order_acquire);
        if (announced == kFree || announced > last) break;
        SpinPause(&turns);
      }
    }
  }

 private:
  static constexpr Sequence kFree = 0, kClaimed = UINT64_MAX;
  static constexpr size_t kSlots = 64;
  struct alignas(64) Word {
    std::atomic<Sequence> value{kFree};
  };

  std::atomic<Sequence>* Claim(uint64_t hint) {
    uint32_t turns = 0;
    for (size_t i = hint;; ++i) {
      std::atomic<Sequence>& word = words_[i % kSlots].value;
      Sequence free = kFree;
      if (word.load(std::memory_order_relaxed) == kFree &&
          word.compare_exchange_strong(free, kClaimed, std::memory_order_acquire)) {
        return &word;
      }
      if ((i - hint) % kSlots == kSlots - 1) SpinPause(&turns);
    }
  }

  std::array<Word, kSlots> words_;
};

}  // namespace farleaf::index::lsm
