// RegionNode: a node's part in one region, for one life of the node: it looks at the region's entry whenever that changes, and is the
// primary, a backup, or nothing, as the entry says.
//
//   nothing ──► backup ──► primary        primary ──► over: Run ends with Fenced, and the node begins another life
//      ▲           │
//      └───────────┘
//
// A backup makes an offer to the primary's life, with a new token for each try, once the life before has been cut off at this node's memory. A backup that is named
// primary cuts the old one off, makes a store of its copy, opens and serves it, and fills those in `filling` when their offers come.
//
// Thread rule: Run and what it calls: one worker, the control worker. store() and the status by any thread. What it is given outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "dsm/directory.h"
#include "dsm/member.h"
#include "index/lsm/store.h"
#include "server/cluster/offer.h"
#include "server/cluster/region_views.h"
#include "server/membership/region_store.h"
#include "server/replication/backup_region.h"
#include "server/replication/replica_set.h"

namespace farleaf::server::cluster {

enum class Role : uint8_t { kNothing, kBackup, kPrimary };

class RegionNode {
 public:
  using Worker = dsm::Worker;
  struct Deps {
    membership::Membership* session = nullptr;
    const Clock* clock = nullptr;  ///< the session's
    RegionId region = RegionId::kNone;
    dsm::MemberIdentity self;  ///< node, and life as its incarnation
    index::storage::Storage* storage = nullptr;
    // This node's registered memory, for one area.
    dsm::ServerId server = 0;
    std::span<std::byte> area;
    uint64_t area_offset = 0;
    replication::AreaLayout layout;
    /// Nothing of that life of a node can land in this node's memory any more. May block for a moment.
    std::function<Status(const dsm::MemberIdentity& life)> cut_off;
    /// The fabric of all workers knows that memory from now on.
    std::function<Status(const dsm::ServerEndpoint& peer)> add_peer;
    /// What is in `storage`, with that mirror.
    std::function<dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>>(
        Worker& worker, index::lsm::Mirror* mirror)>
        open_store;
    /// Starts what works in the background of the store. It is served from now on.
    std::function<Status(index::lsm::LsmStore* store)> serve;
    replication::ChannelServerOptions channel = {};
    uint64_t seed = 1;  ///< of tokens: drawn at random, but for simulations
  };
  explicit RegionNode(Deps deps);
  ~RegionNode();

  /// Leaves what an earlier life of this node was, by cases in README.md. REQUIRES: before the node is announced.
  dsm::Task<Status> LeaveOldLife(Worker& worker);
  /// Until Stop (Ok), or until this life is over: Fenced.
  dsm::Task<Status> Run(Worker& worker);
  /// Run ends soon, and what it has spawned. A backup's memory is on its disk when it has.
  void Stop();
  /// No backup is filled from here on: the store is about to be closed.
  void FillNobody() { fills_nobody_.store(true); }
  /// The process is gone.
  void Abandon();

  Role role() const { return role_.load(); }
  /// Once this node is the primary; null before. Until this is destroyed.
  index::lsm::LsmStore* store() const { return serving_.load(); }
  /// REQUIRES: it is the primary.
  const replication::ReplicaSet& replicas() const { return *replicas_; }

 private:
  using StoredRegion = membership::StoredRegion;
  dsm::Task<Status> Look(Worker& worker);
  dsm::Task<Status> Follow(Worker& worker, const RegionEntry& region);
  dsm::Task<Status> OpenBackup(Worker& worker);
  dsm::Task<void> ServeBackup(Worker& worker);
  /// Nothing is served any more to whoever was primary, and nothing of its can land here.
  dsm::Task<Status> EndBackup(Worker& worker);
  dsm::Task<Status> MakeOffer(Worker& worker, const membership::NodeEntry& primary);
  dsm::Task<Status> Withdraw(Worker& worker);
  dsm::Task<Status> BecomePrimary(Worker& worker);
  dsm::Task<Status> FillBackups(Worker& worker, const RegionEntry& region);
  dsm::Task<void> Fill(Worker& worker, membership::NodeEntry node, Offer offer);
  dsm::Task<Result<Offer>> ReadOffer(Worker& worker, NodeId backup);
  dsm::Task<Result<std::optional<membership::NodeEntry>>> FindNode(Worker& worker, NodeId id);
  Status CutOffLast();

  const Deps deps_;
  membership::RegionStore regions_;
  Random random_;
  std::atomic<Role> role_{Role::kNothing};
  std::atomic<bool> stopping_{false}, fills_nobody_{false};

  // A backup:
  std::unique_ptr<replication::BackupRegion> backup_;
  bool serving_backup_ = false;   // ServeBackup runs
  std::optional<Offer> offered_;  // that stands
  uint64_t offered_ns_ = 0, messages_seen_ = 0;
  dsm::MemberIdentity last_primary_;  // that was let in here, and is not cut off

  // The primary:
  RegionViews views_;
  std::unique_ptr<replication::ReplicaSet> replicas_;  // outlives the store
  std::unique_ptr<index::lsm::LsmStore> store_;
  std::atomic<index::lsm::LsmStore*> serving_{nullptr};
  std::set<NodeId> fills_;            // under way
  std::map<NodeId, uint64_t> tried_;  // tokens
  std::vector<std::shared_ptr<replication::ChannelPort>> ports_;
};

}  // namespace farleaf::server::cluster
