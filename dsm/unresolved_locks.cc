#include "dsm/unresolved_locks.h"

#include <algorithm>

namespace farleaf::dsm {

void UnresolvedLocks::Add(const Lock& lock) {
  std::lock_guard guard(mutex_);
  if (locks_.size() >= kLocksMax) {
    ++forgotten_;
  } else {
    locks_.insert_or_assign({lock.address, lock.word}, lock);
  }
  Count();
}

const UnresolvedLocks::Lock* UnresolvedLocks::Find(GlobalAddress address, uint64_t word) const {
  const auto at = locks_.find({address, word});
  return at != locks_.end() ? &at->second : nullptr;
}

bool UnresolvedLocks::Has(GlobalAddress address, uint64_t word, uint64_t worker) const {
  if (empty()) return false;
  std::lock_guard guard(mutex_);
  const Lock* lock = Find(address, word);
  return lock != nullptr && MayFindOut(*lock, worker);
}

bool UnresolvedLocks::IsBoundElsewhere(GlobalAddress address, uint64_t word,
                                       uint64_t worker) const {
  if (empty()) return false;
  std::lock_guard guard(mutex_);
  const Lock* lock = Find(address, word);
  return lock != nullptr && !MayFindOut(*lock, worker);
}

std::optional<UnresolvedLocks::Lock> UnresolvedLocks::Remove(GlobalAddress address, uint64_t word) {
  if (empty()) return std::nullopt;
  std::lock_guard guard(mutex_);
  const Lock* found = Find(address, word);
  if (found == nullptr) return std::nullopt;
  const Lock lock = *found;
  locks_.erase({address, word});
  Count();
  return lock;
}

std::vector<UnresolvedLocks::Lock> UnresolvedLocks::TakeDue(uint16_t tree, uint64_t worker,
                                                            uint64_t now_ns, uint64_t ahead_ns) {
  std::vector<Lock> due;
  if (empty()) return due;
  std::lock_guard guard(mutex_);
  for (auto& [key, lock] : locks_) {
    if (lock.tree != tree || !MayFindOut(lock, worker)) continue;
    if (lock.due_ns > now_ns + ahead_ns) continue;
    lock.wait_ns = std::clamp(2 * lock.wait_ns, kWaitNsMin, kWaitNsMax);
    lock.due_ns = now_ns + lock.wait_ns;
    due.push_back(lock);
  }
  return due;
}

size_t UnresolvedLocks::CountFor(uint16_t tree, uint64_t worker) const {
  if (empty()) return 0;
  std::lock_guard guard(mutex_);
  size_t count = 0;
  for (const auto& [key, lock] : locks_) count += lock.tree == tree && MayFindOut(lock, worker);
  return count;
}

std::set<uint16_t> UnresolvedLocks::TreesFor(uint64_t worker) const {
  std::set<uint16_t> trees;
  if (empty()) return trees;
  std::lock_guard guard(mutex_);
  for (const auto& [key, lock] : locks_) {
    if (MayFindOut(lock, worker)) trees.insert(lock.tree);
  }
  return trees;
}

std::string UnresolvedLocks::Describe() const {
  std::lock_guard guard(mutex_);
  std::set<ServerId> servers;
  for (const auto& [key, lock] : locks_) servers.insert(lock.address.server());
  const size_t count = locks_.size() + forgotten_;
  std::string text = std::to_string(count) + (count == 1 ? " lock on " : " locks on ") +
                     (servers.size() == 1 ? "memory server" : "memory servers");
  const char* separator = " ";
  for (const ServerId server : servers) {
    text += std::exchange(separator, ", ") + std::to_string(server);
  }
  return text;
}

}  // namespace farleaf::dsm
