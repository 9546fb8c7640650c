// RegionBackup: a node's part in a region that another node is the primary of: it keeps a copy, and has itself filled.
//
// It makes an offer to the primary's life, with a new token for each try, once nothing of the primary before can land in this node's memory: that one's life is
// over, and cut off here; or it has handed the region over, and had ended what it did here (README.md, "Cutting off").
//
// Of the copy those keys are read that were the region's when the offer was made, which is what the primary looks at before it takes it (README.md, "Reads of
// copies").
//
// Its area stays its own as long as the node lives: what was on its way to it finds the same region there, or a record's checksum.
//
// Thread rule: the control worker.
#pragma once

#include <memory>
#include <optional>

#include "dsm/base/random.h"
#include "server/cluster/offer.h"
#include "server/cluster/region_deps.h"
#include "server/membership/region_store.h"
#include "server/replication/backup_region.h"

namespace farleaf::server::cluster {

class RegionBackup {
 public:
  using Worker = dsm::Worker;
  /// `deps` outlives it.
  explicit RegionBackup(const RegionDeps* deps);

  /// As the entry says: opens the copy, and makes offers while it is to be filled.
  dsm::Task<Status> Follow(Worker& worker, const membership::RegionEntry& region);
  /// Tells what is held here of a region that is headless, once in this life: nobody has anything of it in memory.
  dsm::Task<Status> Tell(Worker& worker);
  enum class Why : uint8_t {
    kPromoted,
    kSentAway,  ///< what is here is wanted no more
    kLifeEnds,  ///< this node's, and its memory with it
  };
  /// Nothing is served any more to whoever was primary, and nothing of it can land here: what is in memory is in the directory, which LsmStore::Open
  /// recovers if the copy was whole. Of a promotion that failed: it is still open, and End is to be called again.
  dsm::Task<Status> End(Worker& worker, Why why);
  bool is_open() const { return backup_ != nullptr; }

 private:
  using NodeEntry = membership::NodeEntry;
  dsm::Task<Status> Open(Worker& worker);
  dsm::Task<void> Serve(Worker& worker);
  dsm::Task<Status> CutOffLast(Worker& worker);
  dsm::Task<Status> MakeOffer(Worker& worker, const membership::RegionEntry& region,
                              const NodeEntry& primary);
  dsm::Task<Status> Withdraw(Worker& worker);
  void OpenToReaders(const membership::RegionEntry& region);
  dsm::Task<void> CloseToReaders(Worker& worker);

  const RegionDeps& deps_;
  membership::RegionStore regions_;
  Random random_;
  std::optional<dsm::Area> area_;
  std::unique_ptr<replication::BackupRegion> backup_;
  bool serving_ = false;          // Serve runs
  bool told_ = false;             // what is held
  std::optional<Offer> offered_;  // that stands
  uint64_t offered_ns_ = 0, messages_seen_ = 0;
  dsm::MemberIdentity last_primary_;  // that was let in here, and is not cut off
};

/// Of those that are there; nullopt: it is not.
dsm::Task<Result<std::optional<membership::NodeEntry>>> FindNode(dsm::Worker& worker,
                                                                 membership::RegionStore& regions,
                                                                 NodeId id);

}  // namespace farleaf::server::cluster
