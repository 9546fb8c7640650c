// LocalLockTable: threads and coroutines of one compute server queue here for a page before any of
// them touches the page's lock word, and pass the remote lock on without the network.
//
// A waiter receives either just its turn (it must then take the remote lock), or the turn with the
// remote lock in hand and the page's current image, which saves it the lock's round trip.
//
// A waiter may also bring work that the holder of the turn can do in its place (combining): the holder
// takes such waiters out of the queue, does what they want along with its own, and tells them when its
// write-back has completed. They never get the turn, nor the lock.
//
// Invariants:
//   - at most one coroutine of the process holds the turn for an address;
//   - a remote lock is passed on only after the holder's write-back completed, and at most
//     handovers_max times in a row, so that other compute servers get theirs;
//   - waiters are served first come, first served, but that a turn whose holder is parked (it waits for a redo
//     slot, and has touched nothing) is taken from him by who wants the page as of a higher class;
//   - a remote lock is passed on only to an acquisition of the class of the one that took it, or a
//     higher one: the lock brings its redo slot along (dsm/remote_lock.h, the argument on deadlock); and to
//     one that expects as much of the page as the holder has of it;
//   - who says that a class is too low to wait for is refused, if the one that he would come behind has a
//     lower one: a page that was freed and is in use again may be locked as something else than he
//     takes it for, by somebody who waits for him, or by himself.
// Thread rule: thread-safe. A waiter is resumed on its own worker's thread.
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/base/spin_lock.h"
#include "dsm/remote_lock.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

class LocalLockTable {
 public:
  static constexpr uint32_t kHandoversMax = 16;

  /// What a waiter wants done, in its own frame; the index says what it is. Whoever has taken it may use
  /// it, on any thread, until it calls Serve or PutBack.
  struct Work {};

  /// How the turn was received. `lock_word` is 0 if the remote lock is not in hand.
  struct Turn {
    uint64_t lock_word = 0;
    uint32_t handovers = 0;                 ///< since the remote lock was taken
    LockClass slot_class = 0;               ///< of the acquisition that took the remote lock
    const LocalLockTable* table = nullptr;  ///< that gave the turn
    size_t image_bytes = 0;  ///< that come along where the remote lock is handed over
    bool served = false;     ///< no turn at all: the work was done by the holder
    bool refused = false;    ///< no turn at all: held as of too low a class
  };

  /// Of the holder of a turn who waits for a redo slot: he keeps the turn, so that others of the page wait behind him
  /// and their work is done along with his, but not against those of a higher class, who may hold the very slot.
  struct Parked {
    explicit Parked(LockClass held_as) : lock_class(held_as) {}
    const LockClass lock_class;
    std::atomic<bool> lost{false};  ///< the turn is another's by now
  };

  /// The process is gone (Pool::Abandon): turns and remote locks are not given back any more.
  void Abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  /// Waits for the turn. `image` (the page's size) receives the page if the lock is handed over.
  class [[nodiscard]] Acquiring {
   public:
    bool await_ready();
    bool await_suspend(std::coroutine_handle<> handle);
    Turn await_resume() const noexcept { return turn_; }

   private:
    friend class LocalLockTable;
    Acquiring(LocalLockTable* table, Worker* worker, GlobalAddress address, LockClass lock_class,
              std::span<std::byte> image, Work* work, LockClass behind_min)
        : table_(table),
          worker_(worker),
          address_(address),
          image_(image),
          work_(work),
          behind_min_(behind_min) {
      turn_.slot_class = lock_class;
      turn_.image_bytes = image.size();
      turn_.table = table;
    }
    Acquiring(const Acquiring&) = delete;
    LocalLockTable* table_;
    Worker* worker_;
    GlobalAddress address_;
    std::span<std::byte> image_;
    Work* work_;
    LockClass behind_min_;
    std::coroutine_handle<> handle_;
    Acquiring* next_ = nullptr;
    Turn turn_;
  };
  /// With `work` the turn may be `served` instead of received; behind a class below `behind_min` it is
  /// `refused`.
  Acquiring Acquire(Worker& worker, GlobalAddress address, LockClass lock_class,
                    std::span<std::byte> image, Work* work = nullptr, LockClass behind_min = 0) {
    return Acquiring(this, &worker, address, lock_class, image, work, behind_min);
  }

  /// Waiters whose work was taken, in the order of the queue.
  using TakenWork = std::vector<Acquiring*>;
  static Work& WorkOf(Acquiring* taken) { return *taken->work_; }
  /// Shows the holder of the turn the work of those who wait first, up to the first waiter that brought
  /// none, at most `max`. `see` is called under a spin lock.
  template <typename See>
  void ForEachWork(GlobalAddress address, size_t max, const See& see) {
    Shard& shard = ShardOf(address);
    if (!AnyoneWaits(shard)) return;
    std::lock_guard lock(shard.lock);
    const Entry* entry = Find(shard, address);
    FARLEAF_CHECK(entry, address);
    for (Acquiring* at = entry->first; at && at->work_ && max > 0; at = at->next_, --max) {
      see(*at->work_);
    }
  }
  /// Takes these waiters out of the queue. Each is to be served or put back.
  void TakeWork(GlobalAddress address, size_t max, TakenWork* taken);
  /// Back to the queue's front, in order.
  void PutBack(GlobalAddress address, std::span<Acquiring* const> taken);
  /// The work is done (or has failed: the index's own words say so).
  static void Serve(std::span<Acquiring* const> taken);

  /// The turn, if nobody has it: without the remote lock, and without waiting.
  bool TryAcquire(GlobalAddress address, LockClass lock_class);
  /// The holder of the turn, who does not have the remote lock, waits for a slot until he calls Unpark. False: someone
  /// of a higher class waits already; the turn is to be released.
  bool Park(GlobalAddress address, Parked* parked);
  /// Whether he has the turn still.
  bool Unpark(GlobalAddress address, Parked* parked);
  /// Whether the holder should leave the remote lock held for a local waiter. If so it must end with
  /// HandOver: waiters do not go away.
  bool ShouldHandOver(GlobalAddress address, const Turn& turn);
  /// Gives turn, remote lock and page to the first waiter. REQUIRES: ShouldHandOver said yes since
  /// the turn was received.
  void HandOver(GlobalAddress address, Turn turn, std::span<const std::byte> image);
  /// Ends the turn; the first waiter gets it without the remote lock.
  void Release(GlobalAddress address);

 private:
  struct Entry {
    GlobalAddress address;
    Acquiring* first = nullptr;
    Acquiring* last = nullptr;
    LockClass last_class = 0;   ///< of the waiter that came last, or of the holder
    LockClass waiting_max = 0;  ///< no waiter's class is higher
    Parked* parked = nullptr;   ///< the holder, while he waits for a slot
  };
  struct alignas(64) Shard {
    SpinLock lock;
    std::atomic<uint32_t> waiting{0};  // changed under `lock`
    std::vector<Entry> held;           // short: the locks in hand at this moment that hash here
  };
  static constexpr size_t kShards = 256;

  Shard& ShardOf(GlobalAddress address) { return shards_[Mix64(address.word()) % kShards]; }
  static Entry* Find(Shard& shard, GlobalAddress address);
  /// The turn, if nobody has it, or who has it is parked as of a lower class; null. Else whose it is. REQUIRES: shard locked.
  static Entry* TakeTurn(Shard& shard, GlobalAddress address, LockClass lock_class);
  /// False: nobody waits for what hashes here. Who begins to wait at this moment may be missed: Release finds him.
  static bool AnyoneWaits(const Shard& shard) {
    return shard.waiting.load(std::memory_order_relaxed) > 0;
  }
  /// REQUIRES: shard locked.
  static void AddWaiting(Shard& shard, size_t more) {
    const uint32_t waiting = shard.waiting.load(std::memory_order_relaxed);
    shard.waiting.store(waiting + static_cast<uint32_t>(more), std::memory_order_relaxed);
  }
  /// Removes the first waiter, or the entry if there is none. REQUIRES: shard locked.
  static Acquiring* PopWaiter(Shard& shard, GlobalAddress address);
  static void Resume(Acquiring* waiter);

  std::array<Shard, kShards> shards_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace farleaf::dsm
