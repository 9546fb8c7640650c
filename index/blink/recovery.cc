// The lists of what a member could not bring to an end since connections broke.
#include "index/blink/recovery.h"

#include <algorithm>

namespace farleaf::index {

namespace {

/// Makes the next attempt a later one.
template <typename T>
void Postpone(T& entry, uint64_t now_ns) {
  entry.wait_ns =
      std::clamp(2 * entry.wait_ns, UnresolvedLocks::kWaitNsMax / 100, UnresolvedLocks::kWaitNsMax);
  entry.due_ns = now_ns + entry.wait_ns;
}

}  // namespace

bool UnresolvedLocks::Add(const Lock& lock) {
  std::lock_guard guard(mutex_);
  if (locks_.size() >= kLocksMax) return false;
  locks_.insert_or_assign({lock.address.server(), lock.word}, lock);
  count_.store(locks_.size());
  return true;
}

bool UnresolvedLocks::Has(GlobalAddress address, uint64_t word,
                          const dsm::Transport& transport) const {
  if (empty()) return false;
  std::lock_guard guard(mutex_);
  const auto at = locks_.find({address.server(), word});
  return at != locks_.end() && at->second.address == address &&
         (at->second.transport == nullptr || at->second.transport == &transport);
}

bool UnresolvedLocks::HasFor(const dsm::Transport& transport) const {
  std::lock_guard guard(mutex_);
  return std::any_of(locks_.begin(), locks_.end(), [&](const auto& entry) {
    return entry.second.transport == nullptr || entry.second.transport == &transport;
  });
}

std::optional<UnresolvedLocks::Lock> UnresolvedLocks::Remove(GlobalAddress address, uint64_t word) {
  if (empty()) return std::nullopt;
  std::lock_guard guard(mutex_);
  const auto at = locks_.find({address.server(), word});
  if (at == locks_.end() || at->second.address != address) return std::nullopt;
  const Lock lock = at->second;
  locks_.erase(at);
  count_.store(locks_.size());
  return lock;
}

std::vector<UnresolvedLocks::Lock> UnresolvedLocks::TakeDue(const dsm::Transport& transport,
                                                            uint64_t now_ns, uint64_t ahead_ns) {
  std::vector<Lock> due;
  std::lock_guard guard(mutex_);
  for (auto& [key, lock] : locks_) {
    if (lock.transport != nullptr && lock.transport != &transport) continue;
    if (lock.due_ns > now_ns + ahead_ns) continue;
    Postpone(lock, now_ns);
    due.push_back(lock);
  }
  return due;
}

bool LateBlocks::Add(const Block& block) {
  std::lock_guard guard(mutex_);
  if (blocks_.size() >= kBlocksMax) return false;
  blocks_.push_back(block);
  count_.store(blocks_.size());
  return true;
}

std::vector<LateBlocks::Block> LateBlocks::TakeDue(uint64_t now_ns, uint64_t ahead_ns) {
  std::vector<Block> due;
  std::lock_guard guard(mutex_);
  std::erase_if(blocks_, [&](Block& block) {
    if (block.due_ns > now_ns + ahead_ns) return false;
    Postpone(block, now_ns);
    due.push_back(block);
    return true;
  });
  count_.store(blocks_.size());
  return due;
}

}  // namespace farleaf::index
