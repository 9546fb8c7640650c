// Master: decides of all regions who is their primary and who their backups, out of the nodes that are there. Of all nodes one is the
// master at a time (membership::Election); what a deposed one still writes is refused by the entry's version.
//
// What it does is a function of the nodes and the regions' entries (placement.h), so that it can be tried by itself. Where there is no map the master founds one, at
// its own node: of one region, or cut at the keys of founding.h.
//
// Thread rule: one coroutine at a time, on one worker.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "server/cluster/placement.h"
#include "server/membership/election.h"
#include "server/membership/region_store.h"

namespace farleaf::server::cluster {

struct MasterOptions {
  uint32_t replicas = 2;               ///< of each region, its primary included. 1..16
  uint64_t headless_wait_ms = 10'000;  ///< for the rest of those in sync, when some are back
};

class Master {
 public:
  struct Deps {
    membership::Membership* session = nullptr;
    const Clock* clock = nullptr;  ///< the session's
    NodeId self = membership::kNoNode;
    std::string name;  ///< of this life, unlike all others'
    /// Makes an empty store of the region at this node, durable; again does no harm. What Ok has been said of may be founded, and is not if the map was founded
    /// by another one.
    std::function<dsm::Task<Status>(dsm::Worker& worker, RegionId region)> make_store;
  };
  Master(Deps deps, MasterOptions options);

  /// Until Stop, or until the session is over.
  dsm::Task<void> Run(dsm::Worker& worker);
  void Stop() { stopping_.store(true); }
  bool IsMaster() const { return election_.IsMaster(); }

 private:
  using StoredRegion = membership::StoredRegion;
  dsm::Task<Status> Look(dsm::Worker& worker);
  dsm::Task<Status> FoundMap(dsm::Worker& worker);
  dsm::Task<Status> ChangeRegion(dsm::Worker& worker, StoredRegion seen, RegionEntry next);
  /// Until something is to be looked at again: `seen` is the count of changes before the last look.
  dsm::Task<void> AwaitSomething(dsm::Worker& worker, uint64_t seen);
  /// Those that are headless, as this master sees it, for headless_wait_ms.
  std::vector<RegionId> NoteHeadless(const std::vector<RegionEntry>& regions);

  const Deps deps_;
  const MasterOptions options_;
  membership::RegionStore regions_;
  membership::Election election_;
  std::atomic<bool> stopping_{false};
  std::map<RegionId, uint64_t> headless_since_ns_;  // as this master has seen it
  std::vector<RegionId> founding_ids_;              // drawn for the first map, and not given yet
};

}  // namespace farleaf::server::cluster
