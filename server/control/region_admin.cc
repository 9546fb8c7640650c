#include "server/control/region_admin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dsm/base/bytes.h"
#include "server/cluster/founding.h"
#include "server/cluster/leaving.h"
#include "server/cluster/region_views.h"
#include "server/control/text_form.h"

namespace farleaf::server {

using cluster::Contains;
using cluster::Insert;
using dsm::Task;
using membership::Change;
using membership::kNoNode;
using membership::NodeEntry;
using membership::NodeId;
using membership::RegionEntry;
using membership::RegionId;
using membership::RegionState;
using membership::RegionStore;
using membership::Watch;

namespace {

/// Others that change what this changes: the master, and a primary.
constexpr int kWishAttemptsMax = 20;
constexpr uint64_t kWishBackoffNsMax = 50 * kNsPerMs;
constexpr uint64_t kAwaitLookNs = kNsPerSecond;

uint32_t NumberOf(RegionId id) { return static_cast<uint32_t>(id); }
std::string Quoted(std::string_view key) { return '"' + PrintBytes(key, TextForm::kText) + '"'; }
std::string Range(const RegionEntry& region) {
  return fmt::format("{} to {}", Quoted(region.start),
                     region.end.empty() ? "the end" : Quoted(region.end));
}

const RegionEntry* FindId(const RegionListing& listing, RegionId id) {
  const auto at = std::ranges::find(listing.regions, id, &RegionEntry::id);
  return at == listing.regions.end() ? nullptr : &*at;
}
const RegionEntry& FindKey(const RegionListing& listing, std::string_view key) {
  // A listing is a map's: its regions cover all keys.
  return *std::ranges::find_if(listing.regions,
                               [key](const RegionEntry& region) { return region.Covers(key); });
}
bool IsThere(const RegionListing& listing, NodeId id) {
  return std::ranges::find(listing.nodes, id, &NodeEntry::id) != listing.nodes.end();
}

Status NoSuchRegion(const RegionListing& listing, RegionId id) {
  std::vector<uint32_t> there;
  for (const RegionEntry& region : listing.regions) there.push_back(NumberOf(region.id));
  std::ranges::sort(there);
  constexpr size_t kNamedMax = 20;
  const bool all = there.size() <= kNamedMax;
  if (!all) there.resize(kNamedMax);
  return Status::NotFound(fmt::format("there is no region {}; there are {}{}", NumberOf(id),
                                      fmt::join(there, ", "), all ? "" : ", and more"));
}

Status CheckDestination(const RegionListing& listing, NodeId id) {
  const auto at = std::ranges::find(listing.nodes, id, &NodeEntry::id);
  if (at == listing.nodes.end()) {
    std::vector<NodeId> there;
    for (const NodeEntry& node : listing.nodes) there.push_back(node.id);
    return Status::NotFound(
        fmt::format("node {} is not there; there are {}", id, fmt::join(there, ", ")));
  }
  if (at->fabric_endpoint.empty()) {
    return Status::InvalidArgument(fmt::format("node {} has no memory for a copy", id));
  }
  if (Contains(listing.leaving, id)) {
    return Status::Unavailable(fmt::format("node {} is leaving", id));
  }
  return Status::Ok();
}

Status CheckSplit(const RegionListing& listing, const RegionEntry& region, const std::string& at) {
  if (!region.Covers(at)) {
    return Status::InvalidArgument(
        fmt::format("key {} is not of region {}, which has {}: it is of region {}", Quoted(at),
                    NumberOf(region.id), Range(region), NumberOf(FindKey(listing, at).id)));
  }
  if (region.start == at) {
    return Status::InvalidArgument(
        fmt::format("region {} begins at {} already", NumberOf(region.id), Quoted(at)));
  }
  if (!region.split_at.empty() && region.split_at != at) {
    return Status::AlreadyExists(fmt::format("region {} is to be split at {} already, by node {}",
                                             NumberOf(region.id), Quoted(region.split_at),
                                             region.primary));
  }
  return Status::Ok();
}

/// Why nothing can come about in the region; empty: it can.
std::string NobodyServes(const RegionListing& listing, const RegionEntry& region) {
  if (region.state == RegionState::kHeadless) {
    return fmt::format("region {} has no primary: none of nodes {} is there", NumberOf(region.id),
                       fmt::join(region.in_sync, ", "));
  }
  if (!IsThere(listing, region.primary)) {
    return fmt::format("region {}: its primary, node {}, is gone, and no other one was named yet",
                       NumberOf(region.id), region.primary);
  }
  return "";
}

Result<std::string> MissingOfSplit(const RegionListing& listing, RegionId id,
                                   const std::string& at) {
  if (FindKey(listing, at).start == at) return std::string();
  const RegionEntry* const region = FindId(listing, id);
  if (region == nullptr || region->split_at != at) {
    return Status::Unavailable(
        fmt::format("region {} is not to be split at {} any more: the wish was taken back",
                    NumberOf(id), Quoted(at)));
  }
  std::string nobody = NobodyServes(listing, *region);
  if (!nobody.empty()) return nobody;
  return fmt::format("region {} is not split yet by its primary, node {}", NumberOf(id),
                     region->primary);
}

/// `moves`: the region's, when it was wished for.
Result<std::string> MissingOfMove(const RegionListing& listing, RegionId id, NodeId node,
                                  uint32_t moves) {
  const RegionEntry* const region = FindId(listing, id);
  if (region == nullptr) return NoSuchRegion(listing, id);
  if (region->primary == node) return std::string();
  // It was there, and balance has moved it on.
  if (region->successor != node && region->moves >= moves + 2) return std::string();
  if (!IsThere(listing, node)) return Status::Unavailable(fmt::format("node {} is gone", node));
  if (region->successor != node) {
    return Status::Unavailable(fmt::format(
        "region {} is not to move to node {} any more{}", NumberOf(id), node,
        region->successor == kNoNode ? "" : fmt::format(", but to node {}", region->successor)));
  }
  std::string nobody = NobodyServes(listing, *region);
  if (!nobody.empty()) return nobody;
  if (Contains(region->in_sync, node)) {
    return fmt::format("node {} is in sync, node {} has not handed over yet", node,
                       region->primary);
  }
  if (Contains(region->filling, node)) {
    return fmt::format("node {} is being filled by node {}", node, region->primary);
  }
  return fmt::format("the master has not let node {} be filled yet", node);
}

Result<std::string> MissingOfAssignment(const RegionListing& listing, RegionId id,
                                        const std::vector<NodeId>& nodes) {
  const RegionEntry* const region = FindId(listing, id);
  if (region == nullptr) return NoSuchRegion(listing, id);
  if (region->assigned != nodes) {
    return Status::Unavailable(
        fmt::format("region {} is assigned otherwise by somebody else", NumberOf(id)));
  }
  std::string nobody = NobodyServes(listing, *region);
  if (!nobody.empty()) return nobody;
  if (region->in_sync == nodes && region->filling.empty()) return std::string();
  std::vector<std::string> missing;
  for (const NodeId node : nodes) {
    if (Contains(region->in_sync, node)) continue;
    const char* what = Contains(region->filling, node) ? "is being filled"
                       : IsThere(listing, node)        ? "is to be filled"
                                                       : "is gone";
    missing.push_back(fmt::format("node {} {}", node, what));
  }
  for (const NodeId node : region->in_sync) {
    if (Contains(nodes, node)) continue;
    missing.push_back(node == region->primary && region->successor != kNoNode
                          ? fmt::format("node {} hands over to node {}", node, region->successor)
                          : fmt::format("node {} is still to leave", node));
  }
  return fmt::format("region {}: {}", NumberOf(id), fmt::join(missing, ", "));
}

}  // namespace

Task<Result<bool>> RegionAdmin::HasMap(Worker& worker) {
  auto version = co_await store_.MapVersion(worker, Watch::kNothing);
  if (version.status().code() == StatusCode::kNotFound) co_return false;
  if (!version.ok()) co_return version.status();
  co_return true;
}

Task<Result<RegionListing>> RegionAdmin::List(Worker& worker) {
  // What is watched is the map, which changes with each of its regions.
  auto version = co_await store_.MapVersion(worker, Watch::kChanges);
  if (version.status().code() == StatusCode::kNotFound) {
    co_return Status::NotFound(
        "there is no map of regions yet: the first node that starts founds it");
  }
  if (!version.ok()) co_return version.status();
  auto map = co_await store_.Read(worker);
  if (!map.ok()) co_return map.status();
  RegionListing listing;
  listing.map_version = map->version();
  listing.regions = map->regions();
  auto nodes = co_await store_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  listing.nodes = std::move(*nodes);
  auto leaving = co_await cluster::ReadLeaving(worker, session_, Watch::kChanges);
  if (!leaving.ok()) co_return leaving.status();
  listing.leaving = std::move(*leaving);
  co_return listing;
}

// /map is made and removed again in the commit: so that it fails where there is one.
Task<Status> RegionAdmin::Create(Worker& worker, std::vector<std::string> keys) {
  std::ranges::sort(keys);
  FARLEAF_CO_RETURN_IF_ERROR(cluster::CheckFoundingKeys(keys));
  for (int attempt = 0; attempt < kWishAttemptsMax; ++attempt) {
    auto has_map = co_await HasMap(worker);
    if (!has_map.ok()) co_return has_map.status();
    if (*has_map) {
      co_return Status::AlreadyExists("there is a map of regions already: use region split");
    }
    auto entry = co_await session_.Get(worker, cluster::kFoundingPath, Watch::kNothing);
    const bool absent = entry.status().code() == StatusCode::kNotFound;
    if (!absent && !entry.ok()) co_return entry.status();
    std::vector<Change> changes = {
        {Change::Kind::kCreate, RegionStore::kMapPath, "", std::nullopt},
        {Change::Kind::kRemove, RegionStore::kMapPath, "", std::nullopt}};
    Change founding{Change::Kind::kCreate, cluster::kFoundingPath, cluster::EncodeFounding(keys),
                    std::nullopt};
    if (!absent) {
      founding.kind = Change::Kind::kSet;
      founding.version = entry->version;
    }
    changes.push_back(std::move(founding));
    const Status committed = co_await session_.Commit(worker, std::move(changes));
    const bool raced = committed.code() == StatusCode::kAlreadyExists ||
                       committed.code() == StatusCode::kNotFound ||
                       committed.code() == StatusCode::kVersionMismatch;
    if (!raced) co_return committed;
    co_await worker.Sleep(worker.random().Below(kWishBackoffNsMax));
  }
  co_return Status::Unavailable("somebody else writes where the first map is to be cut");
}

Task<Status> RegionAdmin::Wish(Worker& worker, RegionId id, const Wishing& wish) {
  for (int attempt = 0; attempt < kWishAttemptsMax; ++attempt) {
    auto seen = co_await store_.Get(worker, id, Watch::kNothing);
    if (!seen.ok()) co_return seen.status();
    RegionEntry wished = seen->region;
    const Result<bool> differs = wish(&wished);
    if (!differs.ok()) co_return differs.status();
    if (!*differs) co_return Status::Ok();
    auto changed = co_await store_.ChangeView(worker, *seen, wished);
    if (changed.status().code() != StatusCode::kVersionMismatch) co_return changed.status();
    co_await worker.Sleep(worker.random().Below(kWishBackoffNsMax));
  }
  co_return Status::Unavailable(
      fmt::format("region {} changes faster than a wish can be written", NumberOf(id)));
}

Task<Status> RegionAdmin::Await(Worker& worker, const Missing& missing) {
  const uint64_t end_ns = deps_.clock->NowNs() + deps_.wait_ms * kNsPerMs;
  for (;;) {
    const uint64_t seen = session_.ChangeCount("/");
    auto listing = co_await List(worker);
    std::string what = "the membership does not answer";
    if (listing.ok()) {
      const Result<std::string> looked = missing(*listing);
      if (!looked.ok()) co_return looked.status();
      if (looked->empty()) co_return Status::Ok();
      what = *looked;
    } else if (listing.status().code() != StatusCode::kUnavailable) {
      co_return listing.status();
    }
    if (deps_.progress) deps_.progress(what);
    const uint64_t now_ns = deps_.clock->NowNs();
    if (now_ns >= end_ns) {
      co_return Status::DeadlineExceeded(
          fmt::format("not done after {} s, and still wished: {}", deps_.wait_ms / 1'000, what));
    }
    if (listing.ok()) {
      (void)co_await session_.AwaitChange(worker, "/", seen,
                                          std::min(end_ns - now_ns, kAwaitLookNs));
    } else {
      co_await worker.Sleep(std::min(end_ns - now_ns, kWishBackoffNsMax));
    }
  }
}

Task<Result<RegionId>> RegionAdmin::Split(Worker& worker, RegionId id, std::string key,
                                          std::string at, RegionWait wait) {
  auto listing = co_await List(worker);
  if (!listing.ok()) co_return listing.status();
  if (id == RegionId::kNone) id = FindKey(*listing, key).id;
  const RegionEntry* const region = FindId(*listing, id);
  if (region == nullptr) co_return NoSuchRegion(*listing, id);
  FARLEAF_CO_RETURN_IF_ERROR(CheckSplit(*listing, *region, at));
  const Wishing wish = [&](RegionEntry* wished) -> Result<bool> {
    FARLEAF_RETURN_IF_ERROR(CheckSplit(*listing, *wished, at));
    return std::exchange(wished->split_at, at) != at;
  };
  Status status = co_await Wish(worker, id, wish);
  if (!status.ok()) co_return status;
  RegionId right = RegionId::kNone;
  if (wait == RegionWait::kNo) co_return right;
  const Missing missing = [&](const RegionListing& now) {
    right = FindKey(now, at).id;
    return MissingOfSplit(now, id, at);
  };
  status = co_await Await(worker, missing);
  if (!status.ok()) co_return status;
  co_return right;
}

Task<Status> RegionAdmin::Move(Worker& worker, RegionId id, NodeId node, RegionWait wait) {
  auto listing = co_await List(worker);
  if (!listing.ok()) co_return listing.status();
  if (FindId(*listing, id) == nullptr) co_return NoSuchRegion(*listing, id);
  FARLEAF_CO_RETURN_IF_ERROR(CheckDestination(*listing, node));
  uint32_t moves = 0;
  const Wishing wish = [&](RegionEntry* wished) -> Result<bool> {
    moves = wished->moves;
    if (!wished->assigned.empty() && !Contains(wished->assigned, node)) {
      return Status::InvalidArgument(
          fmt::format("region {} is assigned to nodes {}: use region assign", NumberOf(id),
                      fmt::join(wished->assigned, ", ")));
    }
    // Who is the primary stays it: a wish for another one is taken back.
    const NodeId successor = wished->primary == node ? kNoNode : node;
    return std::exchange(wished->successor, successor) != successor;
  };
  Status status = co_await Wish(worker, id, wish);
  if (!status.ok() || wait == RegionWait::kNo) co_return status;
  const Missing missing = [&](const RegionListing& now) {
    return MissingOfMove(now, id, node, moves);
  };
  status = co_await Await(worker, missing);
  co_return status;
}

Task<Status> RegionAdmin::Assign(Worker& worker, RegionId id, std::vector<NodeId> nodes,
                                 RegionWait wait) {
  std::vector<NodeId> wanted;
  for (const NodeId node : nodes) Insert(&wanted, node);
  if (wanted.size() > membership::kMembersMax) {
    co_return Status::InvalidArgument(
        fmt::format("a region is assigned to {} nodes at most", membership::kMembersMax));
  }
  auto listing = co_await List(worker);
  if (!listing.ok()) co_return listing.status();
  if (FindId(*listing, id) == nullptr) co_return NoSuchRegion(*listing, id);
  for (const NodeId node : wanted) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckDestination(*listing, node));
  }
  const Wishing wish = [&](RegionEntry* wished) -> Result<bool> {
    return std::exchange(wished->assigned, wanted) != wanted;
  };
  Status status = co_await Wish(worker, id, wish);
  if (!status.ok() || wait == RegionWait::kNo || wanted.empty()) co_return status;
  const Missing missing = [&](const RegionListing& now) {
    return MissingOfAssignment(now, id, wanted);
  };
  status = co_await Await(worker, missing);
  co_return status;
}

}  // namespace farleaf::server
