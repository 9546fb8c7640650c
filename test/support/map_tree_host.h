// MapTreeHost: a TreeHost over MapIndex, for tests of front ends and clients.
//
// Thread rule: thread-safe. It outlives the servers that use it; its trees outlive servers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/epoch.h"
#include "dsm/shm/local_fabric.h"
#include "server/frontend/tree_host.h"
#include "test/support/map_index.h"

namespace farleaf::test {

class MapTreeHost final : public server::TreeHost {
 public:
  explicit MapTreeHost(const Clock* clock);
  ~MapTreeHost() override;

  uint32_t view() const override { return view_.load(); }
  void set_view(uint32_t view) { view_.store(view); }

  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override;
  dsm::Task<Result<server::HostedTree>> Open(dsm::OpContext&, std::string_view name) override;
  dsm::Task<Result<server::HostedTree>> Create(dsm::OpContext&,
                                               const server::NewTree& tree) override;
  dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> List(dsm::OpContext&) override;
  server::HostedTree Find(uint32_t id) override;
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override;
  void AppendStats(std::string* text) const override { text->append("host.kind map\n"); }

  /// Adds a tree without a server.
  MapIndex& Add(const std::string& name,
                server::protocol::TreeLayout layout = server::protocol::TreeLayout::kBytes);
  /// As another server would, gives the trees ids that mean other trees, or nothing, to the old
  /// one.
  void RenumberTrees();

 private:
  struct Tree {
    std::unique_ptr<MapIndex> index;
    server::HostedTree hosted;
  };
  Tree& AddLocked(const std::string& name, server::protocol::TreeLayout layout);

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
