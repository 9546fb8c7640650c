// Master: decides, for one region, who is its primary and who its backups, out of the nodes that are there. Of all nodes one is the
// master at a time (membership::Election); what a deposed one still writes is refused by the entry's version.
//
// What it does is a function of the nodes and the region's entry (NextView), so that it can be tried by itself:
//   - a primary that is gone is replaced by one that is in sync and there; all others are to be filled from it;
//   - is none of them there, the region is headless; as soon as one of them is back it becomes the primary, if all of them are back, or
//     after a while;
//   - who is gone leaves in_sync and filling; spare nodes are put into filling, until there are as many replicas as are wanted.
//
// Thread rule: one coroutine at a time, on one worker.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "server/membership/election.h"
#include "server/membership/region_store.h"

namespace farleaf::server::cluster {

using membership::NodeEntry;
using membership::NodeId;
using membership::RegionEntry;
using membership::RegionId;

struct MasterOptions {
  uint32_t replicas = 2;               ///< of each region, its primary included. 1..16
  uint64_t headless_wait_ms = 10'000;  ///< for the rest of those in sync, when some are back
};

/// What the region should become; nullopt: what it is. `waited`: those that are missing were waited for long enough.
std::optional<RegionEntry> NextView(const RegionEntry& region, const std::vector<NodeEntry>& nodes,
                                    uint32_t replicas, bool waited);

class Master {
 public:
  struct Deps {
    membership::Membership* session = nullptr;
    const Clock* clock = nullptr;  ///< the session's
    NodeId self = membership::kNoNode;
    std::string name;  ///< of this life, unlike all others'
    /// Makes an empty store of the region at this node, durable. What Ok has been said of is founded.
    std::function<dsm::Task<Status>(dsm::Worker& worker)> make_store;
  };
  Master(Deps deps, MasterOptions options);

  /// Until Stop, or until the session is over.
  dsm::Task<void> Run(dsm::Worker& worker);
  void Stop() { stopping_.store(true); }
  bool IsMaster() const { return election_.IsMaster(); }

 private:
  dsm::Task<Status> Look(dsm::Worker& worker);
  dsm::Task<Status> FoundMap(dsm::Worker& worker);
  dsm::Task<Status> LookAt(dsm::Worker& worker, RegionId id, const std::vector<NodeEntry>& nodes);

  const Deps deps_;
  const MasterOptions options_;
  membership::RegionStore regions_;
  membership::Election election_;
  std::atomic<bool> stopping_{false};
  std::optional<uint64_t> headless_since_ns_;  // as this master has seen it
};

}  // namespace farleaf::server::cluster
