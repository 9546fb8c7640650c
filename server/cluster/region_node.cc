#include "server/cluster/region_node.h"

#include <algorithm>
#include <utility>

#include "dsm/base/log.h"
#include "server/membership/counters.h"

namespace farleaf::server::cluster {

using index::lsm::StoreCopy;
using membership::NodeEntry;
using membership::Watch;
using replication::BackupLink;
using replication::BackupRegion;
using replication::Channel;
using replication::ChannelAddress;
using replication::ChannelOptions;
using replication::ChannelPort;
using replication::ReplicaSet;

namespace {

/// Between looks at the region's entry, if nothing tells of a change.
constexpr uint64_t kRegionLookNs = kNsPerSecond;
/// Behind a failure.
constexpr uint64_t kRegionRetryNs = 100 * kNsPerMs;
/// A backup that is to be filled, and is not being filled for so long, makes another offer.
constexpr uint64_t kOfferAgainNs = 3 * kNsPerSecond;
constexpr uint64_t kPauseNs = kNsPerMs;

std::string NameOf(RegionId region) {
  return "region " + std::to_string(static_cast<uint32_t>(region));
}

}  // namespace

RegionNode::RegionNode(Deps deps)
    : deps_(std::move(deps)),
      regions_(deps_.session),
      random_(deps_.seed),
      views_(deps_.session, deps_.clock, deps_.region, deps_.self.id) {}

RegionNode::~RegionNode() = default;

void RegionNode::Stop() {
  stopping_.store(true);
  views_.Stop();
  if (replicas_) replicas_->Stop();
}

void RegionNode::Abandon() {
  if (replicas_) replicas_->Abandon();
  for (const auto& port : ports_) port->Abandon();
  if (store_) store_->Abandon();
}

dsm::Task<Result<std::optional<NodeEntry>>> RegionNode::FindNode(Worker& worker, NodeId id) {
  auto nodes = co_await regions_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  for (NodeEntry& node : *nodes) {
    if (node.id == id) co_return std::optional(std::move(node));
  }
  co_return std::optional<NodeEntry>();
}

// What was in this node's memory only is gone. As long as somebody else is in sync, he has it, and this life begins with nothing.
dsm::Task<Status> RegionNode::LeaveOldLife(Worker& worker) {
  const NodeId self = deps_.self.id;
  for (;;) {
    auto seen = co_await regions_.Get(worker, deps_.region, Watch::kNothing);
    if (seen.status().code() == StatusCode::kNotFound) co_return Status::Ok();
    if (!seen.ok()) co_return seen.status();
    auto nodes = co_await regions_.Nodes(worker, Watch::kNothing);
    if (!nodes.ok()) co_return nodes.status();
    RegionEntry changed = seen->region;
    if (changed.primary == self) {
      changed.primary = membership::kNoNode;
      changed.state = membership::RegionState::kHeadless;
    }
    Erase(&changed.filling, self);
    const bool others = std::ranges::any_of(*nodes, [&](const NodeEntry& node) {
      return node.id != self && Contains(seen->region.in_sync, node.id);
    });
    if (others) Erase(&changed.in_sync, self);
    if (changed == seen->region) co_return Status::Ok();
    auto committed = co_await regions_.ChangeView(worker, *seen, changed);
    if (committed.ok()) co_return Status::Ok();
    if (committed.status().code() != StatusCode::kVersionMismatch) co_return committed.status();
  }
}

dsm::Task<Status> RegionNode::Run(Worker& worker) {
  Status status;
  while (!stopping_ && status.code() != StatusCode::kFenced) {
    const uint64_t seen = deps_.session->ChangeCount("/");
    status = co_await Look(worker);
    if (status.ok()) {
      (void)co_await deps_.session->AwaitChange(worker, "/", seen, kRegionLookNs);
    } else if (status.code() != StatusCode::kFenced) {
      FARLEAF_LOG(warn, "{}: {}", NameOf(deps_.region), status.ToString());
      co_await worker.Sleep(kRegionRetryNs);
    }
  }
  Stop();
  for (const auto& port : ports_) port->Stop();
  while (!fills_.empty()) co_await worker.Sleep(kPauseNs);
  Status ended = co_await EndBackup(worker);
  if (!ended.ok()) FARLEAF_LOG(error, "{}: {}", NameOf(deps_.region), ended.ToString());
  if (status.code() == StatusCode::kFenced) co_return status;
  co_return ended;
}

dsm::Task<Status> RegionNode::Look(Worker& worker) {
  auto stored = co_await regions_.Get(worker, deps_.region, Watch::kChanges);
  if (stored.status().code() == StatusCode::kNotFound) co_return Status::Ok();
  if (!stored.ok()) co_return stored.status();
  const RegionEntry& region = stored->region;
  const NodeId self = deps_.self.id;
  Status status;
  if (region.primary == self) {
    if (!store_) status = co_await BecomePrimary(worker);
    if (status.ok()) status = co_await FillBackups(worker, region);
    co_return status;
  }
  if (store_) {
    co_return Status::Fenced(NameOf(deps_.region) + ": node " + std::to_string(region.primary) +
                             " is the primary, and not this one any more");
  }
  if (Contains(region.in_sync, self) || Contains(region.filling, self)) {
    status = co_await Follow(worker, region);
    co_return status;
  }
  // Its primary has excluded it, perhaps, and is to fill it again: nothing is cut off, and what is here is kept for that.
  role_ = Role::kNothing;
  co_return Status::Ok();
}

// ---- A backup

dsm::Task<Status> RegionNode::OpenBackup(Worker& worker) {
  const BackupRegion::Deps deps{.storage = deps_.storage,
                                .area = deps_.area,
                                .layout = deps_.layout,
                                .channel = deps_.channel};
  auto opened = co_await BackupRegion::Open(worker, deps);
  if (!opened.ok()) co_return opened.status();
  backup_ = std::move(*opened);
  serving_backup_ = true;
  worker.Spawn(ServeBackup(worker));
  co_return Status::Ok();
}

dsm::Task<void> RegionNode::ServeBackup(Worker& worker) {
  co_await backup_->Serve(worker);
  serving_backup_ = false;
}

Status RegionNode::CutOffLast() {
  if (last_primary_.id == membership::kNoNode) return Status::Ok();
  FARLEAF_RETURN_IF_ERROR(deps_.cut_off(last_primary_));
  last_primary_ = {};
  return Status::Ok();
}

dsm::Task<Status> RegionNode::Follow(Worker& worker, const RegionEntry& region) {
  role_ = Role::kBackup;
  if (!backup_) {
    Status opened = co_await OpenBackup(worker);
    if (!opened.ok()) co_return opened;
  }
  if (!Contains(region.filling, deps_.self.id)) co_return Status::Ok();
  auto primary = co_await FindNode(worker, region.primary);
  if (!primary.ok()) co_return primary.status();
  if (!*primary) co_return Status::Ok();
  const bool stands = offered_ && offered_->primary == (*primary)->id &&
                      offered_->primary_life == (*primary)->incarnation;
  if (stands && deps_.clock->NowNs() < offered_ns_ + kOfferAgainNs) co_return Status::Ok();
  // Who is filling it is left to it: what it does is seen by its messages.
  const uint64_t messages = backup_->statistics().messages;
  if (stands && messages != messages_seen_) {
    messages_seen_ = messages;
    offered_ns_ = deps_.clock->NowNs();
    co_return Status::Ok();
  }
  Status offered = co_await MakeOffer(worker, **primary);
  co_return offered;
}

dsm::Task<Status> RegionNode::MakeOffer(Worker& worker, const NodeEntry& primary) {
  const dsm::MemberIdentity life{primary.id, primary.incarnation};
  if (last_primary_ != life) FARLEAF_CO_RETURN_IF_ERROR(CutOffLast());
  Status withdrawn = co_await Withdraw(worker);
  if (!withdrawn.ok()) co_return withdrawn;
  Offer offer{.primary = primary.id,
              .primary_life = primary.incarnation,
              .life = deps_.self.incarnation,
              .server = deps_.server,
              .area = deps_.area_offset,
              .token = random_.Next() | 1};
  co_await backup_->Expect(offer.token);
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

dsm::Task<Status> RegionNode::Withdraw(Worker& worker) {
  offered_.reset();
  Status removed =
      co_await deps_.session->Remove(worker, OfferPath(deps_.region, deps_.self.id), std::nullopt);
  if (removed.code() == StatusCode::kNotFound) removed = Status::Ok();
  co_return removed;
}

// What is in its buffers goes to its disk: nothing of that is lost with this life.
dsm::Task<Status> RegionNode::EndBackup(Worker& worker) {
  if (!backup_) co_return Status::Ok();
  backup_->Stop();
  while (serving_backup_) co_await worker.Sleep(kPauseNs);
  FARLEAF_CO_RETURN_IF_ERROR(CutOffLast());
  Status finished;
  if (backup_->phase() == StoreCopy::Phase::kFollowing) {
    finished = co_await backup_->Promote(worker);
  }
  backup_ = nullptr;
  if (deps_.session->state() != membership::SessionState::kExpired) {
    Status withdrawn = co_await Withdraw(worker);
    if (finished.ok() && withdrawn.code() != StatusCode::kFenced) finished = withdrawn;
  }
  co_return finished;
}

// ---- The primary

dsm::Task<Status> RegionNode::BecomePrimary(Worker& worker) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  Status ready = co_await EndBackup(worker);
  if (!ready.ok()) co_return ready;
  if (!replicas_) {
    const auto may_answer = [this]() -> Status {
      if (deps_.clock->NowNs() < deps_.session->lease_until_ns()) return Status::Ok();
      return Status::Unavailable(NameOf(deps_.region) +
                                 ": the membership does not answer, and another node may serve it");
    };
    replicas_ = std::make_unique<ReplicaSet>(&views_, replication::IndexMode::kSend, may_answer);
  }
  auto opened = co_await deps_.open_store(worker, replicas_.get());
  if (!opened.ok()) co_return opened.status();
  store_ = std::move(*opened);
  replicas_->set_store(store_.get());
  FARLEAF_CO_RETURN_IF_ERROR(deps_.serve(store_.get()));
  role_ = Role::kPrimary;
  serving_.store(store_.get());
  FARLEAF_LOG(info, "{}: node {} is the primary, and serves after {} ms", NameOf(deps_.region),
              deps_.self.id, (deps_.clock->NowNs() - begun_ns) / kNsPerMs);
  co_return Status::Ok();
}

dsm::Task<Result<Offer>> RegionNode::ReadOffer(Worker& worker, NodeId backup) {
  const std::string path = OfferPath(deps_.region, backup);
  auto entry = co_await deps_.session->Get(worker, path, Watch::kChanges);
  if (!entry.ok()) co_return entry.status();
  co_return ParseOffer(path, AsBytes(entry->bytes));
}

dsm::Task<Status> RegionNode::FillBackups(Worker& worker, const RegionEntry& region) {
  for (const NodeId backup : region.filling) {
    if (fills_nobody_) break;
    if (fills_.contains(backup)) continue;
    auto offer = co_await ReadOffer(worker, backup);
    if (offer.status().code() == StatusCode::kNotFound) continue;
    if (!offer.ok()) co_return offer.status();
    const bool to_us =
        offer->primary == deps_.self.id && offer->primary_life == deps_.self.incarnation;
    if (!to_us || tried_[backup] == offer->token) continue;
    auto node = co_await FindNode(worker, backup);
    if (!node.ok()) co_return node.status();
    if (!*node || (*node)->incarnation != offer->life) continue;
    // Of its last life, whose end was not noticed yet.
    const std::vector<NodeId> members = replicas_->members();
    if (std::ranges::find(members, backup) != members.end()) {
      Status removed = co_await replicas_->Remove(worker, backup);
      co_return removed;
    }
    tried_[backup] = offer->token;
    fills_.insert(backup);
    worker.Spawn(Fill(worker, std::move(**node), *offer));
  }
  co_return Status::Ok();
}

dsm::Task<void> RegionNode::Fill(Worker& worker, NodeEntry node, Offer offer) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  const dsm::ServerEndpoint peer{.server = offer.server, .endpoint = node.fabric_endpoint};
  Status status = deps_.add_peer(peer);
  if (status.ok() || status.code() == StatusCode::kAlreadyExists) {
    const ChannelAddress address{offer.server, offer.area, offer.token};
    const ChannelOptions options{.backup = "node " + std::to_string(node.id)};
    dsm::FabricCounts counts;
    auto channel = co_await Channel::Open(worker, address, options, counts);
    status = channel.status();
    if (channel.ok()) {
      const auto port = std::make_shared<ChannelPort>(std::move(*channel));
      ports_.push_back(port);
      worker.Spawn(ChannelPort::Run(worker, port));
      const auto link = std::make_shared<BackupLink>(node.id, port);
      status = co_await replicas_->Add(worker, link);
      if (!status.ok()) port->Stop();
    }
  }
  if (status.ok()) {
    FARLEAF_LOG(info, "{}: node {} is a backup, filled in {} ms", NameOf(deps_.region), node.id,
                (deps_.clock->NowNs() - begun_ns) / kNsPerMs);
  } else if (!stopping_) {
    FARLEAF_LOG(warn, "{}: node {} could not be filled: {}", NameOf(deps_.region), node.id,
                status.ToString());
  }
  fills_.erase(node.id);
}

}  // namespace farleaf::server::cluster
