// The catalog's lock, where connections break, too. README.md, "Crash", has the argument.
#include <algorithm>
#include <string>

#include "index/blink/catalog_entry.h"

namespace farleaf::index {

namespace {

constexpr uint16_t kNoTree = 0;  ///< in UnresolvedLocks: the catalog's lock is of none
constexpr uint64_t kLockWaitMs = 10'000;

dsm::GlobalAddress CatalogLock() { return {dsm::kCatalogServer, dsm::kCatalogOffset}; }

/// CAS of the catalog's lock, once. What was there before.
Task<Result<uint64_t>> SwapCatalogLock(OpContext& op, uint64_t from, uint64_t to) {
  uint64_t old = 0;
  Batch batch(dsm::kCatalogServer);
  batch.CompareAndSwap(dsm::kCatalogOffset, from, to, &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return old;
}

/// Whether this member has lost sight of that word, and this worker may find out. Of another worker's an
/// entry that was written under it may land yet, though the word itself has.
bool IsLost(OpContext& op, dsm::Pool& pool, uint64_t word) {
  return pool.unresolved_locks().Has(CatalogLock(), word, op.worker.number());
}

}  // namespace

Task<void> ReleaseCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word) {
  uint64_t wait_ns = dsm::UnresolvedLocks::kWaitNsMin;
  for (int attempt = 0; attempt < kCatalogAttemptsMax; ++attempt, wait_ns *= 2) {
    if (attempt > 0) co_await op.worker.Sleep(wait_ns);
    auto swapped = co_await SwapCatalogLock(op, lock_word, dsm::kUnlockedWord);
    if (swapped.ok()) co_return;
    if (swapped.status().code() == StatusCode::kFenced) co_return;  // for others to recover
  }
  dsm::UnresolvedLocks::Lock lock{.address = CatalogLock(), .word = lock_word, .tree = kNoTree};
  if (op.worker.in_doubt()) lock.worker = op.worker.number();
  pool.unresolved_locks().Add(lock);
}

Task<Status> LockCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word) {
  const uint64_t give_up_ns =
      std::min(op.deadline_ns, op.worker.clock().NowNs() + kLockWaitMs * kNsPerMs);
  uint64_t expected = dsm::kUnlockedWord;
  for (uint64_t wait_ns = 10 * kNsPerUs;; wait_ns = std::min(2 * wait_ns, kNsPerMs)) {
    auto old = co_await SwapCatalogLock(op, expected, lock_word);
    if (!old.ok()) {
      co_await ReleaseCatalog(op, pool, lock_word);  // it may have been had
      co_return old.status();
    }
    if (*old == expected) {
      pool.unresolved_locks().Remove(CatalogLock(), expected);
      co_return Status::Ok();
    }
    expected = IsLost(op, pool, *old) ? *old : dsm::kUnlockedWord;
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded("the catalog's lock is held by compute server " +
                                         std::to_string(dsm::LockWord::Decode(*old).owner));
    }
    co_await op.worker.Sleep(wait_ns);
  }
}

uint64_t NewCatalogWord(dsm::Pool& pool) {
  return dsm::LockWord{
      .state = dsm::LockWord::State::kLocked,
      .owner = pool.self().id,
      .incarnation = pool.self().short_incarnation(),
      .sequence = static_cast<uint32_t>(pool.NextUniqueId() >> 26 & dsm::kLockSequenceMax)}
      .Encode();
}

Task<Status> SettleCatalogLock(OpContext& op, dsm::Pool& pool) {
  const uint64_t now_ns = op.worker.clock().NowNs();
  const auto due = pool.unresolved_locks().TakeDue(kNoTree, op.worker.number(), now_ns,
                                                   dsm::UnresolvedLocks::kWaitNsMax);
  for (const dsm::UnresolvedLocks::Lock& lock : due) {
    auto old = co_await SwapCatalogLock(op, lock.word, dsm::kUnlockedWord);
    if (old.status().code() == StatusCode::kFenced) co_return old.status();
    if (!old.ok()) {
      co_return Status::Unavailable("the catalog's lock may be in this compute server's name: " +
                                    old.status().ToString());
    }
    pool.unresolved_locks().Remove(CatalogLock(), lock.word);
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index
