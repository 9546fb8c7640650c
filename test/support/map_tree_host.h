// MapTreeHost: a TreeHost over MapIndex, for tests of front ends and clients.
//
// Thread rule: thread-safe. It outlives the servers that use it; its trees outlive servers.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dsm/epoch.h"
#include "dsm/shm/local_fabric.h"
#include "server/frontend/tree_host.h"
#include "test/support/map_index.h"

namespace farleaf::test {

class MapTreeHost final : public server::TreeHost {
 public:
  explicit MapTreeHost(const Clock* clock) : clock_(clock) {
    auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20});
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    fabric_ = std::move(*fabric);
  }

  uint32_t view() const override { return view_.load(); }
  void set_view(uint32_t view) { view_.store(view); }

  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override {
    auto transport = fabric_->OpenTransport();
    if (!transport.ok()) return transport.status();
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::move(*transport), &epochs_, clock_, seed_.fetch_add(1)});
  }
  dsm::Task<Result<server::HostedTree>> Open(dsm::OpContext&, std::string_view name) override {
    std::lock_guard lock(mutex_);
    for (const auto& [id, tree] : trees_) {
      if (tree.hosted.info.name == name) co_return tree.hosted;
    }
    co_return Status::NotFound("tree \"" + std::string(name) + "\" does not exist");
  }
  dsm::Task<Result<server::HostedTree>> Create(dsm::OpContext&,
                                               const server::NewTree& tree) override {
    std::lock_guard lock(mutex_);
    for (const auto& [id, other] : trees_) {
      if (other.hosted.info.name == tree.name) {
        co_return Status::AlreadyExists("tree \"" + tree.name + "\" exists");
      }
    }
    co_return AddLocked(tree.name, tree.layout).hosted;
  }
  dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> List(dsm::OpContext&) override {
    std::lock_guard lock(mutex_);
    std::vector<server::protocol::TreeInfo> all;
    for (const auto& [id, tree] : trees_) all.push_back(tree.hosted.info);
    co_return all;
  }
  server::HostedTree Find(uint32_t id) override {
    std::lock_guard lock(mutex_);
    const auto it = trees_.find(id);
    return it == trees_.end() ? server::HostedTree{} : it->second.hosted;
  }
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override {
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
  void AppendStats(std::string* text) const override { text->append("host.kind map\n"); }

  /// Adds a tree without a server.
  MapIndex& Add(const std::string& name,
                server::protocol::TreeLayout layout = server::protocol::TreeLayout::kBytes) {
    std::lock_guard lock(mutex_);
    return *AddLocked(name, layout).index;
  }
  /// As another server would, gives the trees ids that mean other trees, or nothing, to the old
  /// one.
  void RenumberTrees() {
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

 private:
  struct Tree {
    std::unique_ptr<MapIndex> index;
    server::HostedTree hosted;
  };
  Tree& AddLocked(const std::string& name, server::protocol::TreeLayout layout) {
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

  const Clock* const clock_;
  std::unique_ptr<dsm::LocalFabric> fabric_;
  dsm::EpochDomain epochs_;
  std::atomic<uint32_t> view_{1};
  std::atomic<uint64_t> seed_{1};
  std::mutex mutex_;  // guards what follows
  uint32_t next_id_ = 1;
  std::map<uint32_t, Tree> trees_;
};

}  // namespace farleaf::test
