// Recovery of all locks of one member that is gone, found by a scan.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "dsm/page_scan.h"
#include "index/blink/recover_member.h"

namespace farleaf::index {

Level LowestLevelOf(const dsm::PageClass& page_class) {
  return page_class.kind == dsm::ChunkKind::kLeaf ? 0 : 1;
}

bool MayBeOf(const TreeInfo& tree, const dsm::PageClass& page_class) {
  if (tree.geometry.page_bytes(LowestLevelOf(page_class)) != page_class.page_bytes) return false;
  return page_class.kind == dsm::ChunkKind::kLeaf || page_class.tree == tree.id;
}

namespace {

constexpr uint64_t kScanWaitNsMin = 100 * kNsPerUs, kScanWaitNsMax = 100 * kNsPerMs;
constexpr uint64_t kLocksWaitMs = 60'000;

struct HeldLock {
  GlobalAddress address;
  dsm::PageClass page_class;
  uint64_t word = 0;
};

/// The locks of one member.
class LockVisitor final : public dsm::PageVisitor {
 public:
  explicit LockVisitor(dsm::MemberIdentity member) : member_(member) {}
  void OnChunk(const dsm::ScannedChunk&) override {}
  void OnPage(const dsm::ScannedPage& page) override {
    const bool lockable = page.page_class.kind == dsm::ChunkKind::kLeaf ||
                          page.page_class.kind == dsm::ChunkKind::kSearch;
    if (!lockable || page.lock.state != dsm::LockWord::State::kLocked) return;
    if (page.lock.owner != member_.id || page.lock.incarnation != member_.short_incarnation()) {
      return;
    }
    locks_.push_back({page.address, page.page_class, page.lock_word});
  }
  const std::vector<HeldLock>& locks() const { return locks_; }

 private:
  dsm::MemberIdentity member_;
  std::vector<HeldLock> locks_;
};

}  // namespace

Task<Result<uint64_t>> RecoverLocks(OpContext& op, dsm::Pool& pool,
                                    std::span<BlinkTree* const> trees, dsm::MemberIdentity dead) {
  uint64_t recovered = 0;
  const uint64_t give_up_ns =
      std::min(op.deadline_ns, op.worker.clock().NowNs() + kLocksWaitMs * kNsPerMs);
  for (uint64_t wait_ns = kScanWaitNsMin;; wait_ns = std::min(2 * wait_ns, kScanWaitNsMax)) {
    LockVisitor visitor(dead);
    for (const dsm::RegionLayout& layout : pool.layouts()) {
      Status scanned = co_await dsm::ScanPages(op, layout, visitor);
      if (!scanned.ok()) co_return scanned;
    }
    // A lock that is not over may wait for another one of them.
    uint64_t left = 0;
    for (const HeldLock& lock : visitor.locks()) {
      bool over = false;
      for (size_t i = 0; i < trees.size() && !over; ++i) {
        if (!MayBeOf(trees[i]->info(), lock.page_class)) continue;
        auto outcome = co_await trees[i]->RecoverLock(
            op, {lock.address, LowestLevelOf(lock.page_class), lock.word});
        if (!outcome.ok()) co_return outcome.status();
        over = *outcome;
      }
      recovered += over;
      left += !over;
    }
    if (left == 0) co_return recovered;
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded(std::to_string(left) + " locks of " + dead.ToString() +
                                         " could not be taken over yet");
    }
    co_await op.worker.Sleep(wait_ns);
  }
}

}  // namespace farleaf::index
