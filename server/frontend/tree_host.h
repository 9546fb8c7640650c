// TreeHost: what a front end serves. It names trees, gives access to them, and opens the workers on
// which a front end's threads run their operations.
//
// Invariants: a tree that was opened stays valid as long as the host; its id names nothing else in
// the host's life.
// Thread rule: thread-safe. The coroutines run on the worker of their OpContext.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/protocol.h"
#include "dsm/worker.h"
#include "index/range_index.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

namespace protocol = client::protocol;

struct HostedTree {
  protocol::TreeInfo info;
  index::RangeIndex* index = nullptr;
};

struct NewTree {
  std::string name;
  protocol::TreeLayout layout = protocol::TreeLayout::kBytes;
  protocol::TreeGeometry geometry{};
};

class TreeHost {
 public:
  virtual ~TreeHost() = default;

  /// The number of the map of key ranges to servers; requests routed by another are refused.
  virtual uint32_t view() const = 0;
  /// The map and its number, which go together. One range, served by whoever was asked, unless keys are divided among servers
  /// (server/cluster).
  virtual void GetRangeMap(uint32_t* view, std::vector<protocol::ServedRange>* ranges) const {
    *view = this->view();
    *ranges = {{.start = "", .url = ""}};
  }
  virtual Result<std::unique_ptr<dsm::Worker>> OpenWorker() = 0;

  /// NotFound if there is no such tree.
  virtual dsm::Task<Result<HostedTree>> Open(dsm::OpContext& op, std::string_view name) = 0;
  /// AlreadyExists if the name is taken.
  virtual dsm::Task<Result<HostedTree>> Create(dsm::OpContext& op, const NewTree& tree) = 0;
  /// All trees there are, by name.
  virtual dsm::Task<Result<std::vector<protocol::TreeInfo>>> List(dsm::OpContext& op) = 0;
  /// A tree that was opened or created through this host; its index is null if there is none.
  virtual HostedTree Find(uint32_t id) = 0;
  /// Whether writes can be so durable; else InvalidArgument.
  virtual Status CheckDurability(WriteDurability wanted) const {
    if (wanted == WriteDurability::kOfStore) return Status::Ok();
    return Status::InvalidArgument(
        "this server keeps trees in memory: a write cannot be asked to be replicated or synced");
  }
  /// RangeIndex::Upkeep of all trees, on this worker.
  virtual dsm::Task<Status> Upkeep(dsm::OpContext& op) = 0;

  /// Appends lines `name value`.
  virtual void AppendStats(std::string* text) const = 0;
  virtual void AppendMetrics(MetricsText*) const {}
};

}  // namespace farleaf::server
