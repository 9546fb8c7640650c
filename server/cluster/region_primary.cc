#include "server/cluster/region_primary.h"

#include <algorithm>
#include <utility>

#include "dsm/base/log.h"
#include "index/prefixed_index.h"
#include "server/cluster/region_backup.h"

namespace farleaf::server::cluster {

using index::KeyValue;
using index::OpContext;
using index::ScanRange;
using membership::NodeEntry;
using membership::StoredRegion;
using membership::Watch;
using replication::BackupLink;
using replication::Channel;
using replication::ChannelAddress;
using replication::ChannelOptions;
using replication::ChannelPort;

namespace {

constexpr uint64_t kServedPauseNs = kNsPerMs;

/// Deletes the range, if there is anything.
dsm::Task<Status> Drop(OpContext& op, index::lsm::LsmStore& store, std::string begin,
                       std::string end) {
  const ScanRange range{
      .start = begin, .end = end, .limit = 1, .content = index::ScanContent::kKeys};
  std::vector<KeyValue> rows;
  Status status = co_await store.Scan(op, range, &rows);
  if (status.ok() && !rows.empty()) status = co_await store.DeleteRange(op, begin, end);
  co_return status;
}

/// The smallest key behind all that begin with these two bytes, which are not the last two there are.
std::string BehindTree(std::string_view prefix) {
  std::string behind(prefix);
  if (++behind[1] == '\0') ++behind[0];
  return behind;
}

}  // namespace

std::string NameOf(RegionId region) {
  return "region " + std::to_string(static_cast<uint32_t>(region));
}

RegionPrimary::RegionPrimary(const RegionDeps* deps, WrittenMemory* written)
    : deps_(*deps),
      written_(*written),
      regions_(deps->session),
      views_(deps->session, deps->clock, deps->region, deps->self.id),
      replicas_(
          &views_, replication::IndexMode::kSend,
          [deps]() -> Status {
            if (deps->clock->NowNs() < deps->session->lease_until_ns()) return Status::Ok();
            return Status::Unavailable(
                NameOf(deps->region) +
                ": the membership does not answer, and another node may serve it");
          },
          written->unsettled, deps->min_in_sync) {}

RegionPrimary::~RegionPrimary() {
  if (store_ && !closed_) store_->Abandon();
}

void RegionPrimary::Stop() {
  stopping_ = true;
  views_.Stop();
  replicas_.Stop();
}

void RegionPrimary::Abandon() {
  replicas_.Abandon();
  for (const auto& port : ports_) port->Abandon();
  if (store_) store_->Abandon();
}

bool RegionPrimary::IsMember(NodeId node) const {
  const std::vector<NodeId> members = replicas_.members();
  return std::ranges::find(members, node) != members.end();
}

// ---- It begins

dsm::Task<Status> RegionPrimary::TakeAlone(Worker& worker, StoredRegion* seen) {
  const std::vector<NodeId> alone{deps_.self.id};
  if (seen->region.in_sync == alone) co_return Status::Ok();
  RegionEntry changed = seen->region;
  for (const NodeId id : changed.in_sync) {
    if (id != deps_.self.id) Insert(&changed.filling, id);
  }
  changed.in_sync = alone;
  auto taken = co_await regions_.ChangeView(worker, *seen, std::move(changed));
  if (taken.ok()) *seen = std::move(*taken);
  co_return taken.status();
}

dsm::Task<Status> RegionPrimary::Open(Worker& worker, const RegionEntry& region) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  auto opened = co_await deps_.open_store(worker, &replicas_);
  if (!opened.ok()) co_return opened.status();
  store_ = std::move(*opened);
  replicas_.set_store(store_.get());
  FARLEAF_CO_RETURN_IF_ERROR(deps_.begin_background(store_.get()));
  background_ = true;
  auto storage = deps_.storage();
  if (!storage.ok()) co_return storage.status();
  deps_.gates->store.Open({{region.start, region.end}, store_.get(), *storage});
  serves_.store(true);
  FARLEAF_LOG(info, "{}: node {} is the primary, and serves after {} ms", NameOf(deps_.region),
              deps_.self.id, (deps_.clock->NowNs() - begun_ns) / kNsPerMs);
  // These are writes, too.
  drops_later_ = !replicas_.EnoughCopies().ok();
  if (drops_later_) co_return Status::Ok();
  Status dropped = co_await DropOutside(worker, region);
  co_return dropped;
}

// What a split has left here of the other half. Nobody sees it, since all who look keep to the region's keys; it takes room.
dsm::Task<Status> RegionPrimary::DropOutside(Worker& worker, const RegionEntry& region) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  std::string from;
  for (;;) {
    ScanRange first{.start = from, .limit = 1, .content = index::ScanContent::kKeys};
    std::vector<KeyValue> rows;
    Status status = co_await store_->Scan(op, first, &rows);
    if (!status.ok() || rows.empty()) co_return status;
    const std::string tree = rows[0].key.substr(0, index::PrefixedIndex::kPrefixBytes);
    const std::string behind = BehindTree(tree);
    if (!region.start.empty()) status = co_await Drop(op, *store_, tree, tree + region.start);
    if (status.ok() && !region.end.empty()) {
      status = co_await Drop(op, *store_, tree + region.end, behind);
    }
    if (!status.ok()) co_return status;
    from = behind;
  }
}

// Nothing waits for it: if it fails, the next who opens the store drops it.
dsm::Task<void> RegionPrimary::DropLater(Worker& worker, const RegionEntry& region) {
  if (!serves_.load() || !replicas_.EnoughCopies().ok()) co_return;
  Status dropped = co_await DropOutside(worker, region);
  const StatusCode code = dropped.code();
  drops_later_ = code == StatusCode::kUnavailable || code == StatusCode::kUnknown;
  if (dropped.ok() || drops_later_) co_return;
  FARLEAF_LOG(warn, "{}: what a split has left of another region's keys stays for now: {}",
              NameOf(deps_.region), dropped.ToString());
}

// ---- It serves

dsm::Task<Status> RegionPrimary::Look(Worker& worker, StoredRegion seen) {
  Status status = co_await ForgetGone(worker);
  if (!status.ok()) co_return status;
  const bool splits = !seen.region.split_at.empty(), hands_over = MayHandOver(seen.region);
  // It was not begun, or not ended, as it should have been: it is closed, and begins anew.
  const bool ends = (!splits && !hands_over) || !written_.unsettled->empty();
  if (!serves_.load() && ends) {
    status = co_await Close(worker);
    co_return status;
  }
  Status safe;
  if (serves_.load()) safe = co_await KeepSafe(worker, seen.region);
  if (!splits && !hands_over) {
    status = co_await FillBackups(worker, seen.region);
    if (drops_later_) co_await DropLater(worker, seen.region);
    co_return safe.ok() ? status : safe;
  }
  if (!safe.ok()) co_return safe;
  // Clients should not wait for what is being filled.
  if (!fills_.empty() || !written_.unsettled->empty()) co_return Status::Ok();
  if (splits) {
    status = co_await Split(worker);
  } else {
    status = co_await HandOver(worker);
  }
  co_return status;
}

bool RegionPrimary::MayHandOver(const RegionEntry& region) const {
  const NodeId successor = region.successor;
  return successor != membership::kNoNode && successor != deps_.self.id &&
         Contains(region.in_sync, successor) && IsMember(successor);
}

dsm::Task<void> RegionPrimary::StampCopies(Worker& worker) {
  if (!serves_.load() || std::exchange(stamping_, true)) co_return;
  co_await replicas_.Stamp(worker);
  stamping_ = false;
}

// Who is written to was being filled by an earlier look at the entry: if he is in neither, the master has taken him out since. What was acknowledged
// while others had it is in this memory only when they are gone.
dsm::Task<Status> RegionPrimary::KeepSafe(Worker& worker, const RegionEntry& region) {
  for (const NodeId member : replicas_.members()) {
    if (Contains(region.in_sync, member) || Contains(region.filling, member)) continue;
    Status removed = co_await replicas_.Remove(worker, member);
    if (!removed.ok()) co_return removed;
  }
  const bool alone = !replicas_.has_copies() || region.in_sync.size() == 1;
  if (!alone) co_return Status::Ok();
  Status synced = co_await store_->SyncReplicated(worker);
  co_return synced;
}

dsm::Task<Result<Offer>> RegionPrimary::ReadOffer(Worker& worker, NodeId backup) {
  const std::string path = OfferPath(deps_.region, backup);
  auto entry = co_await deps_.session->Get(worker, path, Watch::kChanges);
  if (!entry.ok()) co_return entry.status();
  co_return ParseOffer(path, AsBytes(entry->bytes));
}

dsm::Task<Status> RegionPrimary::FillBackups(Worker& worker, const RegionEntry& region) {
  for (const NodeId backup : region.filling) {
    if (fills_.contains(backup)) continue;
    auto offer = co_await ReadOffer(worker, backup);
    if (offer.status().code() == StatusCode::kNotFound) continue;
    if (!offer.ok()) co_return offer.status();
    const bool to_us =
        offer->primary == deps_.self.id && offer->primary_life == deps_.self.incarnation;
    const bool of_these_keys = offer->end == region.end;
    if (!to_us || !of_these_keys || written_.tried[backup] == offer->token) continue;
    auto node = co_await FindNode(worker, regions_, backup);
    if (!node.ok()) co_return node.status();
    if (!*node || (*node)->incarnation != offer->life) continue;
    // Of its last life, whose end was not noticed yet.
    if (IsMember(backup)) {
      Status removed = co_await replicas_.Remove(worker, backup);
      co_return removed;
    }
    written_.tried[backup] = offer->token;
    fills_.insert(backup);
    worker.Spawn(Fill(worker, std::move(**node), *offer));
  }
  co_return Status::Ok();
}

dsm::Task<void> RegionPrimary::Fill(Worker& worker, NodeEntry node, Offer offer) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  const dsm::MemberIdentity life{node.id, offer.life};
  written_.lives[offer.server] = life;
  views_.Expect(node.id, offer.life);
  Status status = deps_.add_peer(life, {.server = offer.server, .endpoint = node.fabric_endpoint});
  if (status.ok()) {
    const ChannelAddress address{offer.server, offer.area, offer.token};
    const ChannelOptions options{.backup = "node " + std::to_string(node.id)};
    dsm::FabricCounts counts;
    auto channel = co_await Channel::Open(worker, address, options, counts);
    status = channel.status();
    if (channel.ok()) {
      const auto port = std::make_shared<ChannelPort>(std::move(*channel));
      // Those that nobody uses any more have ended.
      std::erase_if(ports_, [](const auto& one) { return one.use_count() == 1; });
      ports_.push_back(port);
      worker.Spawn(ChannelPort::Run(worker, port));
      const auto link = std::make_shared<BackupLink>(node.id, port);
      status = co_await replicas_.Add(worker, link);
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

// Nothing lands in the memory of a life that is over.
dsm::Task<Status> RegionPrimary::ForgetGone(Worker& worker) {
  if (written_.unsettled->empty()) co_return Status::Ok();
  auto nodes = co_await regions_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  for (const auto& [server, life] : written_.lives) {
    const bool lives = std::ranges::any_of(*nodes, [&life](const NodeEntry& node) {
      return node.id == life.id && node.incarnation == life.incarnation;
    });
    if (!lives) written_.unsettled->Forget(server);
  }
  co_return Status::Ok();
}

// ---- It ends

dsm::Task<void> RegionPrimary::EndServing(Worker& worker) {
  deps_.gates->store.Close();
  serves_.store(false);
  while (!deps_.gates->store.idle() || stamping_) co_await worker.Sleep(kServedPauseNs);
  if (!std::exchange(background_, false)) co_return;
  bool ended = false;
  worker.Spawn(EndBackground(worker, &ended));
  while (!ended) {
    // What runs there may wait for a memory that is gone.
    (void)co_await ForgetGone(worker);
    co_await worker.Sleep(kServedPauseNs);
  }
}

dsm::Task<void> RegionPrimary::EndBackground(Worker& worker, bool* ended) {
  co_await deps_.end_background(worker);
  *ended = true;
}

dsm::Task<void> RegionPrimary::EndFills(Worker& worker) {
  for (const auto& port : ports_) port->Stop();
  while (!fills_.empty()) co_await worker.Sleep(kServedPauseNs);
}

dsm::Task<Status> RegionPrimary::Close(Worker& worker) {
  co_await EndServing(worker);
  Status closed;
  if (store_) closed = co_await store_->Close(worker);
  co_await EndFills(worker);
  closed_ = closed.ok();
  co_return closed;
}

dsm::Task<void> RegionPrimary::GiveUp(Worker& worker) {
  Stop();
  co_await EndFills(worker);
  co_await EndServing(worker);
}

dsm::Task<Result<StoredRegion>> RegionPrimary::GetOwn(Worker& worker) {
  auto seen = co_await regions_.Get(worker, deps_.region, Watch::kNothing);
  if (!seen.ok()) co_return seen.status();
  if (seen->region.primary == deps_.self.id) co_return seen;
  co_return Status::Fenced(NameOf(deps_.region) + ": node " + std::to_string(seen->region.primary) +
                           " is the primary, and not this one");
}

dsm::Task<Result<StoredRegion>> RegionPrimary::CloseOwn(Worker& worker) {
  Status closed = co_await Close(worker);
  if (!closed.ok()) co_return closed;
  auto seen = co_await GetOwn(worker);
  co_return seen;
}

// All that is acknowledged is at each member, and on this one's disk, when the entry changes; and nothing of this node can land at a member any more:
// what it has WRITTEN has completed, or was waited for (settled).
dsm::Task<Status> RegionPrimary::HandOver(Worker& worker) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  auto seen = co_await CloseOwn(worker);
  if (!seen.ok()) co_return seen.status();
  // He was lost at the last moment, or somebody else is wished for, who is not there yet: this node goes on.
  if (!written_.unsettled->empty() || !MayHandOver(seen->region)) co_return Status::Ok();
  RegionEntry changed = seen->region;
  changed.primary = std::exchange(changed.successor, membership::kNoNode);
  const NodeId successor = changed.primary;
  auto handed = co_await regions_.ChangeView(worker, *seen, std::move(changed));
  if (handed.ok()) {
    FARLEAF_LOG(info, "{}: handed over to node {}, {} ms after the last request was taken",
                NameOf(deps_.region), successor, (deps_.clock->NowNs() - begun_ns) / kNsPerMs);
  }
  co_return handed.status();
}

// The new region begins with all of the old one's directory, as that one goes on with it: each drops what is the other's when it is opened. Its backups
// have nothing yet, so that nobody but this node is in sync with it.
dsm::Task<Status> RegionPrimary::Split(Worker& worker) {
  const uint64_t begun_ns = deps_.clock->NowNs();
  auto seen = co_await CloseOwn(worker);
  if (!seen.ok()) co_return seen.status();
  const std::string key = seen->region.split_at;
  if (key.empty()) co_return Status::Ok();
  Status status = co_await TakeAlone(worker, &*seen);
  if (!status.ok()) co_return status;
  auto right = co_await regions_.NextRegion(worker);
  if (!right.ok()) co_return right.status();
  status = co_await deps_.copy_store(worker, *right);
  if (!status.ok()) {
    FARLEAF_LOG(error, "{} is not split, and the wish is given up: {}", NameOf(deps_.region),
                status.ToString());
    RegionEntry changed = seen->region;
    changed.split_at.clear();
    auto cleared = co_await regions_.ChangeView(worker, *seen, std::move(changed));
    co_return cleared.status();
  }
  auto halves = co_await regions_.Split(worker, *seen, key, *right);
  if (halves.ok()) {
    FARLEAF_LOG(info, "{}: split, {} begins with its second half; {} ms after the last request",
                NameOf(deps_.region), NameOf(*right), (deps_.clock->NowNs() - begun_ns) / kNsPerMs);
  }
  co_return halves.status();
}

}  // namespace farleaf::server::cluster
