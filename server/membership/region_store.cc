#include "server/membership/region_store.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "dsm/base/bytes.h"
#include "server/membership/counters.h"
#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {

constexpr const char* kNextRegionPath = "/next_region";
constexpr int kReadAttemptsMax = 20;
constexpr uint64_t kReadBackoffNsMax = 20 * kNsPerMs;

Change SetMap() { return {Change::Kind::kSet, RegionStore::kMapPath, "", std::nullopt}; }

Result<RegionEntry> ParseAt(const std::string& path, const std::string& bytes) {
  auto region = ParseRegionEntry(path, AsBytes(bytes));
  if (region.ok() && RegionPath(region->id) != path) {
    return Status::Corruption("entry " + path + " holds region " +
                              std::to_string(static_cast<uint32_t>(region->id)));
  }
  return region;
}

}  // namespace

std::string RegionPath(RegionId id) {
  char path[32];
  std::snprintf(path, sizeof path, "/regions/%010u", static_cast<uint32_t>(id));
  return path;
}

std::string NodePath(NodeId id) { return ChildPath(RegionStore::kNodesPath, std::to_string(id)); }

dsm::Task<Status> RegionStore::Prepare(dsm::Worker& worker) {
  const Status nodes = co_await CreatePath(worker, *session_, kNodesPath);
  FARLEAF_CO_RETURN_IF_ERROR(nodes);
  const Status regions = co_await CreatePath(worker, *session_, kRegionsPath);
  co_return regions;
}

dsm::Task<Status> RegionStore::Announce(dsm::Worker& worker, NodeEntry node) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckNodeEntry(node));
  const std::string path = NodePath(node.id), bytes = EncodeNodeEntry(node);
  auto created = co_await session_->Create(worker, path, bytes, {.lifetime = Lifetime::kEphemeral});
  co_return created.status();
}

dsm::Task<Result<std::vector<NodeEntry>>> RegionStore::Nodes(dsm::Worker& worker, Watch watch) {
  auto names = co_await session_->Children(worker, kNodesPath, watch);
  if (!names.ok()) co_return names.status();
  std::vector<NodeEntry> nodes;
  for (const std::string& name : *names) {
    const std::string path = ChildPath(kNodesPath, name);
    auto entry = co_await session_->Get(worker, path, Watch::kNothing);
    if (entry.status().code() == StatusCode::kNotFound) continue;  // it has just gone
    if (!entry.ok()) co_return entry.status();
    auto node = ParseNodeEntry(path, AsBytes(entry->bytes));
    if (!node.ok()) co_return node.status();
    nodes.push_back(std::move(*node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeEntry& a, const NodeEntry& b) { return a.id < b.id; });
  co_return nodes;
}

dsm::Task<Result<RegionId>> RegionStore::NextRegion(dsm::Worker& worker) {
  auto number = co_await NextNumber(worker, *session_, kNextRegionPath);
  if (!number.ok()) co_return number.status();
  if (*number > UINT32_MAX) co_return Status::ResourceExhausted("all ids of regions are used up");
  co_return static_cast<RegionId>(*number);
}

dsm::Task<Result<RegionMap>> RegionStore::Found(dsm::Worker& worker,
                                                std::vector<RegionEntry> regions,
                                                std::vector<Change> with) {
  for (RegionEntry& region : regions) region.view = region.moves = 1;
  auto map = RegionMap::Make(1, std::move(regions));
  if (!map.ok()) co_return map.status();
  std::vector<Change> changes;
  changes.push_back({Change::Kind::kCreate, kMapPath, "", {}});
  for (const RegionEntry& region : map->regions()) {
    changes.push_back(
        {Change::Kind::kCreate, RegionPath(region.id), EncodeRegionEntry(region), {}});
  }
  changes.insert(changes.end(), with.begin(), with.end());
  const Status committed = co_await session_->Commit(worker, std::move(changes));
  FARLEAF_CO_RETURN_IF_ERROR(committed);
  co_return map;
}

dsm::Task<Result<uint64_t>> RegionStore::MapVersion(dsm::Worker& worker, Watch watch) {
  auto entry = co_await session_->Get(worker, kMapPath, watch);
  if (!entry.ok()) co_return entry.status();
  co_return uint64_t{entry->version} + 1;  // 0 is no version of a map
}

dsm::Task<Result<RegionMap>> RegionStore::Read(dsm::Worker& worker) {
  for (int attempt = 0; attempt < kReadAttemptsMax; ++attempt) {
    auto before = co_await MapVersion(worker, Watch::kNothing);
    if (!before.ok()) co_return before.status();
    auto names = co_await session_->Children(worker, kRegionsPath, Watch::kNothing);
    if (!names.ok()) co_return names.status();
    std::vector<RegionEntry> regions;
    for (const std::string& name : *names) {
      const std::string path = ChildPath(kRegionsPath, name);
      auto entry = co_await session_->Get(worker, path, Watch::kNothing);
      if (!entry.ok()) co_return entry.status();
      auto region = ParseAt(path, entry->bytes);
      if (!region.ok()) co_return region.status();
      regions.push_back(std::move(*region));
    }
    auto after = co_await MapVersion(worker, Watch::kNothing);
    if (!after.ok()) co_return after.status();
    if (*before == *after) {
      auto map = RegionMap::Make(*before, std::move(regions));
      if (!map.ok()) {
        co_return Status::Corruption("the map of regions: " + std::string(map.status().message()));
      }
      co_return map;
    }
    co_await worker.Sleep(worker.random().Below(kReadBackoffNsMax));
  }
  co_return Status::Unavailable("the map of regions has changed " +
                                std::to_string(kReadAttemptsMax) + " times while it was read");
}

dsm::Task<Result<StoredRegion>> RegionStore::Get(dsm::Worker& worker, RegionId id, Watch watch) {
  const std::string path = RegionPath(id);
  auto entry = co_await session_->Get(worker, path, watch);
  if (!entry.ok()) co_return entry.status();
  auto region = ParseAt(path, entry->bytes);
  if (!region.ok()) co_return region.status();
  co_return StoredRegion{std::move(*region), entry->version};
}

dsm::Task<Result<std::vector<StoredRegion>>> RegionStore::All(dsm::Worker& worker, Watch watch) {
  auto names = co_await session_->Children(worker, kRegionsPath, watch);
  if (!names.ok()) co_return names.status();
  std::vector<StoredRegion> regions;
  for (const std::string& name : *names) {
    const std::string path = ChildPath(kRegionsPath, name);
    auto entry = co_await session_->Get(worker, path, watch);
    if (!entry.ok()) co_return entry.status();
    auto region = ParseAt(path, entry->bytes);
    if (!region.ok()) co_return region.status();
    regions.push_back({std::move(*region), entry->version});
  }
  co_return regions;
}

dsm::Task<Result<StoredRegion>> RegionStore::ChangeView(dsm::Worker& worker, StoredRegion seen,
                                                        RegionEntry changed) {
  if (changed.id != seen.region.id || changed.start != seen.region.start ||
      changed.end != seen.region.end) {
    co_return Status::InvalidArgument("a view has the id and the keys of the one before");
  }
  if (seen.region.view == UINT32_MAX) co_return Status::ResourceExhausted("no view is left");
  changed.view = seen.region.view + 1;
  changed.moves = seen.region.moves + (changed.primary != seen.region.primary ? 1 : 0);
  FARLEAF_CO_RETURN_IF_ERROR(CheckRegionEntry(changed));
  std::vector<Change> changes;
  changes.push_back(
      {Change::Kind::kSet, RegionPath(changed.id), EncodeRegionEntry(changed), seen.version});
  changes.push_back(SetMap());
  const Status committed = co_await session_->Commit(worker, std::move(changes));
  FARLEAF_CO_RETURN_IF_ERROR(committed);
  co_return StoredRegion{std::move(changed), seen.version + 1};
}

dsm::Task<Result<std::pair<StoredRegion, StoredRegion>>> RegionStore::Split(dsm::Worker& worker,
                                                                            StoredRegion seen,
                                                                            std::string key,
                                                                            RegionId right_id) {
  if (key <= seen.region.start || !seen.region.Covers(key)) {
    co_return Status::InvalidArgument("a region is split at a key of its own, behind its first");
  }
  if (seen.region.view == UINT32_MAX) co_return Status::ResourceExhausted("no view is left");
  RegionEntry left = seen.region, right = seen.region;
  left.end = right.start = key;
  right.id = right_id;
  left.view = right.view = seen.region.view + 1;
  left.moves = seen.region.moves + 1;
  right.moves = 1;
  left.split_at.clear();
  right.split_at.clear();
  left.successor = right.successor = kNoNode;
  FARLEAF_CO_RETURN_IF_ERROR(CheckRegionEntry(left));
  FARLEAF_CO_RETURN_IF_ERROR(CheckRegionEntry(right));
  std::vector<Change> changes;
  changes.push_back(
      {Change::Kind::kSet, RegionPath(left.id), EncodeRegionEntry(left), seen.version});
  changes.push_back(
      {Change::Kind::kCreate, RegionPath(right.id), EncodeRegionEntry(right), std::nullopt});
  changes.push_back(SetMap());
  const Status committed = co_await session_->Commit(worker, std::move(changes));
  FARLEAF_CO_RETURN_IF_ERROR(committed);
  co_return std::pair(StoredRegion{std::move(left), seen.version + 1},
                      StoredRegion{std::move(right), 0});
}

}  // namespace farleaf::server::membership
