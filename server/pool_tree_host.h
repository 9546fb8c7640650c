// PoolTreeHost: the trees of a pool of memory servers, as a front end serves them.
//
// A tree is opened once a process, when a client first asks for it, and stays open: its search-layer
// cache is shared by all threads. Whoever opens it reads the search layer as it is then, in large READs,
// before it is served; what that cost is logged and among the statistics.
// Thread rule: thread-safe. It is outlived by nothing that runs on it; the pool outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "dsm/pool.h"
#include "index/blink/tree.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

/// What a tree's page format is when a client names only some of it.
index::Geometry GeometryOf(protocol::TreeLayout layout, const protocol::TreeGeometry& wanted);

class PoolTreeHost final : public TreeHost {
 public:
  /// `bootstrap`: the URL by which `pool` was found, for whoever wants to look at the pool itself.
  /// `joins`: how often this process has joined it, this time included.
  PoolTreeHost(dsm::Pool* pool, std::string bootstrap, index::TreeOptions options,
               uint64_t joins = 1)
      : pool_(pool), bootstrap_(std::move(bootstrap)), options_(options), joins_(joins) {}

  uint32_t view() const override { return 1; }
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override { return pool_->OpenWorker(); }
  dsm::Task<Result<HostedTree>> Open(dsm::OpContext& op, std::string_view name) override;
  dsm::Task<Result<HostedTree>> Create(dsm::OpContext& op, const NewTree& tree) override;
  dsm::Task<Result<std::vector<protocol::TreeInfo>>> List(dsm::OpContext& op) override;
  HostedTree Find(uint32_t id) override;
  /// Also of trees that are not open, if something is to be done for them: a recovery of somebody dead may
  /// have left it.
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override;
  void AppendStats(std::string* text) const override;
  void AppendMetrics(MetricsText* out) const override;

  /// The open tree behind an id, for checks and tools; null if there is none.
  index::BlinkTree* FindTree(uint32_t id);

 private:
  /// What reading a tree's search layer took when it was opened.
  struct Warming {
    uint64_t round_trips = 0, bytes_read = 0, ns = 0;
  };
  struct OpenTree {
    std::unique_ptr<index::BlinkTree> tree;
    Warming warming;
  };
  /// The open tree of that id; `created`: it was opened by this call.
  HostedTree Keep(index::TreeInfo info, bool* created);
  dsm::Task<void> Warm(dsm::OpContext& op, uint32_t id);
  dsm::Task<Status> OpenThoseToKeepUp(dsm::OpContext& op);

  dsm::Pool* const pool_;
  const std::string bootstrap_;
  const index::TreeOptions options_;
  const uint64_t joins_;
  mutable std::mutex mutex_;  // guards trees_; the trees in it stay
  std::map<uint32_t, OpenTree> trees_;
};

}  // namespace farleaf::server
