// Deferred destruction for structures that threads read without locks (quiescent-state based, after
// McKenney's RCU): what is retired now is destroyed when every online participant has since passed a
// quiescent point, that is, a moment at which it holds no pointer from such a structure.
//
// Cost to a reader: nothing per read, one relaxed load and one release store per quiescent point.
//
// Invariants:
//   - a participant that is online holds pointers only between two of its quiescent points;
//   - an object is retired only after it was unlinked, so that no later reader finds it.
// Thread rule: EpochDomain is thread-safe; a Participant belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "dsm/base/check.h"

namespace farleaf::dsm {

class EpochDomain {
  static constexpr uint64_t kOffline = UINT64_MAX;
  struct alignas(64) Slot {
    std::atomic<uint64_t> epoch{kOffline};
    std::atomic<bool> taken{false};
  };

 public:
  static constexpr size_t kParticipantsMax = 1024;

  class Participant {
   public:
    explicit Participant(EpochDomain* domain) : domain_(domain) {
      for (size_t i = 0; i < kParticipantsMax; ++i) {
        bool taken = false;
        if (!domain_->slots_[i].taken.compare_exchange_strong(taken, true)) continue;
        slot_ = &domain_->slots_[i];
        size_t used = domain_->slots_used_.load();
        while (used < i + 1 && !domain_->slots_used_.compare_exchange_weak(used, i + 1)) {
        }
        return;
      }
      FARLEAF_CHECK(false, "more threads than EpochDomain::kParticipantsMax", kParticipantsMax);
    }
    ~Participant() {
      GoOffline();
      slot_->taken.store(false);
    }
    Participant(const Participant&) = delete;

    /// A quiescent point. REQUIRES: online.
    void Quiesce() {
      slot_->epoch.store(domain_->epoch_.load(std::memory_order_acquire),
                         std::memory_order_release);
    }
    /// Before the first pointer is read. Sequentially consistent: either a retirer sees this
    /// participant online, or the participant sees the unlinking that came before the retirement.
    void GoOnline() { slot_->epoch.store(domain_->epoch_.load()); }
    void GoOffline() { slot_->epoch.store(kOffline, std::memory_order_release); }

   private:
    EpochDomain* domain_;
    Slot* slot_ = nullptr;
  };

  ~EpochDomain() {
    for (Retired& retired : retired_) retired.destroy();
  }

  /// Runs `destroy` once no participant can hold what it destroys; possibly at once.
  void Retire(std::function<void()> destroy) {
    std::deque<Retired> ready;
    {
      std::lock_guard lock(mutex_);
      retired_.push_back({epoch_.fetch_add(1) + 1, std::move(destroy)});
      uint64_t oldest = UINT64_MAX;
      for (size_t i = 0; i < slots_used_.load(); ++i) {
        oldest = std::min(oldest, slots_[i].epoch.load());
      }
      while (!retired_.empty() && retired_.front().epoch <= oldest) {
        ready.push_back(std::move(retired_.front()));
        retired_.pop_front();
      }
    }
    for (Retired& retired : ready) retired.destroy();
  }

 private:
  struct Retired {
    uint64_t epoch;  ///< safe once every online participant's epoch is at least this
    std::function<void()> destroy;
  };

  std::atomic<uint64_t> epoch_{1};
  std::atomic<size_t> slots_used_{0};  ///< slots at and above it were never taken
  std::array<Slot, kParticipantsMax> slots_;
  std::mutex mutex_;  // guards retired_
  std::deque<Retired> retired_;
};

}  // namespace farleaf::dsm
