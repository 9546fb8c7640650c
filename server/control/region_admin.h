// RegionAdmin: what an operator sees and wishes of a cluster's regions, by way of the membership: he writes wishes into their entries; who carries them out is the
// master and the regions' primaries (server/cluster/README.md). So a wish stays when the waiting for it ends.
//
// Failures name what is wrong as an operator types it: keys as text (text_form.h). NotFound: there is no such region, node or map. InvalidArgument: the
// wish makes no sense. AlreadyExists: another wish stands in its way. DeadlineExceeded: it has not come about yet, with what is missing. Unavailable:
// it comes about no more; or the membership is away. Unknown: it may be wished or not.
//
// Thread rule: one coroutine at a time, on one worker. The membership outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "server/membership/region_store.h"

namespace farleaf::server {

struct RegionListing {
  uint64_t map_version = 0;
  std::vector<membership::RegionEntry> regions;  ///< in the order of their keys
  std::vector<membership::NodeEntry> nodes;      ///< that are there, by id
  std::vector<membership::NodeId> leaving;       ///< ascending
};

enum class RegionWait : uint8_t { kNo, kUntilDone };

class RegionAdmin {
 public:
  using Worker = dsm::Worker;
  using RegionId = membership::RegionId;
  using NodeId = membership::NodeId;
  struct Deps {
    membership::Membership* session = nullptr;
    const Clock* clock = nullptr;  ///< the session's
    uint64_t wait_ms = 600'000;    ///< for a wish to come about
    /// Told what is still missing, again and again; may be empty.
    std::function<void(std::string_view missing)> progress;
  };
  explicit RegionAdmin(Deps deps)
      : deps_(std::move(deps)), store_(deps_.session), session_(*deps_.session) {}

  dsm::Task<Result<RegionListing>> List(Worker& worker);
  /// Where the first map is cut, when a node founds it. In any order, each once.
  dsm::Task<Status> Create(Worker& worker, std::vector<std::string> keys);
  /// Region `id`, or the one that has `key` if it is kNone. The new region, which begins at `at`; kNone: it was not waited for.
  dsm::Task<Result<RegionId>> Split(Worker& worker, RegionId id, std::string key, std::string at,
                                    RegionWait wait);
  /// `node` is to be its primary.
  dsm::Task<Status> Move(Worker& worker, RegionId id, NodeId node, RegionWait wait);
  /// All of `nodes` are to have it, and nobody else; empty: as the master sees fit, which is not waited for.
  dsm::Task<Status> Assign(Worker& worker, RegionId id, std::vector<NodeId> nodes, RegionWait wait);

 private:
  /// Makes of an entry what is wished; false: it is wished already.
  using Wishing = std::function<Result<bool>(membership::RegionEntry* region)>;
  /// What is missing; empty: nothing.
  using Missing = std::function<Result<std::string>(const RegionListing& listing)>;
  dsm::Task<Status> Wish(Worker& worker, RegionId id, const Wishing& wish);
  dsm::Task<Status> Await(Worker& worker, const Missing& missing);
  dsm::Task<Result<bool>> HasMap(Worker& worker);

  const Deps deps_;
  membership::RegionStore store_;
  membership::Membership& session_;
};

}  // namespace farleaf::server
