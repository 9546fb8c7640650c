#include "test/support/map_tree_host.h"

#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

MapTreeHost::MapTreeHost(const Clock* clock) : clock_(clock) {
  auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20});
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  fabric_ = std::move(*fabric);
}

MapTreeHost::~MapTreeHost() = default;

Result<std::unique_ptr<dsm::Worker>> MapTreeHost::OpenWorker() {
  auto transport = fabric_->OpenTransport();
  if (!transport.ok()) return transport.status();
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::move(*transport), &epochs_, clock_, seed_.fetch_add(1)});
}

dsm::Task<Result<server::HostedTree>> MapTreeHost::Open(dsm::OpContext&, std::string_view name) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, tree] : trees_) {
    if (tree.hosted.info.name == name) co_return tree.hosted;
  }
  co_return Status::NotFound("tree \"" + std::string(name) + "\" does not exist");
}

dsm::Task<Result<server::HostedTree>> MapTreeHost::Create(dsm::OpContext&,
                                                          const server::NewTree& tree) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, other] : trees_) {
    if (other.hosted.info.name == tree.name) {
      co_return Status::AlreadyExists("tree \"" + tree.name + "\" exists");
    }
  }
  co_return AddLocked(tree.name, tree.layout).hosted;
}

dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> MapTreeHost::List(dsm::OpContext&) {
  std::lock_guard lock(mutex_);
  std::vector<server::protocol::TreeInfo> all;
  for (const auto& [id, tree] : trees_) all.push_back(tree.hosted.info);
  co_return all;
}

server::HostedTree MapTreeHost::Find(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto it = trees_.find(id);
  return it == trees_.end() ? server::HostedTree{} : it->second.hosted;
}

dsm::Task<Status> MapTreeHost::Upkeep(dsm::OpContext& op) {
  std::vector<MapIndex*> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, tree] : trees_) all.push_back(tree.index.get());
  }
  Status kept;
  for (MapIndex* each : all) {
    Status status = co_await each->Upkeep(op);
    if (kept.ok()) kept = std::move(status);
  }
  co_return kept;
}

MapIndex& MapTreeHost::Add(const std::string& name, server::protocol::TreeLayout layout) {
  std::lock_guard lock(mutex_);
  return *AddLocked(name, layout).index;
}

void MapTreeHost::RenumberTrees() {
  std::lock_guard lock(mutex_);
  std::map<uint32_t, Tree> renumbered;
  uint32_t id = next_id_;
  // In the reverse order, so that ids of one round name other trees in the next.
  for (auto it = trees_.rbegin(); it != trees_.rend(); ++it, ++id) {
    it->second.hosted.info.id = id;
    renumbered.emplace(id, std::move(it->second));
  }
  trees_ = std::move(renumbered);
}

MapTreeHost::Tree& MapTreeHost::AddLocked(const std::string& name, server::protocol::TreeLayout layout) {
  const bool fixed8 = layout == server::protocol::TreeLayout::kFixed8;
  MapIndex::Limits limits;
  limits.fixed8 = fixed8;
  if (fixed8) limits.key_bytes_max = limits.value_bytes_max = 8;
  const uint32_t id = next_id_ + static_cast<uint32_t>(trees_.size());
  Tree& tree = trees_[id];
  tree.index = std::make_unique<MapIndex>(limits);
  tree.hosted = {{.id = id,
                  .layout = layout,
                  .key_bytes_max = static_cast<uint32_t>(limits.key_bytes_max),
                  .value_bytes_max = static_cast<uint32_t>(limits.value_bytes_max),
                  .name = name},
                 tree.index.get()};
  return tree;
}

}  // namespace farleaf::test
