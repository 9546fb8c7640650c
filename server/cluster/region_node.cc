#include "server/cluster/region_node.h"

#include <utility>

#include "dsm/base/log.h"

namespace farleaf::server::cluster {

using membership::StoredRegion;
using membership::Watch;

namespace {

/// Between looks at the region's entry, if nothing tells of a change.
constexpr uint64_t kRegionLookNs = kNsPerSecond;
/// Behind a failure.
constexpr uint64_t kRegionRetryNs = 100 * kNsPerMs;
constexpr uint64_t kLeaseLookNs = 5 * kNsPerMs;
/// Who was excluded is to be filled again soon, with what it has kept. Behind this it was sent away.
constexpr uint64_t kKeptNs = 600 * kNsPerSecond;

}  // namespace

RegionNode::RegionNode(RegionDeps deps)
    : deps_(std::move(deps)), regions_(deps_.session), backup_(&deps_) {}

RegionNode::~RegionNode() = default;

void RegionNode::Abandon() {
  if (primary_) primary_->Abandon();
}

void RegionNode::SetPrimary(std::unique_ptr<RegionPrimary> primary) {
  std::lock_guard lock(mutex_);
  primary_ = std::move(primary);
}

dsm::Task<Status> RegionNode::Run(Worker& worker) {
  Status status;
  while (!stopping_ && status.code() != StatusCode::kFenced) {
    const uint64_t seen = deps_.session->ChangeCount("/");
    status = co_await Look(worker);
    if (status.ok()) {
      const bool has_closed = role_.load() == Role::kPrimary && !primary_;
      if (has_closed) continue;  // to see what it is by now
      (void)co_await deps_.session->AwaitChange(worker, "/", seen, kRegionLookNs);
    } else if (status.code() != StatusCode::kFenced) {
      FARLEAF_LOG(warn, "{}: {}", NameOf(deps_.region), status.ToString());
      co_await worker.Sleep(kRegionRetryNs);
    }
  }
  Status ended = co_await End(worker, status);
  co_return ended;
}

dsm::Task<Status> RegionNode::End(Worker& worker, Status why) {
  const bool fenced = why.code() == StatusCode::kFenced;
  Status ended;
  written_.unsettled->Stop();  // also what primaries before this one have left
  if (primary_ && fenced) co_await primary_->GiveUp(worker);
  if (primary_ && !fenced) ended = co_await CloseWithinLease(worker);
  Status backup_ended = co_await backup_.End(worker, RegionBackup::Why::kLifeEnds);
  if (ended.ok()) ended = std::move(backup_ended);
  if (!ended.ok()) FARLEAF_LOG(error, "{}: {}", NameOf(deps_.region), ended.ToString());
  if (fenced) co_return why;
  co_return ended;
}

// While the membership is away, who does not answer cannot be taken out; behind the lease that is of no use to anybody: somebody else
// may be the primary, with what the others hold.
dsm::Task<Status> RegionNode::CloseWithinLease(Worker& worker) {
  bool closes = true, watched = true;
  worker.Spawn(StopBehindLease(worker, &closes, &watched));
  Status closed = co_await primary_->Close(worker);
  closes = false;
  while (watched) co_await worker.Sleep(kLeaseLookNs);
  co_return closed;
}

dsm::Task<void> RegionNode::StopBehindLease(Worker& worker, const bool* closes, bool* watched) {
  while (*closes && deps_.clock->NowNs() < deps_.session->lease_until_ns()) {
    co_await worker.Sleep(kLeaseLookNs);
  }
  if (*closes) primary_->Stop();
  *watched = false;
}

dsm::Task<Status> RegionNode::Look(Worker& worker) {
  auto stored = co_await regions_.Get(worker, deps_.region, Watch::kChanges);
  if (stored.status().code() == StatusCode::kNotFound) co_return Status::Ok();
  if (!stored.ok()) co_return stored.status();
  const RegionEntry& region = stored->region;
  const NodeId self = deps_.self.id;
  Status status;
  if (region.primary == self) {
    status = co_await LookAsPrimary(worker, std::move(*stored));
    co_return status;
  }
  if (primary_) {
    co_return Status::Fenced(NameOf(deps_.region) + ": node " + std::to_string(region.primary) +
                             " is the primary, and not this one any more");
  }
  if (Contains(region.in_sync, self) || Contains(region.filling, self)) {
    role_ = Role::kBackup;
    nothing_since_ns_.reset();
    if (region.state == membership::RegionState::kHeadless && Contains(region.in_sync, self)) {
      status = co_await backup_.Tell(worker);
    } else {
      status = co_await backup_.Follow(worker, region);
    }
    co_return status;
  }
  // Its primary has excluded it, perhaps, and is to fill it again: nothing is cut off, and what is here is kept for that.
  role_ = Role::kNothing;
  const uint64_t now_ns = deps_.clock->NowNs();
  if (!nothing_since_ns_) nothing_since_ns_ = now_ns;
  if (!backup_.is_open() || now_ns < *nothing_since_ns_ + kKeptNs) co_return Status::Ok();
  status = co_await backup_.End(worker, RegionBackup::Why::kSentAway);
  if (status.ok()) status = deps_.remove();
  co_return status;
}

dsm::Task<Status> RegionNode::LookAsPrimary(Worker& worker, StoredRegion seen) {
  role_ = Role::kPrimary;
  Status status;
  if (!primary_) {
    // What is in memory is on the disk before nobody else is in sync: so that this node alone suffices from then on, also when it comes back.
    status = co_await backup_.End(worker, RegionBackup::Why::kPromoted);
    if (!status.ok()) co_return status;
    auto beginning = std::make_unique<RegionPrimary>(&deps_, &written_);
    status = co_await beginning->TakeAlone(worker, &seen);
    if (!status.ok()) co_return status;
    SetPrimary(std::move(beginning));
    status = co_await primary_->Open(worker, seen.region);
    if (primary_->store() == nullptr) SetPrimary(nullptr);
    if (!status.ok()) co_return status;
  }
  status = co_await primary_->Look(worker, std::move(seen));
  if (primary_->closed()) SetPrimary(nullptr);
  co_return status;
}

}  // namespace farleaf::server::cluster
