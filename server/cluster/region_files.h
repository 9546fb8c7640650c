// RegionFiles: the directories of a node's regions, DIRECTORY/region-0000000007, their stores, and what works in the background of these.
//
// What takes its time runs on a thread of its own, while the control worker goes on with other regions.
//
// Thread rule: the control worker's thread, after that has begun; the rest before, or behind its end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/epoch.h"
#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"
#include "server/lsm/lsm_engine.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::RegionId;

class RegionFiles {
 public:
  using Worker = dsm::Worker;
  struct Deps {
    LsmEngineOptions lsm;
    dsm::EpochDomain* epochs = nullptr;
    const Clock* wall = nullptr;
    uint64_t seed = 1;
    std::function<Result<std::unique_ptr<Worker>>()> open_worker;
  };
  /// InvalidArgument: the directory is somebody else's. Makes it if there is none.
  static Result<std::unique_ptr<RegionFiles>> Open(Deps deps);

  /// Of the region's directory, made if there is none.
  Result<index::storage::Storage*> StorageOf(RegionId region);
  /// An empty store, durable.
  dsm::Task<Status> MakeStore(Worker& worker, RegionId region);
  dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>> OpenStore(Worker& worker,
                                                                     RegionId region,
                                                                     index::lsm::Mirror* mirror);
  Status BeginBackground(RegionId region, index::lsm::LsmStore* store);
  dsm::Task<void> EndBackground(Worker& worker, RegionId region);
  /// Links what can be linked. REQUIRES: no store is open in `from`.
  dsm::Task<Status> CopyStore(Worker& worker, RegionId from, RegionId to);
  Status Remove(RegionId region);
  /// Directories of regions that are not in the map.
  Status RemoveOthers(const membership::RegionMap& map);

 private:
  explicit RegionFiles(Deps deps) : deps_(std::move(deps)) {}
  std::string PathOf(RegionId region) const;

  const Deps deps_;
  std::map<RegionId, std::unique_ptr<index::storage::FileStorage>> storages_;
  std::map<RegionId, std::unique_ptr<index::lsm::Background>> backgrounds_;
};

}  // namespace farleaf::server::cluster
