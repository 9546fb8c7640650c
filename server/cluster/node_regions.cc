#include "server/cluster/node_regions.h"

#include <algorithm>
#include <utility>

#include "dsm/base/log.h"

namespace farleaf::server::cluster {

using membership::NodeEntry;
using membership::RegionMap;
using membership::Watch;

namespace {

constexpr uint64_t kMapLookNs = kNsPerSecond;
constexpr uint64_t kMapRetryNs = 100 * kNsPerMs;
constexpr uint64_t kPartsPauseNs = kNsPerMs;
/// So soon it ends.
constexpr uint64_t kStampSliceNs = 20 * kNsPerMs;

}  // namespace

NodeRegions::NodeRegions(Deps deps) : deps_(std::move(deps)), regions_(deps_.session) {}

NodeRegions::~NodeRegions() = default;

void NodeRegions::Abandon() {
  for (const auto& [id, part] : parts_) part->node->Abandon();
}

// What was in this node's memory only is gone. If somebody else in sync is there, he has it, and this life begins with nothing: he lives as he did, since
// whoever stays in sync in a new life has made the region headless.
dsm::Task<Status> NodeRegions::LeaveOldLife(Worker& worker) {
  auto map = co_await regions_.Read(worker);
  if (map.status().code() == StatusCode::kNotFound) co_return Status::Ok();
  if (!map.ok()) co_return map.status();
  auto nodes = co_await regions_.Nodes(worker, Watch::kNothing);
  if (!nodes.ok()) co_return nodes.status();
  const bool announced =
      std::ranges::any_of(*nodes, [this](const NodeEntry& node) { return node.id == deps_.self; });
  if (announced) {
    co_return Status::AlreadyExists("node " + std::to_string(deps_.self) +
                                    ": the session of its last life has not expired");
  }
  if (!unannounced_since_ns_) unannounced_since_ns_ = worker.clock().NowNs();
  for (const RegionEntry& region : map->regions()) {
    Status left = co_await LeaveOldLife(worker, region.id, *nodes);
    if (!left.ok()) co_return left;
  }
  co_return Status::Ok();
}

dsm::Task<Status> NodeRegions::LeaveOldLife(Worker& worker, RegionId region,
                                            const std::vector<NodeEntry>& nodes) {
  const NodeId self = deps_.self;
  for (;;) {
    auto seen = co_await regions_.Get(worker, region, Watch::kNothing);
    if (!seen.ok()) co_return seen.status();
    RegionEntry changed = seen->region;
    Erase(&changed.filling, self);
    if (Contains(changed.in_sync, self)) {
      const auto other = std::ranges::find_if(nodes, [&](const NodeEntry& node) {
        return node.id != self && Contains(seen->region.in_sync, node.id);
      });
      if (changed.state == membership::RegionState::kServing && other != nodes.end()) {
        // Where all have ended at once, others are announced for as long as their sessions, and the region is not to be
        // left to them. If they live, the master is one of them, or will be, and takes this node out.
        if (worker.clock().NowNs() < *unannounced_since_ns_ + deps_.session_ns) {
          co_return Status::AlreadyExists(NameOf(region) + ": node " + std::to_string(other->id) +
                                          " may have it, or may have ended as well");
        }
        Erase(&changed.in_sync, self);
        if (changed.primary == self) changed.primary = other->id;
      } else {
        changed.primary = membership::kNoNode;
        changed.state = membership::RegionState::kHeadless;
      }
    }
    if (changed == seen->region) co_return Status::Ok();
    auto committed = co_await regions_.ChangeView(worker, *seen, std::move(changed));
    if (committed.ok()) co_return Status::Ok();
    if (committed.status().code() != StatusCode::kVersionMismatch) co_return committed.status();
  }
}

NodeRegions::Part* NodeRegions::PartOf(RegionId region) {
  std::shared_lock lock(mutex_);
  const auto at = parts_.find(region);
  return at == parts_.end() ? nullptr : at->second.get();
}

StoreUse NodeRegions::Use(RegionId region) {
  Part* const part = PartOf(region);
  return part == nullptr ? StoreUse() : StoreUse(&part->gates.store);
}

CopyUse NodeRegions::UseCopy(RegionId region) {
  Part* const part = PartOf(region);
  return part == nullptr ? CopyUse() : CopyUse(&part->gates.copy);
}

size_t NodeRegions::primaries() const {
  size_t serving = 0;
  ForEach([&serving](const RegionNode& node) {
    node.WithPrimary([&serving](const RegionPrimary&) { ++serving; });
  });
  return serving;
}

bool NodeRegions::has_backups() const {
  bool found = false;
  ForEach([&found](const RegionNode& node) {
    node.WithPrimary(
        [&found](const RegionPrimary& primary) { found |= !primary.replicas().members().empty(); });
  });
  return found;
}

void NodeRegions::ForEach(const std::function<void(const RegionNode& node)>& look) const {
  std::shared_lock lock(mutex_);
  for (const auto& [id, part] : parts_) look(*part->node);
}

std::shared_ptr<const RouteTable> NodeRegions::TableOf(const RegionMap& map,
                                                       const std::vector<NodeEntry>& nodes) {
  auto table = std::make_shared<RouteTable>();
  table->view = map.view();
  for (const RegionEntry& region : map.regions()) {
    const auto node = std::ranges::find(nodes, region.primary, &NodeEntry::id);
    const bool known = node != nodes.end() && !node->native_endpoints.empty();
    table->routes.push_back({.region = region.id,
                             .start = region.start,
                             .end = region.end,
                             .primary = region.primary,
                             .url = known ? node->native_endpoints.front() : std::string()});
  }
  return table;
}

dsm::Task<Status> NodeRegions::Look(Worker& worker) {
  auto version = co_await regions_.MapVersion(worker, Watch::kChanges);
  if (version.status().code() == StatusCode::kNotFound) co_return Status::Ok();
  if (!version.ok()) co_return version.status();
  auto nodes = co_await regions_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  auto map = co_await regions_.Read(worker);
  if (!map.ok()) co_return map.status();
  if (!std::exchange(removed_others_, true)) {
    const Status removed = deps_.remove_others(*map);
    if (!removed.ok()) FARLEAF_LOG(warn, "directories of no region: {}", removed.ToString());
  }
  for (const RegionEntry& region : map->regions()) {
    if (PartOf(region.id) != nullptr) continue;
    auto part = std::make_unique<Part>();
    part->node = std::make_unique<RegionNode>(deps_.deps_of(region.id, &part->gates));
    part->running = true;
    worker.Spawn(RunPart(worker, part.get()));
    std::lock_guard lock(mutex_);
    parts_.emplace(region.id, std::move(part));
  }
  table_.store(TableOf(*map, *nodes));
  co_return Status::Ok();
}

dsm::Task<void> NodeRegions::RunPart(Worker& worker, Part* part) {
  Status ended = co_await part->node->Run(worker);
  part->running = false;
  if (ended.ok()) co_return;
  if (ended_.ok() || ended.code() == StatusCode::kFenced) ended_ = std::move(ended);
  Stop();
}

// A primary that is still at its last stamp, of a backup that does not answer, does not hold up the others.
dsm::Task<void> NodeRegions::RunStamps(Worker& worker) {
  uint64_t slept_ns = 0;
  while (!stopping_) {
    const uint64_t slice_ns = std::min(deps_.stamp_ns - slept_ns, kStampSliceNs);
    co_await worker.Sleep(slice_ns);
    slept_ns += slice_ns;
    if (slept_ns < deps_.stamp_ns) continue;
    slept_ns = 0;
    for (const auto& [id, part] : parts_) part->node->StampCopies(worker);
  }
  stamping_ = false;
}

dsm::Task<Status> NodeRegions::Run(Worker& worker) {
  if (deps_.stamp_ns > 0) {
    stamping_ = true;
    worker.Spawn(RunStamps(worker));
  }
  Status status;
  while (!stopping_ && status.code() != StatusCode::kFenced) {
    const uint64_t seen = deps_.session->ChangeCount("/");
    status = co_await Look(worker);
    if (status.ok()) {
      (void)co_await deps_.session->AwaitChange(worker, "/", seen, kMapLookNs);
    } else if (status.code() != StatusCode::kFenced) {
      FARLEAF_LOG(warn, "the map of regions: {}", status.ToString());
      co_await worker.Sleep(kMapRetryNs);
    }
  }
  Stop();
  for (const auto& [id, part] : parts_) part->node->Stop();
  const auto runs = [](const auto& part) { return part.second->running; };
  while (stamping_ || std::ranges::any_of(parts_, runs)) co_await worker.Sleep(kPartsPauseNs);
  if (status.code() == StatusCode::kFenced) co_return status;
  co_return ended_;
}

}  // namespace farleaf::server::cluster
