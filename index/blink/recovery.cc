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
