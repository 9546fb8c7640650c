// RoutedNodes: nodes of a cluster in this process, with their servers on sockets, and a test in the place of all who decide: it divides the keys
// into regions, each an LSM store in memory, and moves them from node to node.
//
// Thread rule: what changes regions by one thread, while others run operations through any node.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/shm/local_fabric.h"
#include "index/lsm/background.h"
#include "server/cluster/cluster_tree_host.h"
#include "server/frontend/native_server.h"
#include "server/membership/in_process_membership.h"
#include "test/support/memory_storage.h"

namespace farleaf::test {

class RoutedNodes {
 public:
  struct Options {
    size_t nodes = 3;
    server::cluster::ClusterTreeHost::Options host;
    server::NativeServerOptions server;  ///< of each, on a port of its own
  };

  explicit RoutedNodes(Options options);
  ~RoutedNodes();

  size_t size() const { return nodes_.size(); }
  server::cluster::ClusterTreeHost& host(size_t node) { return *nodes_[node]->host; }
  const server::NativeServer& server(size_t node) const { return *nodes_[node]->server; }
  const Clock& clock() const { return clock_; }
  std::unique_ptr<dsm::Worker> OpenWorker();
  /// A tree that was made through the first node, as the node has it. `limits`: of a tree of bytes.
  index::RangeIndex& Tree(size_t node, const std::string& name);

  // ---- Regions
  /// One of all keys. Before, no map is known.
  void Found(size_t node);
  /// Divides the region that has the key, which becomes the first one of a new region, at the same node. The old one's store keeps what it had.
  /// False: a region begins there already.
  bool Split(const std::string& key);
  /// Of the region that has the key.
  void Move(std::string_view key, size_t to);
  /// What the store of the region that has the key has now becomes a copy at the node, which no write reaches. `staleness_ns`: what it says of
  /// itself, by any thread.
  using Staleness = std::function<std::optional<uint64_t>()>;
  std::shared_ptr<index::lsm::CopyReader> OpenCopy(std::string_view key, size_t node,
                                                   Staleness staleness_ns);
  void CloseGate(std::string_view key);
  void OpenGate(std::string_view key);
  /// Nobody is its primary, until it is moved.
  void Depose(std::string_view key);
  size_t PrimaryOf(std::string_view key) const { return RegionOf(key).node; }
  size_t regions() const { return regions_.size(); }
  /// Of the store that has the key.
  uint64_t syncs(std::string_view key) const { return RegionOf(key).store->storage.counts().syncs; }
  uint32_t view() const { return view_; }

  // ---- Faults
  /// The node hears of no change until it listens again.
  void StopsListening(size_t node) { nodes_[node]->listens = false; }
  void Listens(size_t node);
  /// Its server is gone, for good.
  void StopServer(size_t node) { nodes_[node]->server.reset(); }
  /// Others are told this URL for the node's.
  void set_url(size_t node, std::string url) { nodes_[node]->url = std::move(url); }

 private:
  static constexpr size_t kRegionsMax = 256;
  struct Node final : server::cluster::RegionRoutes {
    server::cluster::NodeId id = 0;
    std::string url;
    bool listens = true;
    std::array<server::cluster::RegionGates, kRegionsMax> gates;
    std::unique_ptr<server::membership::InProcessMembership> session;
    std::unique_ptr<server::cluster::ClusterTreeHost> host;
    std::unique_ptr<server::NativeServer> server;

    void set_table(std::shared_ptr<const server::cluster::RouteTable> told) {
      std::lock_guard lock(mutex);
      table = std::move(told);
    }
    server::cluster::NodeId self() const override { return id; }
    std::shared_ptr<const server::cluster::RouteTable> Now() const override {
      std::lock_guard lock(mutex);
      return table;
    }
    server::cluster::StoreUse Use(server::cluster::RegionId region) override {
      return server::cluster::StoreUse(&gates.at(static_cast<uint32_t>(region)).store);
    }
    server::cluster::CopyUse UseCopy(server::cluster::RegionId region) override {
      return server::cluster::CopyUse(&gates.at(static_cast<uint32_t>(region)).copy);
    }

    mutable std::mutex mutex;  // guards table
    std::shared_ptr<const server::cluster::RouteTable> table;
  };
  struct Store {
    MemoryStorage storage;
    std::unique_ptr<index::lsm::LsmStore> store;
    std::unique_ptr<index::lsm::Background> background;
  };
  struct Region {
    server::cluster::RegionId id;
    std::string start, end;
    size_t node = 0;
    bool deposed = false;
    std::unique_ptr<Store> store;
  };

  std::unique_ptr<Store> NewStore();
  const Region& RegionOf(std::string_view key) const;
  Region& RegionOf(std::string_view key) {
    return const_cast<Region&>(std::as_const(*this).RegionOf(key));
  }
  void Open(const Region& region);
  void CloseAndWait(const Region& region);
  /// Tells the nodes what is so now, those that listen, one after the other.
  void Publish();
  std::shared_ptr<const server::cluster::RouteTable> Table() const;
  void CopyFrom(const std::string& key, Store& from, Store* to);

  const Options options_;
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_;
  std::atomic<uint64_t> workers_{0};
  server::membership::InProcessService service_;
  std::unique_ptr<dsm::Worker> worker_;  // of who changes regions
  std::vector<Region> regions_;          // in the order of keys
  uint32_t view_ = 0;
  uint32_t last_region_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace farleaf::test
