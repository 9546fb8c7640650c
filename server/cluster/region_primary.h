// RegionPrimary: a node's part in a region that it is the primary of: it serves the region's store and has it copied to backups; splits it, and hands it
// over, if that is wished for.
//
//   opened ──► served ──► closed: handed over, split, or neither: RegionNode looks at the entry again, and begins anew if this node is the primary still
//
// Before a store is opened nobody else is in sync (TakeAlone): what the entry said of others was of the primary before; and two that begin from
// one state would give the same numbers to different segments.
//
// Thread rule: the control worker; `replicas` and its metrics by any thread. The membership, and all of `deps`, outlive it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "server/cluster/offer.h"
#include "server/cluster/region_deps.h"
#include "server/cluster/region_views.h"
#include "server/membership/region_store.h"
#include "server/replication/channel_port.h"
#include "server/replication/replica_set.h"

namespace farleaf::server::cluster {

/// What a region's primaries at this node, one after another, have done with others' memory.
struct WrittenMemory {
  const std::shared_ptr<replication::UnsettledMemory> unsettled =
      std::make_shared<replication::UnsettledMemory>();
  std::map<dsm::ServerId, dsm::MemberIdentity> lives;  ///< whose it is
  std::map<NodeId, uint64_t> tried;                    ///< the offers' tokens
};

class RegionPrimary {
 public:
  using Worker = dsm::Worker;
  using StoredRegion = membership::StoredRegion;
  /// Both outlive it.
  RegionPrimary(const RegionDeps* deps, WrittenMemory* written);
  ~RegionPrimary();

  /// Nobody else is in sync from here on, those who were are to be filled. `seen` becomes what the entry is then.
  dsm::Task<Status> TakeAlone(Worker& worker, StoredRegion* seen);
  /// What is in the directory, opened and served. REQUIRES: TakeAlone.
  dsm::Task<Status> Open(Worker& worker, const RegionEntry& region);
  /// What the entry asks for, of a region that this node is the primary of.
  dsm::Task<Status> Look(Worker& worker, StoredRegion seen);
  /// ReplicaSet::Stamp, unless that runs already, or nothing is served.
  dsm::Task<void> StampCopies(Worker& worker);
  /// Nothing is served any more, and the store is closed in good order.
  dsm::Task<Status> Close(Worker& worker);
  /// As far as it goes without waiting for others: of a life that is over. Nobody runs on the store when it returns.
  dsm::Task<void> GiveUp(Worker& worker);

  bool closed() const { return closed_; }
  bool serves() const { return serves_.load(); }
  const replication::ReplicaSet& replicas() const { return replicas_; }
  /// null: not open.
  index::lsm::LsmStore* store() const { return store_.get(); }
  /// What is waited for ends, as far as it waits for the membership or for backups.
  void Stop();
  /// The process is gone.
  void Abandon();

 private:
  dsm::Task<Status> KeepSafe(Worker& worker, const RegionEntry& region);
  dsm::Task<Status> FillBackups(Worker& worker, const RegionEntry& region);
  dsm::Task<void> Fill(Worker& worker, membership::NodeEntry node, Offer offer);
  dsm::Task<Result<Offer>> ReadOffer(Worker& worker, NodeId backup);
  dsm::Task<Status> ForgetGone(Worker& worker);
  dsm::Task<Status> HandOver(Worker& worker);
  dsm::Task<Status> Split(Worker& worker);
  dsm::Task<Status> DropOutside(Worker& worker, const RegionEntry& region);
  dsm::Task<void> DropLater(Worker& worker, const RegionEntry& region);
  dsm::Task<void> EndServing(Worker& worker);
  dsm::Task<void> EndBackground(Worker& worker, bool* ended);
  dsm::Task<void> EndFills(Worker& worker);
  /// The entry as it is, of a region that this node is the primary of still: else Fenced.
  dsm::Task<Result<StoredRegion>> GetOwn(Worker& worker);
  /// Close, and then the same.
  dsm::Task<Result<StoredRegion>> CloseOwn(Worker& worker);
  bool MayHandOver(const RegionEntry& region) const;
  bool IsMember(NodeId node) const;

  const RegionDeps& deps_;
  WrittenMemory& written_;
  membership::RegionStore regions_;
  RegionViews views_;
  replication::ReplicaSet replicas_;  // outlives the store
  std::unique_ptr<index::lsm::LsmStore> store_;
  std::atomic<bool> serves_{false}, stopping_{false};
  bool closed_ = false, background_ = false, stamping_ = false;
  bool drops_later_ = false;  // DropOutside, which waits for enough copies
  std::set<NodeId> fills_;    // under way
  std::vector<std::shared_ptr<replication::ChannelPort>> ports_;
};

}  // namespace farleaf::server::cluster
