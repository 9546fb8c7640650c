#include "server/cluster/master.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/log.h"
#include "server/cluster/founding.h"
#include "server/cluster/leaving.h"

namespace farleaf::server::cluster {

using membership::RegionState;
using membership::StoredRegion;
using membership::Watch;

namespace {

constexpr const char* kElectionPath = "/master";
constexpr uint64_t kMasterLookNs = kNsPerSecond;
/// All is looked at again from time to time, also if nothing was heard of.
constexpr uint64_t kMasterQuietNs = 10 * kNsPerSecond;
constexpr uint64_t kMasterRetryNs = 100 * kNsPerMs;

}  // namespace

Master::Master(Deps deps, MasterOptions options)
    : deps_(std::move(deps)),
      options_(options),
      regions_(deps_.session),
      election_(deps_.session, deps_.clock, kElectionPath, deps_.name) {}

dsm::Task<void> Master::Run(dsm::Worker& worker) {
  while (!stopping_) {
    if (!election_.IsMaster()) {
      headless_since_ns_.clear();
      Status elected = co_await election_.BecomeMaster(worker, kMasterLookNs);
      if (elected.code() == StatusCode::kFenced) co_return;
      if (elected.ok()) {
        FARLEAF_LOG(info, "node {} is the master", deps_.self);
      } else if (elected.code() != StatusCode::kDeadlineExceeded) {
        co_await worker.Sleep(kMasterRetryNs);
      }
      continue;
    }
    const uint64_t seen = deps_.session->ChangeCount("/");
    Status looked = co_await Look(worker);
    if (looked.code() == StatusCode::kFenced) co_return;
    if (looked.ok()) {
      co_await AwaitSomething(worker, seen);
    } else {
      FARLEAF_LOG(warn, "master: {}", looked.ToString());
      co_await worker.Sleep(kMasterRetryNs);
    }
  }
  (void)co_await election_.Resign(worker);
}

dsm::Task<void> Master::AwaitSomething(dsm::Worker& worker, uint64_t seen) {
  for (uint64_t waited_ns = 0; waited_ns < kMasterQuietNs; waited_ns += kMasterLookNs) {
    const bool changed = co_await deps_.session->AwaitChange(worker, "/", seen, kMasterLookNs);
    // Where somebody is headless, time changes what is to be done.
    if (changed || !headless_since_ns_.empty() || stopping_ || !election_.IsMaster()) co_return;
  }
}

// The commit holds only if /founding is what was read: there with that version, or not there at all.
dsm::Task<Status> Master::FoundMap(dsm::Worker& worker) {
  using membership::Change;
  auto entry = co_await deps_.session->Get(worker, kFoundingPath, Watch::kNothing);
  std::vector<std::string> starts = {""};
  std::vector<Change> with;
  std::optional<membership::Version> version;
  if (entry.ok()) {
    auto keys = ParseFounding(AsBytes(entry->bytes));
    if (!keys.ok()) co_return keys.status();
    starts.insert(starts.end(), keys->begin(), keys->end());
    version = entry->version;
  } else if (entry.status().code() == StatusCode::kNotFound) {
    with.push_back({Change::Kind::kCreate, kFoundingPath, "", std::nullopt});
  } else {
    co_return entry.status();
  }
  with.push_back({Change::Kind::kRemove, kFoundingPath, "", version});
  std::vector<RegionEntry> regions;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (i == founding_ids_.size()) {
      auto id = co_await regions_.NextRegion(worker);
      if (!id.ok()) co_return id.status();
      founding_ids_.push_back(*id);
    }
    Status made = co_await deps_.make_store(worker, founding_ids_[i]);
    if (!made.ok()) co_return made;
    RegionEntry region;
    region.id = founding_ids_[i];
    region.primary = deps_.self;
    region.in_sync = {deps_.self};
    region.start = starts[i];
    if (i + 1 < starts.size()) region.end = starts[i + 1];
    regions.push_back(std::move(region));
  }
  auto founded = co_await regions_.Found(worker, std::move(regions), std::move(with));
  if (founded.ok()) {
    founding_ids_.clear();
    FARLEAF_LOG(info, "founded: {} regions of all keys, on node {}", founded->regions().size(),
                deps_.self);
  }
  co_return founded.status();
}

std::vector<RegionId> Master::NoteHeadless(const std::vector<RegionEntry>& regions) {
  const uint64_t now_ns = deps_.clock->NowNs();
  std::map<RegionId, uint64_t> since_ns;
  std::vector<RegionId> waited;
  for (const RegionEntry& region : regions) {
    if (region.state != RegionState::kHeadless) continue;
    const auto before = headless_since_ns_.find(region.id);
    const uint64_t begun_ns = before == headless_since_ns_.end() ? now_ns : before->second;
    since_ns[region.id] = begun_ns;
    if (now_ns >= begun_ns + options_.headless_wait_ms * kNsPerMs) waited.push_back(region.id);
  }
  headless_since_ns_ = std::move(since_ns);
  std::ranges::sort(waited);
  return waited;
}

dsm::Task<Status> Master::Look(dsm::Worker& worker) {
  auto nodes = co_await regions_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  auto leaving = co_await ReadLeaving(worker, *deps_.session, Watch::kChanges);
  if (!leaving.ok()) co_return leaving.status();
  auto version = co_await regions_.MapVersion(worker, Watch::kNothing);
  if (version.status().code() == StatusCode::kNotFound) {
    Status founded = co_await FoundMap(worker);
    if (!founded.ok()) co_return founded;
  } else if (!version.ok()) {
    co_return version.status();
  }
  auto all = co_await regions_.All(worker, Watch::kChanges);
  if (!all.ok()) co_return all.status();
  Placement seen;
  for (const StoredRegion& stored : *all) seen.regions.push_back(stored.region);
  seen.nodes = std::move(*nodes);
  seen.leaving = std::move(*leaving);
  seen.waited = NoteHeadless(seen.regions);
  if (!headless_since_ns_.empty()) {
    auto held = co_await ReadHeld(worker, *deps_.session, Watch::kChanges);
    if (!held.ok()) co_return held.status();
    // Of a life that is over it says nothing.
    std::erase_if(*held, [&seen](const Held& each) {
      return std::ranges::none_of(seen.nodes, [&each](const NodeEntry& node) {
        return node.id == each.node && node.incarnation == each.life;
      });
    });
    seen.held = std::move(*held);
  }
  seen.replicas = options_.replicas;
  for (RegionEntry& next : Place(seen)) {
    const auto stored =
        std::ranges::find(*all, next.id, [](const StoredRegion& each) { return each.region.id; });
    Status changed = co_await ChangeRegion(worker, *stored, std::move(next));
    if (!changed.ok()) co_return changed;
  }
  co_return Status::Ok();
}

dsm::Task<Status> Master::ChangeRegion(dsm::Worker& worker, StoredRegion seen, RegionEntry next) {
  const NodeId before = seen.region.primary, wished = seen.region.successor;
  const auto id = static_cast<uint32_t>(next.id);
  auto changed = co_await regions_.ChangeView(worker, std::move(seen), std::move(next));
  // Somebody else has changed it: the next look sees what.
  if (changed.status().code() == StatusCode::kVersionMismatch) co_return Status::Ok();
  if (!changed.ok()) co_return changed.status();
  const RegionEntry& now = changed->region;
  if (now.primary != before) {
    FARLEAF_LOG(info, "region {}: node {} is to be the primary, in place of node {}", id,
                now.primary, before);
  } else if (now.successor != membership::kNoNode && now.successor != wished) {
    FARLEAF_LOG(info, "region {}: node {} is to hand it over to node {}", id, now.primary,
                now.successor);
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server::cluster
