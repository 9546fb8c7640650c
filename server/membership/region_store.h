// RegionStore: the nodes and the regions, as entries of a Membership.
//
//   /nodes/ID          a node that is there (NodeEntry), ephemeral
//   /regions/ID        a region (RegionEntry), persistent; ID is ten digits
//   /map               no bytes; set by each commit that changes a region, so that its version is the map's
//   /next_region       a counter (counters.h): ids of regions are never used again
//   /incarnations/ID   a counter for each node
//
// A region changes by compare-and-set of its entry, together with /map, in one commit: so who changes one region is not
// disturbed by changes of others, and the map's version grows with each change. A split creates the right region in the commit
// that cuts the left one. So at each version the regions cover all keys, each once.
//
// Read takes /map's version before and after it reads the regions; a session never goes back, so that equal versions say that the
// regions are those of that version. Whoever wants to hear of changes reads Version with Watch::kChanges, and awaits /map.
//
// Thread rule: that of Membership, which outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/membership/membership.h"
#include "server/membership/region_map.h"

namespace farleaf::server::membership {

/// A region and the version of its entry, which a change of it names.
struct StoredRegion {
  RegionEntry region;
  Version version = 0;
};

class RegionStore {
 public:
  static constexpr const char* kMapPath = "/map";
  static constexpr const char* kNodesPath = "/nodes";
  static constexpr const char* kRegionsPath = "/regions";

  explicit RegionStore(Membership* session) : session_(session) {}

  /// Makes the paths of above. Whoever uses an empty service first calls it; again does no harm.
  dsm::Task<Status> Prepare(dsm::Worker& worker);

  /// This node is there, until its session ends. AlreadyExists: another session has that id.
  dsm::Task<Status> Announce(dsm::Worker& worker, NodeEntry node);
  /// Those that are there, by id.
  dsm::Task<Result<std::vector<NodeEntry>>> Nodes(dsm::Worker& worker, Watch watch);

  /// The first regions, which cover all keys, with ids of NextRegion; their views are given here. `with`: changes that are committed together with
  /// these. AlreadyExists: there is a map. Otherwise what does not fit of `with`.
  dsm::Task<Result<RegionMap>> Found(dsm::Worker& worker, std::vector<RegionEntry> regions,
                                     std::vector<Change> with);
  /// NotFound: no map was founded.
  dsm::Task<Result<uint64_t>> MapVersion(dsm::Worker& worker, Watch watch);
  /// NotFound: no map was founded. Unavailable: it changes faster than it can be read. Corruption.
  dsm::Task<Result<RegionMap>> Read(dsm::Worker& worker);
  dsm::Task<Result<StoredRegion>> Get(dsm::Worker& worker, RegionId id, Watch watch);
  /// Each region as it was at some moment of this call, by id: what is changed of them is changed one by one. What is watched is each of them, and
  /// which there are.
  dsm::Task<Result<std::vector<StoredRegion>>> All(dsm::Worker& worker, Watch watch);

  /// Commits `changed` in the place of `seen`: all but its keys and its id, which stay; view and moves are given here. VersionMismatch: somebody else has changed it.
  dsm::Task<Result<StoredRegion>> ChangeView(dsm::Worker& worker, StoredRegion seen,
                                             RegionEntry changed);
  /// An id that no region has, nor will be given again.
  dsm::Task<Result<RegionId>> NextRegion(dsm::Worker& worker);
  /// Cuts `seen` at `key`, which becomes the first of a new region `right` (of NextRegion) with the same primary and members. Both have the
  /// next view, and nothing is wished for them but where they are to be.
  dsm::Task<Result<std::pair<StoredRegion, StoredRegion>>> Split(dsm::Worker& worker,
                                                                 StoredRegion seen, std::string key,
                                                                 RegionId right);

 private:
  Membership* const session_;
};

/// "/regions/0000000007".
std::string RegionPath(RegionId id);
std::string NodePath(NodeId id);

}  // namespace farleaf::server::membership
