// Recovery of all locks of one member that is gone, found by a scan.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsm/member_holdings.h"
#include "dsm/page_scan.h"
#include "dsm/redo_area.h"
#include "dsm/redo_record.h"
#include "index/blink/catalog_entry.h"
#include "index/blink/recover_member.h"
#include "index/blink/search_cache.h"

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
  uint64_t version = 0;
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
    locks_.push_back({page.address, page.page_class, page.lock_word, page.version});
  }
  const std::vector<HeldLock>& locks() const { return locks_; }

 private:
  dsm::MemberIdentity member_;
  std::vector<HeldLock> locks_;
};

/// The record that the dead one left with a lock; its ranges are in `slot`.
Task<Result<std::optional<dsm::RedoRecord>>> ReadRecord(OpContext& op, dsm::Pool& pool,
                                                        const HeldLock& lock,
                                                        std::span<std::byte> slot) {
  const dsm::RegionLayout& layout = pool.layouts()[lock.address.server()];
  const dsm::LockWord word = dsm::LockWord::Decode(lock.word);
  auto area = co_await dsm::FindRedoArea(op, layout, word.owner, word.incarnation);
  if (!area.ok()) co_return area.status();
  std::optional<dsm::RedoRecord> record;
  if (!*area || word.redo_slot >= dsm::RedoAreaSlots(layout)) co_return record;
  Batch batch(layout.server);
  batch.Read(**area + word.redo_slot * uint64_t{dsm::kRedoSlotBytes}, slot);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  record = dsm::ParseRedo(slot);
  if (record && (record->lock_word != lock.word || record->page != lock.address)) record.reset();
  co_return record;
}

/// A tree's first leaf, which no tree there is may know: the tree was not made, or not yet when the trees
/// were listed, and another may have got its number. The root word alone says whether it was linked; since
/// the leaf is locked it stands as it was then. True: the lock was one of these, and is over.
Task<Result<bool>> SettleFirstLeaf(OpContext& op, dsm::Pool& pool, const HeldLock& lock) {
  if (lock.page_class.kind != dsm::ChunkKind::kLeaf) co_return false;
  const auto slot = std::make_unique<std::byte[]>(dsm::kRedoSlotBytes);
  auto record = co_await ReadRecord(op, pool, lock, {slot.get(), dsm::kRedoSlotBytes});
  if (!record.ok()) co_return record.status();
  if (!*record || (*record)->kind != dsm::RedoKind::kNewPage || (*record)->level != 0 ||
      !(*record)->follow_up.is_null() || (*record)->tree > kTreeIdMax) {
    co_return false;
  }
  const uint64_t root_at = TreeInfo{.id = (*record)->tree}.root_word_offset();
  // One behind the other: READs of one batch are not ordered, and another may be writing its entry there.
  uint64_t state = 0, root = 0;
  Batch look(dsm::kCatalogServer);
  look.ReadWord(root_at - kCatalogRootAt, &state);
  Status status = co_await op.worker.RoundTrip(look, op.counts);
  if (!status.ok()) co_return status;
  if (state == kCatalogStateTree) {
    Batch names(dsm::kCatalogServer);
    names.ReadWord(root_at, &root);
    status = co_await op.worker.RoundTrip(names, op.counts);
    if (!status.ok()) co_return status;
  }
  if (state == kCatalogStateTree && root == RootWord{lock.address, 0}.Encode()) {
    uint64_t old = 0;
    Batch unlock(lock.address.server());
    unlock.CompareAndSwap(lock.address.offset() + dsm::LockWordOffset(lock.page_class), lock.word,
                          dsm::kUnlockedWord, &old);
    status = co_await op.worker.RoundTrip(unlock, op.counts);
    if (!status.ok()) co_return status;
    co_return true;
  }
  // Nothing led to it: it needs no dead image.
  const std::vector<dsm::HeldPage> pages(
      1, dsm::HeldPage{lock.address, lock.page_class, lock.word, lock.version});
  auto taken = co_await dsm::TakePages(op, pool.self(), pages);
  if (!taken.ok()) co_return taken.status();
  for (const dsm::HeldPage& page : *taken) {
    pool.allocator().Retire(pool.clock(), page.page_class,
                            {page.address, page.version + kUnseenVersionsMax});
  }
  co_return true;
}

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
      auto first_leaf = co_await SettleFirstLeaf(op, pool, lock);
      if (!first_leaf.ok()) co_return first_leaf.status();
      bool over = *first_leaf;
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
