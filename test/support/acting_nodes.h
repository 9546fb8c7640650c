// ActingNodes: nodes of a cluster as the membership sees them: of what a region's entry asks of its primary they do what there is to do, without any store: they
// fill, hand over and split. One of them is the master.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "server/cluster/leaving.h"
#include "server/cluster/master.h"
#include "server/cluster/region_views.h"
#include "server/membership/region_store.h"
#include "test/support/membership_under_test.h"

namespace farleaf::server::cluster {

class ActingNodes {
 public:
  struct Options {
    uint32_t replicas = 2;
    uint64_t seed = 1;
  };
  explicit ActingNodes(const Options& options)
      : options_(options),
        service_({.seed = options.seed, .delay_ns_max = 2 * kNsPerMs}),
        eye_(&service_.Open()) {
    FARLEAF_CHECK(Run(membership::RegionStore(eye_).Prepare(worker())).ok());
  }
  ~ActingNodes() {
    for (auto& node : nodes_) End(*node);
  }

  void Start(NodeId id) {
    auto node = std::make_unique<Node>();
    node->id = id;
    node->session = &service_.Open();
    node->store = std::make_unique<membership::RegionStore>(node->session);
    const membership::NodeEntry entry{
        id, ++lives_, {"farleaf://node" + std::to_string(id)}, "memory" + std::to_string(id)};
    FARLEAF_CHECK(Run(node->store->Announce(worker(), entry)).ok(), id);
    Master::Deps deps{node->session, &service_.clock(), id, std::to_string(lives_), {}};
    deps.make_store = [this](dsm::Worker& on, RegionId region) { return MakeStore(on, region); };
    node->master =
        std::make_unique<Master>(std::move(deps), MasterOptions{.replicas = options_.replicas});
    worker().Spawn(Lead(*node));
    worker().Spawn(Act(*node));
    nodes_.push_back(std::move(node));
  }
  /// It is gone at once: its session is closed.
  void Stop(NodeId id) {
    const auto at = std::ranges::find_if(nodes_, [id](auto& node) { return node->id == id; });
    FARLEAF_CHECK(at != nodes_.end(), id);
    End(**at);
    nodes_.erase(at);
  }
  void Leave(NodeId id) {
    for (auto& node : nodes_) {
      if (node->id == id) {
        FARLEAF_CHECK(Run(AnnounceLeaving(worker(), *node->session, id)).ok(), id);
      }
    }
  }
  /// What primaries do is not done while this is set.
  void Pause(bool paused) { paused_ = paused; }

  std::vector<RegionEntry> Regions() {
    auto all = Run(membership::RegionStore(eye_).All(worker(), membership::Watch::kNothing));
    std::vector<RegionEntry> regions;
    if (!all.ok()) return regions;
    for (const auto& stored : *all) regions.push_back(stored.region);
    return regions;
  }
  /// Whether it comes about within a minute of virtual time.
  bool Comes(const std::function<bool(const std::vector<RegionEntry>&)>& wanted) {
    const uint64_t end_ns = service_.clock().NowNs() + 60 * kNsPerSecond;
    while (!wanted(Regions())) {
      if (service_.clock().NowNs() >= end_ns) return false;
    }
    return true;
  }

  template <typename T>
  T Run(dsm::Task<T> task) {
    return service_.Run(std::move(task));
  }
  dsm::Worker& worker() { return service_.worker(); }
  const Clock& clock() const { return service_.clock(); }
  membership::Membership& eye() { return *eye_; }
  membership::InProcessUnderTest& service() { return service_; }
  /// Done while a store is made, once.
  std::function<dsm::Task<Status>(dsm::Worker& on)> with_a_store;
  /// Of make_store, in their order; and whether there was a map already.
  std::vector<RegionId> stores;
  bool made_behind_the_map = false;

 private:
  struct Node {
    NodeId id = membership::kNoNode;
    membership::Membership* session = nullptr;
    std::unique_ptr<membership::RegionStore> store;
    std::unique_ptr<Master> master;
    bool stopping = false;
    int running = 2;  // Lead and Act
  };

  void End(Node& node) {
    node.stopping = true;
    node.master->Stop();
    service_.Until([&] { return node.running == 0; });
    FARLEAF_CHECK(Run(node.session->Close(worker())).ok());
  }
  dsm::Task<Status> MakeStore(dsm::Worker& on, RegionId region) {
    auto map =
        co_await eye_->Get(on, membership::RegionStore::kMapPath, membership::Watch::kNothing);
    made_behind_the_map = made_behind_the_map || map.ok();
    stores.push_back(region);
    if (const auto once = std::exchange(with_a_store, nullptr)) {
      Status done = co_await once(on);
      EXPECT_TRUE(done.ok()) << done;
    }
    co_return Status::Ok();
  }
  dsm::Task<void> Lead(Node& node) {
    co_await node.master->Run(worker());
    --node.running;
  }
  dsm::Task<void> Act(Node& node) {
    while (!node.stopping) {
      const uint64_t seen = node.session->ChangeCount("/");
      auto all = co_await node.store->All(worker(), membership::Watch::kChanges);
      if (all.ok() && !paused_) {
        for (const membership::StoredRegion& stored : *all) {
          if (stored.region.primary == node.id) co_await ActOn(node, stored);
        }
      }
      (void)co_await node.session->AwaitChange(worker(), "/", seen, 100 * kNsPerMs);
    }
    --node.running;
  }
  dsm::Task<void> ActOn(Node& node, membership::StoredRegion stored) {
    RegionEntry next = stored.region;
    if (!next.split_at.empty()) {
      auto right = co_await node.store->NextRegion(worker());
      if (!right.ok()) co_return;
      (void)co_await node.store->Split(worker(), stored, next.split_at, *right);
      co_return;
    }
    if (Contains(next.in_sync, next.successor)) {
      next.primary = std::exchange(next.successor, membership::kNoNode);
    } else if (!next.filling.empty()) {
      const NodeId filled = next.filling.front();
      Erase(&next.filling, filled);
      Insert(&next.in_sync, filled);
    } else {
      co_return;
    }
    (void)co_await node.store->ChangeView(worker(), stored, next);
  }

  const Options options_;
  membership::InProcessUnderTest service_;
  membership::Membership* const eye_;  // of the test
  std::vector<std::unique_ptr<Node>> nodes_;
  uint64_t lives_ = 0;
  bool paused_ = false;
};

}  // namespace farleaf::server::cluster
