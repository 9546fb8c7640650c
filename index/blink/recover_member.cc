#include "index/blink/recover_member.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dsm/member_holdings.h"
#include "index/blink/catalog.h"

namespace farleaf::index {

namespace {

using dsm::Batch;
using dsm::HeldPage;
using dsm::LockWord;
using dsm::MemberIdentity;
using dsm::MemberWord;

constexpr uint64_t kClaimWaitNs = 10 * kNsPerMs, kWaitStepNs = 50 * kNsPerMs;
constexpr int kReleaseAttemptsMax = 8;

/// One run of RecoverMember.
struct MemberRun {
  dsm::Pool* pool;
  MemberIdentity dead;
  const RecoverMemberOptions* options;
  uint64_t claim_word = 0;
  std::vector<std::unique_ptr<BlinkTree>> trees;
  std::vector<dsm::MemberHoldings> holdings;  ///< by server
  std::vector<HeldPage> blocks;               ///< value blocks taken, to be looked at again
  MemberRecovered result;

  void Tell(const std::string& line) const {
    if (options->progress) options->progress(line);
  }
};

/// The first memory server that has not confirmed that nothing of (id, incarnation, its low 12 bits) can
/// land there any more; nullopt: all have.
Task<Result<std::optional<dsm::ServerId>>> FirstNotFenced(OpContext& op, dsm::Pool& pool,
                                                          dsm::MemberId id, uint16_t incarnation) {
  std::vector<uint64_t> words(pool.layouts().size());
  std::vector<Batch> batches;
  for (const dsm::RegionLayout& layout : pool.layouts()) {
    batches.emplace_back(layout.server);
    batches.back().ReadWord(dsm::FenceWordOffset(id), &words[layout.server]);
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!dsm::IsFenced(words[i], id, incarnation)) {
      co_return std::optional(static_cast<dsm::ServerId>(i));
    }
  }
  co_return std::optional<dsm::ServerId>();
}

/// CAS of a word of the catalog server. What was there before.
Task<Result<uint64_t>> SwapCatalogWord(OpContext& op, uint64_t offset, uint64_t from, uint64_t to) {
  uint64_t old = 0;
  Batch batch(dsm::kCatalogServer);
  batch.CompareAndSwap(offset, from, to, &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return old;
}

/// Ok after that time; DeadlineExceeded: cancelled meanwhile.
Task<Status> Wait(OpContext& op, const RecoverMemberOptions& options, uint64_t ns) {
  const uint64_t end_ns = op.worker.clock().NowNs() + ns;
  for (uint64_t now_ns = op.worker.clock().NowNs(); now_ns < end_ns;
       now_ns = op.worker.clock().NowNs()) {
    if (options.cancelled && options.cancelled()) {
      co_return Status::DeadlineExceeded("the recovery was given up while it waited");
    }
    co_await op.worker.Sleep(std::min(end_ns - now_ns, kWaitStepNs));
  }
  co_return Status::Ok();
}

Task<Status> ReleaseClaim(OpContext& op, MemberRun& run) {
  Status status;
  for (int attempt = 0; attempt < kReleaseAttemptsMax; ++attempt) {
    auto old = co_await SwapCatalogWord(op, kRecoveryClaimOffset, run.claim_word, 0);
    status = old.status();
    if (status.ok() || status.code() == StatusCode::kFenced) co_return status;
  }
  run.pool->set_lost_claim(run.claim_word);  // the next run of this member takes it
  co_return status;
}

/// Takes the claim: from nobody, from a run of this member that could not release it, or from a claimer who
/// is fenced everywhere.
Task<Status> Claim(OpContext& op, MemberRun& run) {
  dsm::Pool& pool = *run.pool;
  run.claim_word = NewCatalogWord(pool);
  for (uint64_t expected = 0;;) {
    auto old = co_await SwapCatalogWord(op, kRecoveryClaimOffset, expected, run.claim_word);
    if (!old.ok()) {
      [[maybe_unused]] Status released = co_await ReleaseClaim(op, run);  // it may have been taken
      co_return old.status();
    }
    if (*old == expected) {
      run.result.claim_taken_over = expected != 0;
      co_return Status::Ok();
    }
    expected = 0;
    const LockWord holder = LockWord::Decode(*old);
    bool gone = *old == pool.lost_claim();
    if (!gone &&
        (holder.owner != pool.self().id || holder.incarnation != pool.self().short_incarnation())) {
      auto not_fenced = co_await FirstNotFenced(op, pool, holder.owner, holder.incarnation);
      if (!not_fenced.ok()) co_return not_fenced.status();
      gone = !*not_fenced;
    }
    if (gone) {
      expected = *old;
      continue;
    }
    if (op.expired()) {
      co_return Status::DeadlineExceeded("compute server " + std::to_string(holder.owner) +
                                         " is recovering a member of the pool");
    }
    Status waited = co_await Wait(op, *run.options, kClaimWaitNs);
    if (!waited.ok()) co_return waited;
  }
}

/// Those that are not open yet.
Task<Status> OpenTrees(OpContext& op, MemberRun& run) {
  auto trees = co_await ListTrees(op, *run.pool);
  if (!trees.ok()) co_return trees.status();
  for (TreeInfo& info : *trees) {
    const auto is_this = [&info](const auto& tree) { return tree->info().id == info.id; };
    if (std::any_of(run.trees.begin(), run.trees.end(), is_this)) continue;
    run.trees.push_back(std::make_unique<BlinkTree>(run.pool, std::move(info), run.options->tree));
  }
  co_return Status::Ok();
}

/// Takes pages over and gives them to this member's allocator. How many there were.
Task<Result<uint64_t>> TakeAndRetire(OpContext& op, MemberRun& run, std::vector<HeldPage> pages) {
  auto taken = co_await dsm::TakePages(op, run.pool->self(), pages);
  if (!taken.ok()) co_return taken.status();
  for (const HeldPage& page : *taken) {
    run.pool->allocator().Retire(run.pool->clock(), page.page_class,
                                 {page.address, page.version + kUnseenVersionsMax});
  }
  Status trimmed = co_await run.pool->allocator().Trim(op);
  if (!trimmed.ok()) co_return trimmed;
  co_return taken->size();
}

/// Leaves only those that are in none of the trees.
Task<Status> RemoveReached(OpContext& op, MemberRun& run, std::vector<HeldPage>* pages) {
  std::vector<HeldPage> rest;
  for (const HeldPage& page : *pages) {
    bool reached = false;
    for (size_t i = 0; i < run.trees.size() && !reached; ++i) {
      if (!MayBeOf(run.trees[i]->info(), page.page_class)) continue;
      auto reaches =
          co_await run.trees[i]->Reaches(op, page.address, LowestLevelOf(page.page_class));
      if (!reaches.ok()) co_return reaches.status();
      reached = *reaches;
    }
    if (!reached) rest.push_back(page);
  }
  *pages = std::move(rest);
  co_return Status::Ok();
}

/// What stands at one word of each of these pages.
enum class PageWord : uint8_t { kLock, kVersion };
Task<Result<std::vector<uint64_t>>> ReadPageWords(OpContext& op, const std::vector<HeldPage>& pages,
                                                  PageWord which) {
  std::vector<uint64_t> words(pages.size());
  if (pages.empty()) co_return words;
  std::vector<Batch> batches;
  for (size_t i = 0; i < pages.size(); ++i) {
    const HeldPage& page = pages[i];
    const uint64_t at = which == PageWord::kLock ? dsm::LockWordOffset(page.page_class)
                                                 : dsm::VersionOffset(page.page_class);
    dsm::BatchFor(batches, page.address.server()).ReadWord(page.address.offset() + at, &words[i]);
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) co_return status;
  co_return words;
}

/// Leaves only those that are not locked.
Task<Status> RemoveLocked(OpContext& op, std::vector<HeldPage>* pages) {
  auto words = co_await ReadPageWords(op, *pages, PageWord::kLock);
  if (!words.ok()) co_return words.status();
  size_t i = 0;
  std::erase_if(*pages, [&](const HeldPage&) { return (*words)[i++] != dsm::kUnlockedWord; });
  co_return Status::Ok();
}

/// Pages of the dead one's chunks that are in use, not locked, and in no tree: it died in the middle of
/// their first write, ahead of the lock word. (A page that came to another member was free before, and its
/// lock word names somebody until it is linked.)
///
/// The order of the looks is what tells such a page: version; lock word; reached; lock word; version. Had it
/// been linked at the first look at its lock word, which found none, then also when it was looked for from
/// the roots, unless it was dying: but then it was locked until it had its dead image, which the second
/// looks would have shown, the one or the other. One that was not linked then never is: nothing leads to
/// it, so nobody but a recovery touches it, and it may be taken at any later time.
Task<Status> ReturnGivenUp(OpContext& op, MemberRun& run, const dsm::MemberHoldings& holdings) {
  std::vector<HeldPage> pages = holdings.unlocked;
  Status status = co_await RemoveReached(op, run, &pages);  // most of them
  if (!status.ok() || pages.empty()) co_return status;
  auto versions = co_await ReadPageWords(op, pages, PageWord::kVersion);
  if (!versions.ok()) co_return versions.status();
  for (size_t i = 0; i < pages.size(); ++i) pages[i].version = (*versions)[i];
  status = co_await RemoveLocked(op, &pages);
  if (status.ok()) status = co_await OpenTrees(op, run);  // those that were made since, too
  if (status.ok()) status = co_await RemoveReached(op, run, &pages);
  if (status.ok()) status = co_await RemoveLocked(op, &pages);
  if (!status.ok()) co_return status;
  versions = co_await ReadPageWords(op, pages, PageWord::kVersion);
  if (!versions.ok()) co_return versions.status();
  size_t i = 0;
  std::erase_if(pages, [&](const HeldPage& page) { return page.version != (*versions)[i++]; });
  auto taken = co_await TakeAndRetire(op, run, std::move(pages));
  if (!taken.ok()) co_return taken.status();
  run.result.given_up_pages += *taken;
  co_return Status::Ok();
}

/// Value blocks of the dead one that no leaf names. Nobody can come to name one any more, but somebody
/// may have overwritten the value just now and be about to free the block: it is taken, and reused only
/// if it is still ours after a while.
Task<Status> TakeBlocks(OpContext& op, MemberRun& run) {
  std::map<GlobalAddress, HeldPage> unnamed;
  for (const dsm::MemberHoldings& holdings : run.holdings) {
    for (const HeldPage& block : holdings.blocks) unnamed.emplace(block.address, block);
  }
  if (unnamed.empty()) co_return Status::Ok();
  const auto visit = [&unnamed](const OutOfLineValue& value) { unnamed.erase(value.block); };
  for (const auto& tree : run.trees) {
    Status visited = co_await tree->VisitOutOfLine(op, visit);
    if (!visited.ok()) co_return visited;
  }
  std::vector<HeldPage> blocks;
  for (const auto& [address, block] : unnamed) blocks.push_back(block);
  auto taken = co_await dsm::TakePages(op, run.pool->self(), blocks);
  if (!taken.ok()) co_return taken.status();
  if (taken->empty()) co_return Status::Ok();
  run.Tell(std::to_string(taken->size()) + " value blocks that no leaf names");
  run.blocks = std::move(*taken);
  for (HeldPage& block : run.blocks) block.word = dsm::FreeWordOf(run.pool->self());
  co_return Status::Ok();
}

/// Those of them that are still this member's after a while.
Task<Status> KeepBlocks(OpContext& op, MemberRun& run) {
  auto kept =
      co_await dsm::TakePages(op, run.pool->self(), run.blocks);  // swaps each word for itself
  if (!kept.ok()) co_return kept.status();
  for (const HeldPage& block : *kept) {
    if (block.page_class.kind == dsm::ChunkKind::kExtent) {
      run.holdings[block.address.server()].free_extents.push_back(block);
      continue;
    }
    ++run.result.value_blocks;
    run.pool->allocator().Retire(run.pool->clock(), block.page_class, {block.address, 0});
  }
  co_return Status::Ok();
}

/// Of the pages that are free in nobody's name, those that no list names: taken from one by the dead one
/// that did not come to write its name, if they stay so. A list that changes each time it is read leaves
/// its own for the next recovery.
Task<Status> RemoveListed(OpContext& op, MemberRun& run) {
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    std::vector<HeldPage>& pages = run.holdings[layout.server].nobodys;
    if (pages.empty()) continue;
    auto unknown = co_await dsm::RemoveListed(op, layout, &pages);
    if (!unknown.ok()) co_return unknown.status();
    if (*unknown > 0) {
      run.Tell("memory server " + std::to_string(layout.server) + ": its free lists are in use; " +
               std::to_string(*unknown) + " free pages are left for later, if no list names them");
    }
  }
  co_return Status::Ok();
}

Task<Status> ReturnExtents(OpContext& op, MemberRun& run, const dsm::RegionLayout& layout) {
  for (const HeldPage& extent : run.holdings[layout.server].free_extents) {
    uint64_t word = 0;
    Batch batch(layout.server);
    batch.ReadWord(layout.ChunkWordOffset(layout.ChunkOf(extent.address.offset())), &word);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    const uint64_t bytes = dsm::ChunkWord::Decode(word).page_units * layout.chunk_bytes;
    status = co_await run.pool->allocator().FreeExtent(op, extent.address, bytes);
    if (!status.ok()) co_return status;
    ++run.result.extents;
  }
  co_return Status::Ok();
}

Task<Status> ReturnHoldings(OpContext& op, MemberRun& run) {
  dsm::BlockNames named_blocks;
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    Status status = co_await dsm::ScanRedoBlocks(op, layout, run.dead, &named_blocks);
    if (!status.ok()) co_return status;
  }
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    auto holdings = co_await dsm::ScanHoldings(op, layout, run.dead, named_blocks);
    if (!holdings.ok()) co_return holdings.status();
    run.holdings.push_back(std::move(*holdings));
  }
  Status status = co_await TakeBlocks(op, run);
  if (status.ok()) status = co_await RemoveListed(op, run);
  if (!status.ok()) co_return status;
  bool settles = !run.blocks.empty();
  for (const dsm::MemberHoldings& holdings : run.holdings) settles |= !holdings.nobodys.empty();
  if (settles) {
    run.Tell("waiting " + std::to_string(run.options->settle_ms) + " ms");
    status = co_await Wait(op, *run.options, run.options->settle_ms * kNsPerMs);
    if (status.ok()) status = co_await KeepBlocks(op, run);
    if (status.ok()) status = co_await RemoveListed(op, run);
    if (!status.ok()) co_return status;
  }
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    const dsm::MemberHoldings& holdings = run.holdings[layout.server];
    auto freed = co_await TakeAndRetire(op, run, holdings.free_pages);
    if (!freed.ok()) co_return freed.status();
    run.result.free_pages += *freed;
    auto nobodys = co_await TakeAndRetire(op, run, holdings.nobodys);
    if (!nobodys.ok()) co_return nobodys.status();
    run.result.free_pages += *nobodys;
    auto unused = co_await TakeAndRetire(op, run, holdings.unused_pages);
    if (!unused.ok()) co_return unused.status();
    run.result.unused_pages += *unused;
    status = co_await ReturnGivenUp(op, run, holdings);
    if (status.ok()) status = co_await ReturnExtents(op, run, layout);
    // The chunks last: as long as they name the dead one, so does what is in them.
    if (status.ok()) status = co_await dsm::ReturnChunks(op, layout, holdings);
    if (!status.ok()) co_return status;
    run.result.chunks += holdings.chunks.size();
    run.result.redo_areas += holdings.redo_areas;
    run.Tell("memory server " + std::to_string(layout.server) + " is done");
  }
  co_return Status::Ok();
}

/// Whatever word it had locked it with: it changes no more, and nobody is given it again.
Task<Status> UnlockCatalogOf(OpContext& op, const MemberIdentity& dead) {
  uint64_t word = 0;
  Batch batch(dsm::kCatalogServer);
  batch.ReadWord(dsm::kCatalogOffset, &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  const LockWord lock = LockWord::Decode(word);
  if (lock.state != LockWord::State::kLocked || lock.owner != dead.id ||
      lock.incarnation != dead.short_incarnation()) {
    co_return Status::Ok();
  }
  auto swapped = co_await SwapCatalogWord(op, dsm::kCatalogOffset, word, dsm::kUnlockedWord);
  co_return swapped.status();
}

/// The part that runs under the claim.
Task<Status> RecoverClaimed(OpContext& op, MemberRun& run) {
  const uint64_t member_offset = dsm::kMembersOffset + run.dead.id * uint64_t{8};
  uint64_t member_word = 0;
  Batch batch(dsm::kCatalogServer);
  batch.ReadWord(member_offset, &member_word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  const uint64_t live = MemberWord{true, run.dead.incarnation}.Encode();
  if (member_word != live) co_return Status::Ok();
  run.result.was_member = true;
  status = co_await UnlockCatalogOf(op, run.dead);
  if (!status.ok()) co_return status;
  status = co_await OpenTrees(op, run);
  if (!status.ok()) co_return status;
  std::vector<BlinkTree*> trees;
  for (const auto& tree : run.trees) trees.push_back(tree.get());
  auto locks = co_await RecoverLocks(op, *run.pool, trees, run.dead);
  if (!locks.ok()) co_return locks.status();
  run.result.locks = *locks;
  run.Tell(std::to_string(*locks) + " locks are taken over");
  status = co_await ReturnHoldings(op, run);
  if (!status.ok()) co_return status;
  auto swapped = co_await SwapCatalogWord(op, member_offset, live,
                                          MemberWord{false, run.dead.incarnation}.Encode());
  co_return swapped.status();
}

}  // namespace

Task<Result<MemberRecovered>> RecoverMember(OpContext& op, dsm::Pool& pool, MemberIdentity dead,
                                            RecoverMemberOptions options) {
  if (pool.self().id == 0) {
    co_return Status::InvalidArgument("an observer of the pool recovers nobody: join as a member");
  }
  if (dead.id == 0 || dead == pool.self()) {
    co_return Status::InvalidArgument(dead.ToString() + " cannot be recovered by " +
                                      pool.self().ToString());
  }
  auto not_fenced = co_await FirstNotFenced(op, pool, dead.id, dead.short_incarnation());
  if (!not_fenced.ok()) co_return not_fenced.status();
  if (*not_fenced) {
    co_return Status::Unavailable("memory server " + std::to_string(**not_fenced) +
                                  " has not cut off " + dead.ToString() +
                                  ": it may be alive; have it cut off first");
  }
  MemberRun run{.pool = &pool, .dead = dead, .options = &options};
  Status claimed = co_await Claim(op, run);
  if (!claimed.ok()) co_return claimed;
  Status status = co_await RecoverClaimed(op, run);
  for (const auto& tree : run.trees) {  // locks that connections broke under are known to it alone
    Status settled = co_await tree->SettleLocks(op);
    if (status.ok()) status = std::move(settled);
  }
  Status released = co_await ReleaseClaim(op, run);
  // What was taken stands in this member's name, as the claim does.
  if (!status.ok() || !released.ok()) pool.allocator().GiveUp();
  if (!status.ok()) co_return status;
  if (!released.ok()) co_return released;
  co_return run.result;
}

}  // namespace farleaf::index
