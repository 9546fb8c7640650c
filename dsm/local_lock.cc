#include "dsm/local_lock.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farleaf::dsm {

LocalLockTable::Entry* LocalLockTable::Find(Shard& shard, GlobalAddress address) {
  for (Entry& entry : shard.held) {
    if (entry.address == address) return &entry;
  }
  return nullptr;
}

LocalLockTable::Entry* LocalLockTable::TakeTurn(Shard& shard, GlobalAddress address,
                                                LockClass lock_class) {
  Entry* entry = Find(shard, address);
  if (entry == nullptr) {
    shard.held.push_back({.address = address, .last_class = lock_class});
    return nullptr;
  }
  if (entry->parked == nullptr || entry->parked->lock_class >= lock_class) return entry;
  std::exchange(entry->parked, nullptr)->lost.store(true, std::memory_order_relaxed);
  if (entry->first == nullptr) entry->last_class = lock_class;
  return nullptr;
}

bool LocalLockTable::TryAcquire(GlobalAddress address, LockClass lock_class) {
  Shard& shard = ShardOf(address);
  std::lock_guard lock(shard.lock);
  return TakeTurn(shard, address, lock_class) == nullptr;
}

bool LocalLockTable::Park(GlobalAddress address, Parked* parked) {
  Shard& shard = ShardOf(address);
  std::lock_guard lock(shard.lock);
  Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry && entry->parked == nullptr, address);
  if (entry->waiting_max > parked->lock_class) {  // or was
    entry->waiting_max = 0;
    for (const Acquiring* at = entry->first; at; at = at->next_) {
      entry->waiting_max = std::max(entry->waiting_max, at->turn_.slot_class);
    }
    if (entry->waiting_max > parked->lock_class) return false;
  }
  entry->parked = parked;
  return true;
}

bool LocalLockTable::Unpark(GlobalAddress address, Parked* parked) {
  Shard& shard = ShardOf(address);
  std::lock_guard lock(shard.lock);
  if (parked->lost.load(std::memory_order_relaxed)) return false;
  Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry && entry->parked == parked, address);
  entry->parked = nullptr;
  return true;
}

bool LocalLockTable::Acquiring::await_ready() {
  return table_->TryAcquire(address_, turn_.slot_class);
}

bool LocalLockTable::Acquiring::await_suspend(std::coroutine_handle<> handle) {
  Shard& shard = table_->ShardOf(address_);
  std::lock_guard lock(shard.lock);
  Entry* entry = TakeTurn(shard, address_, turn_.slot_class);
  if (entry == nullptr) return false;  // released, or parked, since await_ready looked
  if (entry->last_class < behind_min_) {
    turn_.refused = true;
    return false;
  }
  handle_ = handle;
  AddWaiting(shard, 1);
  const LockClass mine = turn_.slot_class;
  entry->waiting_max = entry->last ? std::max(entry->waiting_max, mine) : mine;
  (entry->last ? entry->last->next_ : entry->first) = this;
  entry->last = this;
  entry->last_class = turn_.slot_class;
  return true;
}

bool LocalLockTable::ShouldHandOver(GlobalAddress address, const Turn& turn) {
  if (turn.handovers >= kHandoversMax) return false;
  Shard& shard = ShardOf(address);
  if (!AnyoneWaits(shard)) return false;
  std::lock_guard lock(shard.lock);
  const Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry, address);
  if (entry->first == nullptr) return false;
  const Turn& next = entry->first->turn_;
  return next.slot_class >= turn.slot_class && next.image_bytes == turn.image_bytes;
}

LocalLockTable::Acquiring* LocalLockTable::PopWaiter(Shard& shard, GlobalAddress address) {
  Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry, "released a page that is not held", address);
  Acquiring* waiter = entry->first;
  if (waiter == nullptr) {
    *entry = shard.held.back();
    shard.held.pop_back();
    return nullptr;
  }
  AddWaiting(shard, size_t{0} - 1);
  entry->first = waiter->next_;
  if (entry->first == nullptr) entry->last = nullptr;
  return waiter;
}

void LocalLockTable::Resume(Acquiring* waiter) { waiter->worker_->ResumeSoon(waiter->handle_); }

void LocalLockTable::HandOver(GlobalAddress address, Turn turn, std::span<const std::byte> image) {
  Acquiring* waiter;
  {
    Shard& shard = ShardOf(address);
    std::lock_guard lock(shard.lock);
    waiter = PopWaiter(shard, address);
  }
  FARLEAF_CHECK(waiter, "handed over to nobody", address);
  FARLEAF_CHECK(waiter->image_.size() == image.size(), waiter->image_.size(), image.size());
  if (!image.empty()) std::memcpy(waiter->image_.data(), image.data(), image.size());
  waiter->turn_ = {.lock_word = turn.lock_word,
                   .handovers = turn.handovers + 1,
                   .slot_class = turn.slot_class,
                   .table = this,
                   .image_bytes = image.size()};
  Resume(waiter);
}

void LocalLockTable::Release(GlobalAddress address) {
  Acquiring* waiter;
  {
    Shard& shard = ShardOf(address);
    std::lock_guard lock(shard.lock);
    waiter = PopWaiter(shard, address);
  }
  if (waiter) Resume(waiter);
}

void LocalLockTable::TakeWork(GlobalAddress address, size_t max, TakenWork* taken) {
  taken->clear();
  Shard& shard = ShardOf(address);
  if (!AnyoneWaits(shard)) return;
  std::lock_guard lock(shard.lock);
  Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry, "took work for a page that is not held", address);
  Acquiring* at = entry->first;
  for (; at && at->work_ && taken->size() < max; at = at->next_) taken->push_back(at);
  AddWaiting(shard, size_t{0} - taken->size());
  entry->first = at;
  if (at == nullptr) entry->last = nullptr;
}

void LocalLockTable::PutBack(GlobalAddress address, std::span<Acquiring* const> taken) {
  if (taken.empty()) return;
  for (size_t i = 0; i + 1 < taken.size(); ++i) taken[i]->next_ = taken[i + 1];
  Shard& shard = ShardOf(address);
  std::lock_guard lock(shard.lock);
  Entry* entry = Find(shard, address);
  FARLEAF_CHECK(entry, "put work back for a page that is not held", address);
  AddWaiting(shard, taken.size());
  for (const Acquiring* waiter : taken) {
    entry->waiting_max = std::max(entry->waiting_max, waiter->turn_.slot_class);
  }
  taken.back()->next_ = entry->first;
  if (entry->first == nullptr) entry->last = taken.back();
  entry->first = taken.front();
}

void LocalLockTable::Serve(std::span<Acquiring* const> taken) {
  for (Acquiring* waiter : taken) {
    waiter->turn_.served = true;
    Resume(waiter);  // it may be gone after this
  }
}

}  // namespace farleaf::dsm
