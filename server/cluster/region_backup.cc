#include "server/cluster/region_backup.h"

#include <utility>

#include "dsm/base/log.h"
#include "server/cluster/held.h"
#include "server/cluster/region_views.h"

namespace farleaf::server::cluster {

using index::lsm::StoreCopy;
using membership::NodeEntry;
using membership::Watch;
using replication::BackupRegion;

namespace {

/// A backup that is to be filled, and is not being filled for so long, makes another offer.
constexpr uint64_t kOfferAgainNs = 3 * kNsPerSecond;
constexpr uint64_t kEndPauseNs = kNsPerMs;

}  // namespace

dsm::Task<Result<std::optional<NodeEntry>>> FindNode(dsm::Worker& worker,
                                                     membership::RegionStore& regions, NodeId id) {
  auto nodes = co_await regions.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  for (NodeEntry& node : *nodes) {
    if (node.id == id) co_return std::optional(std::move(node));
  }
  co_return std::optional<NodeEntry>();
}

RegionBackup::RegionBackup(const RegionDeps* deps)
    : deps_(*deps), regions_(deps->session), random_(deps->seed) {}

dsm::Task<Status> RegionBackup::Open(Worker& worker) {
  if (!area_) {
    auto taken = deps_.memory.areas->Take(deps_.memory.layout.bytes(), replication::kAreaAlignment);
    if (!taken.ok()) {
      co_return taken.status().WithContext("memory for the log buffers of " + NameOf(deps_.region));
    }
    area_ = *taken;
  }
  auto storage = deps_.storage();
  if (!storage.ok()) co_return storage.status();
  const BackupRegion::Deps deps{.storage = *storage,
                                .area = deps_.memory.bytes(*area_),
                                .layout = deps_.memory.layout,
                                .channel = deps_.channel,
                                .reads = deps_.reads,
                                .checks = deps_.checks};
  auto opened = co_await BackupRegion::Open(worker, deps);
  if (!opened.ok()) co_return opened.status();
  backup_ = std::move(*opened);
  serving_ = true;
  worker.Spawn(Serve(worker));
  co_return Status::Ok();
}

dsm::Task<void> RegionBackup::Serve(Worker& worker) {
  co_await backup_->Serve(worker);
  serving_ = false;
}

// A life that is announced still, and is not the primary any more, has said so itself, and had ended what it did here. It may be the primary of other
// regions that this node has copies of.
dsm::Task<Status> RegionBackup::CutOffLast(Worker& worker) {
  if (last_primary_.id == membership::kNoNode) co_return Status::Ok();
  auto node = co_await FindNode(worker, regions_, last_primary_.id);
  if (!node.ok()) co_return node.status();
  const bool lives = *node && (*node)->incarnation == last_primary_.incarnation;
  if (!lives) FARLEAF_CO_RETURN_IF_ERROR(deps_.memory.cut_off(last_primary_));
  last_primary_ = {};
  co_return Status::Ok();
}

dsm::Task<Status> RegionBackup::Follow(Worker& worker, const membership::RegionEntry& region) {
  if (std::exchange(told_, false)) {
    Status withdrawn = co_await WithdrawHeld(worker, *deps_.session, deps_.region, deps_.self.id);
    if (!withdrawn.ok()) co_return withdrawn;
  }
  if (backup_ && !serving_) {  // its end was begun, and has failed
    Status ended = co_await End(worker, Why::kSentAway);
    if (!ended.ok()) co_return ended;
  }
  if (!backup_) {
    Status opened = co_await Open(worker);
    if (!opened.ok()) co_return opened;
  }
  if (!Contains(region.filling, deps_.self.id)) {
    offered_
        .reset();  // it has served its end: whoever is to fill this copy again needs another one
    co_return Status::Ok();
  }
  auto primary = co_await FindNode(worker, regions_, region.primary);
  if (!primary.ok()) co_return primary.status();
  if (!*primary) co_return Status::Ok();
  const bool stands = offered_ && offered_->primary == (*primary)->id &&
                      offered_->primary_life == (*primary)->incarnation &&
                      offered_->end == region.end;
  if (stands && deps_.clock->NowNs() < offered_ns_ + kOfferAgainNs) co_return Status::Ok();
  // Who is filling it is left to it: what it does is seen by its messages.
  const uint64_t messages = backup_->statistics().messages;
  if (stands && messages != messages_seen_) {
    messages_seen_ = messages;
    offered_ns_ = deps_.clock->NowNs();
    co_return Status::Ok();
  }
  Status offered = co_await MakeOffer(worker, region, **primary);
  co_return offered;
}

dsm::Task<Status> RegionBackup::MakeOffer(Worker& worker, const membership::RegionEntry& region,
                                          const NodeEntry& primary) {
  const dsm::MemberIdentity life{primary.id, primary.incarnation};
  if (last_primary_ != life) {
    Status cut = co_await CutOffLast(worker);
    if (!cut.ok()) co_return cut;
  }
  Status withdrawn = co_await Withdraw(worker);
  if (!withdrawn.ok()) co_return withdrawn;
  Offer offer{.primary = primary.id,
              .primary_life = primary.incarnation,
              .life = deps_.self.incarnation,
              .server = deps_.memory.server,
              .area = area_->offset,
              .token = random_.Next() | 1,
              .end = region.end};
  co_await CloseToReaders(worker);
  co_await backup_->Expect(offer.token);
  OpenToReaders(region);
  last_primary_ = life;
  const membership::CreateOptions options{.lifetime = membership::Lifetime::kEphemeral};
  auto created = co_await deps_.session->Create(worker, OfferPath(deps_.region, deps_.self.id),
                                                EncodeOffer(offer), options);
  if (!created.ok()) co_return created.status();
  offered_ = offer;
  offered_ns_ = deps_.clock->NowNs();
  messages_seen_ = backup_->statistics().messages;
  co_return Status::Ok();
}

// What is there of an earlier filling may be of more keys, and of none that a region of this number does not have.
void RegionBackup::OpenToReaders(const membership::RegionEntry& region) {
  const auto reader = backup_->reader();
  if (!reader) return;
  ServedCopy served;
  served.start = region.start;
  served.end = region.end;
  served.reader = reader;
  served.staleness_ns = [backup = backup_.get()] { return backup->staleness_ns(); };
  deps_.gates->copy.Open(std::move(served));
}

dsm::Task<void> RegionBackup::CloseToReaders(Worker& worker) {
  deps_.gates->copy.Close();
  while (!deps_.gates->copy.idle()) co_await worker.Sleep(kEndPauseNs);
}

// A copy that is not whole holds nothing, nor does a damaged one: the others do not wait for it.
dsm::Task<Status> RegionBackup::Tell(Worker& worker) {
  if (told_) co_return Status::Ok();
  Held held{.region = deps_.region, .node = deps_.self.id, .life = deps_.self.incarnation};
  Status looked;
  if (!backup_) looked = co_await Open(worker);
  if (looked.ok() && backup_->phase() == StoreCopy::Phase::kLeft) {
    auto through = co_await backup_->Held(worker);
    looked = through.status();
    if (through.ok()) held.through = *through;
  }
  if (!looked.ok() && looked.code() != StatusCode::kCorruption) co_return looked;
  if (!looked.ok()) FARLEAF_LOG(error, "{}: {}", NameOf(deps_.region), looked.ToString());
  Status told = co_await TellHeld(worker, *deps_.session, held);
  told_ = told.ok();
  co_return told;
}

dsm::Task<Status> RegionBackup::Withdraw(Worker& worker) {
  offered_.reset();
  Status removed =
      co_await deps_.session->Remove(worker, OfferPath(deps_.region, deps_.self.id), std::nullopt);
  if (removed.code() == StatusCode::kNotFound) removed = Status::Ok();
  co_return removed;
}

dsm::Task<Status> RegionBackup::End(Worker& worker, Why why) {
  if (!backup_) co_return Status::Ok();
  co_await CloseToReaders(worker);
  backup_->Stop();
  while (serving_) co_await worker.Sleep(kEndPauseNs);
  Status cut;
  if (why != Why::kLifeEnds) {
    cut = co_await CutOffLast(worker);
  } else if (last_primary_.id != membership::kNoNode) {
    cut = deps_.memory.cut_off(last_primary_);
  }
  if (!cut.ok()) co_return cut;
  // One that was left by an earlier life may lack edits of others, who have given numbers with them.
  const StoreCopy::Phase phase = backup_->phase();
  const bool left = phase == StoreCopy::Phase::kLeft && why == Why::kPromoted;
  Status finished;
  if (why != Why::kSentAway && (phase == StoreCopy::Phase::kFollowing || left)) {
    finished = co_await backup_->Promote(worker);
  }
  // What is not on the disk yet stays in memory for another try: without it nothing may be begun with the directory.
  if (!finished.ok() && why == Why::kPromoted) co_return finished;
  backup_ = nullptr;
  if (deps_.session->state() != membership::SessionState::kExpired) {
    Status withdrawn = co_await Withdraw(worker);
    if (finished.ok() && withdrawn.code() != StatusCode::kFenced) finished = withdrawn;
  }
  co_return finished;
}

}  // namespace farleaf::server::cluster
