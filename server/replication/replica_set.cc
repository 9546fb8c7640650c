#include "server/replication/replica_set.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/together.h"

namespace farleaf::server::replication {

using index::lsm::LogKind;
using index::lsm::MirrorPiece;
using index::storage::SegmentId;

namespace {

/// Between two tries to reach a memory server again.
constexpr uint64_t kSettleNs = 50 * kNsPerMs;

}  // namespace

std::vector<NodeId> ReplicaSet::members() const {
  std::vector<NodeId> nodes;
  for (const Link& link : links()) nodes.push_back(link->node());
  return nodes;
}

Status ReplicaSet::EnoughCopies() const {
  const size_t in_sync = 1 + copies_.load(std::memory_order_acquire);
  if (in_sync >= min_in_sync_) return Status::Ok();
  return Status::Unavailable("nodes in sync: " + std::to_string(in_sync) + " of the " +
                             std::to_string(min_in_sync_) +
                             " that are to have a write (--min-in-sync)");
}

BackupLink::Counts ReplicaSet::sent() const {
  std::lock_guard lock(mutex_);
  BackupLink::Counts sent = sent_to_lost_;
  for (const Link& link : links_) sent += link->counts();
  return sent;
}

dsm::Task<Status> ReplicaSet::Exclude(Worker& worker, Link link, Status why) {
  const index::lsm::CoroutineMutex::Held held = co_await changing_.Lock(worker);
  const Links now = links();
  if (std::ranges::find(now, link) == now.end()) co_return Status::Ok();
  FARLEAF_LOG(warn, "{}: it is excluded", why.ToString());
  NoteIncluded(link, false);  // whoever acknowledges from here on does not count on it
  auto members = co_await views_->Exclude(worker, link->node());
  if (!members.ok()) co_return members.status();
  NoteMembers(*members);
  link->port().Stop();
  std::lock_guard lock(mutex_);
  std::erase(links_, link);
  sent_to_lost_ += link->counts();
  ++counts_.excluded;
  co_return Status::Ok();
}

dsm::Task<Status> ReplicaSet::OfEach(Worker& worker, const OfOne& of_one) {
  const Links now = links();
  std::vector<Status> statuses(now.size());
  dsm::Together together(worker);
  for (size_t i = 0; i < now.size(); ++i) together.Start(of_one(*now[i]), &statuses[i]);
  co_await together.All();
  for (size_t i = 0; i < now.size(); ++i) {
    if (statuses[i].ok()) continue;
    Status excluded = co_await Exclude(worker, now[i], statuses[i]);
    if (!excluded.ok()) co_return excluded;
  }
  co_return Status::Ok();
}

dsm::Task<Status> ReplicaSet::Open(Worker& worker, LogKind log, SegmentId segment) {
  const OfOne open = [&](BackupLink& link) { return link.Open(worker, log, segment); };
  Status opened = co_await OfEach(worker, open);
  co_return opened;
}

// Buffers of those that were added since the segments were opened.
dsm::Task<Status> ReplicaSet::PrepareAppend(Worker& worker, std::span<const MirrorPiece> pieces) {
  const Links now = links();
  for (const Link& link : now) {
    if (link->HasBuffers(pieces)) continue;
    for (const MirrorPiece& piece : pieces) {
      Status opened = co_await link->Open(worker, piece.log, piece.segment);
      if (opened.ok()) continue;
      Status excluded = co_await Exclude(worker, link, std::move(opened));
      if (!excluded.ok()) co_return excluded;
      break;
    }
  }
  co_return Status::Ok();
}

dsm::Task<Status> ReplicaSet::Append(Worker& worker, std::span<const MirrorPiece> pieces) {
  // Nobody was added since it was prepared: that happens while nothing is on its way (LogMirror::FillFromMemory).
  const Links now = links();
  if (now.empty()) co_return Status::Ok();
  std::vector<dsm::Batch> batches;
  batches.reserve(now.size());
  std::deque<uint64_t> words;
  for (const Link& link : now) {
    dsm::Batch& batch = batches.emplace_back(link->port().address().server);
    link->AddWrites(pieces, &batch, &words);
  }
  dsm::FabricCounts verbs;
  Status written = co_await worker.RoundTrip(std::span(batches), verbs);
  {
    std::lock_guard lock(mutex_);
    ++counts_.appends;
    counts_.verbs += verbs;
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (batches[i].status().ok()) {
      now[i]->Written(pieces);
      continue;
    }
    if (batches[i].status().code() == StatusCode::kUnknown) {
      unsettled_->Add(now[i]->port().address().server);
      worker.Spawn(Settle(worker, now[i], unsettled_));
    }
    written = co_await Exclude(worker, now[i], batches[i].status());
    if (!written.ok()) co_return written;
  }
  co_return Status::Ok();
}

// A server that was restarted has other memory: there it never succeeds, until it is forgotten.
dsm::Task<void> ReplicaSet::Settle(Worker& worker, Link link,
                                   std::shared_ptr<UnsettledMemory> unsettled) {
  const ChannelAddress address = link->port().address();
  while (!unsettled->stopped() && unsettled->Contains(address.server)) {
    co_await worker.Sleep(kSettleNs);
    uint64_t word = 0;
    dsm::Batch look(address.server);
    look.ReadWord(address.area, &word);
    dsm::FabricCounts counts;
    const Status reached = co_await worker.RoundTrip(look, counts);
    if (!reached.ok()) continue;
    unsettled->Settle(address.server);
    co_return;
  }
}

dsm::Task<Status> ReplicaSet::Seal(Worker& worker, LogKind log, SegmentId segment, uint32_t used) {
  const OfOne seal = [&](BackupLink& link) { return link.Seal(worker, log, segment, used); };
  Status sealed = co_await OfEach(worker, seal);
  co_return sealed;
}

dsm::Task<Status> ReplicaSet::Sync(Worker& worker, index::lsm::SyncReach reach) {
  const OfOne sync = [&](BackupLink& link) { return link.Sync(worker, reach); };
  Status synced = co_await OfEach(worker, sync);
  co_return synced;
}

dsm::Task<Status> ReplicaSet::WriteTable(Worker& worker, SegmentId segment, uint32_t offset,
                                         std::span<const std::byte> bytes) {
  if (mode_ == IndexMode::kBuild) co_return Status::Ok();
  const OfOne write = [&](BackupLink& link) {
    return link.WriteTable(worker, segment, offset, bytes);
  };
  Status written = co_await OfEach(worker, write);
  co_return written;
}

dsm::Task<Status> ReplicaSet::DropTables(Worker& worker, std::span<const SegmentId> segments) {
  const OfOne drop = [&](BackupLink& link) { return link.DropTables(worker, segments); };
  Status dropped = co_await OfEach(worker, drop);
  co_return dropped;
}

namespace {

/// What whoever builds tables for himself has to know.
index::lsm::StateEdit OfLogs(const index::lsm::StateEdit& edit) {
  index::lsm::StateEdit of_logs;
  of_logs.recovery_granted = edit.recovery_granted;
  of_logs.recovery_dropped = edit.recovery_dropped;
  of_logs.values_granted = edit.values_granted;
  of_logs.values_dropped = edit.values_dropped;
  return of_logs;
}

bool IsOfNothing(const index::lsm::StateEdit& of_logs) {
  return of_logs.recovery_granted.empty() && of_logs.recovery_dropped.empty() &&
         of_logs.values_granted.empty() && of_logs.values_dropped.empty();
}

}  // namespace

dsm::Task<Status> ReplicaSet::Commit(Worker& worker, const index::lsm::StateEdit& edit) {
  if (mode_ == IndexMode::kBuild) {
    const index::lsm::StateEdit of_logs = OfLogs(edit);
    if (IsOfNothing(of_logs)) co_return Status::Ok();
    const OfOne tell = [&](BackupLink& link) { return link.Commit(worker, of_logs, *store_); };
    Status told = co_await OfEach(worker, tell);
    co_return told;
  }
  const OfOne commit = [&](BackupLink& link) { return link.Commit(worker, edit, *store_); };
  Status committed = co_await OfEach(worker, commit);
  co_return committed;
}

// A stamp counts with the sequence of a moment at which nobody else had acknowledged anything yet: whoever is named in this one's place is
// so behind the end of its lease, which is looked at behind the sequence.
dsm::Task<void> ReplicaSet::Stamp(Worker& worker) {
  const BackupLink::LastSequence last = [this]() -> Result<index::lsm::Sequence> {
    const index::lsm::Sequence sequence = store_->last_sequence();
    const Status alone = MayAnswer();
    if (!alone.ok()) return alone;
    return sequence;
  };
  const OfOne stamp = [&](BackupLink& link) { return link.Stamp(worker, last); };
  Status asked = co_await OfEach(worker, stamp);
  (void)asked;  // whoever acknowledges finds out for himself that a member is lost
}

namespace {

/// Fills one link, and makes it count with the end of Install, which begins if `may_join` says so, while no Append is on its way.
class Joining final : public index::lsm::CopySink {
 public:
  using MayJoin = std::function<Status()>;
  using Done = std::function<void()>;
  Joining(BackupLink* link, MayJoin may_join, Done done)
      : link_(link), may_join_(std::move(may_join)), done_(std::move(done)) {}

  dsm::Task<Result<std::set<SegmentId>>> Inventory(dsm::Worker& worker) override {
    return link_->Inventory(worker);
  }
  dsm::Task<Status> Write(dsm::Worker& worker, SegmentId segment, uint32_t offset,
                          std::span<const std::byte> bytes, bool last) override {
    return link_->Write(worker, segment, offset, bytes, last);
  }
  dsm::Task<Status> WriteOpen(dsm::Worker& worker, const MirrorPiece& piece) override {
    return link_->WriteOpen(worker, piece);
  }
  dsm::Task<Status> Install(dsm::Worker& worker, const index::lsm::StoreState& state) override {
    FARLEAF_CO_RETURN_IF_ERROR(may_join_());
    Status installed = co_await link_->Install(worker, state);
    if (installed.ok()) done_();
    co_return installed;
  }

 private:
  BackupLink* const link_;
  const MayJoin may_join_;
  const Done done_;
};

}  // namespace

// It counts as soon as it holds all: in the same moment, for the store, as Install. The view comes behind that: whoever is in
// it has everything.
dsm::Task<Status> ReplicaSet::Add(Worker& worker, std::shared_ptr<BackupLink> link) {
  const Joining::Done join = [this, link] {
    std::lock_guard lock(mutex_);
    links_.push_back(link);
  };
  const Joining::MayJoin settled = [this, link] {
    if (!unsettled_->Contains(link->port().address().server)) return Status::Ok();
    return Status::Unavailable("node " + std::to_string(link->node()) +
                               ": what was written to it before may arrive yet");
  };
  {
    std::lock_guard lock(mutex_);
    std::erase_if(added_, [](const auto& each) { return each.expired(); });
    added_.push_back(link);
  }
  Joining joining(link.get(), settled, join);
  Status filled = settled();
  if (filled.ok()) filled = co_await store_->FillCopy(worker, joining);
  if (!filled.ok()) {
    // Its open segments went to buffers, too.
    if (filled.code() == StatusCode::kUnknown) {
      unsettled_->Add(link->port().address().server);
      worker.Spawn(Settle(worker, link, unsettled_));
    }
    link->port().Stop();
    co_return filled;
  }
  Status included = co_await Include(worker, link);
  if (included.ok()) co_return included;
  Status excluded = co_await Exclude(worker, link, included);
  (void)excluded;  // the first failure is what it is about
  co_return included;
}

// In one line with those who exclude: a view that takes in what was excluded meanwhile would have a member that lacks acknowledged writes.
dsm::Task<Status> ReplicaSet::Include(Worker& worker, Link link) {
  const index::lsm::CoroutineMutex::Held held = co_await changing_.Lock(worker);
  const Links now = links();
  if (std::ranges::find(now, link) == now.end()) {
    co_return Status::Unavailable("node " + std::to_string(link->node()) +
                                  ": it was excluded before it was included");
  }
  Status included = co_await views_->Include(worker, link->node());
  if (included.ok()) NoteIncluded(link, true);
  co_return included;
}

void ReplicaSet::NoteIncluded(const Link& link, bool included) {
  std::lock_guard lock(mutex_);
  std::erase(included_, link);
  if (included) included_.push_back(link);
  copies_.store(included_.size(), std::memory_order_release);
}

void ReplicaSet::NoteMembers(const std::vector<NodeId>& members) {
  std::lock_guard lock(mutex_);
  std::erase_if(included_, [&members](const Link& link) {
    return std::ranges::find(members, link->node()) == members.end();
  });
  copies_.store(included_.size(), std::memory_order_release);
}

dsm::Task<Status> ReplicaSet::Remove(Worker& worker, NodeId node) {
  for (const Link& link : links()) {
    if (link->node() != node) continue;
    Status removed = co_await Exclude(
        worker, link, Status::Unavailable("node " + std::to_string(node) + " leaves"));
    co_return removed;
  }
  co_return Status::Ok();
}

void ReplicaSet::Abandon() {
  changing_.Abandon();
  std::lock_guard lock(mutex_);
  for (const std::weak_ptr<BackupLink>& each : added_) {
    if (const Link link = each.lock()) link->port().Abandon();
  }
}

}  // namespace farleaf::server::replication
