// RegionDeps: what a region's part at a node stands on. The same for both roles, region_backup.h and region_primary.h.
//
// Thread rule: all is called on the control worker, and outlives the part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "dsm/area_allocator.h"
#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/member.h"
#include "index/lsm/store.h"
#include "server/cluster/region_routes.h"
#include "server/membership/membership.h"
#include "server/replication/area_layout.h"
#include "server/replication/backup_region.h"
#include "server/replication/channel_server.h"

namespace farleaf::server::cluster {

/// This node's registered memory, as one region's part uses it.
struct NodeMemory {
  dsm::ServerId server = 0;
  replication::AreaLayout layout;
  dsm::AreaAllocator* areas = nullptr;
  std::function<std::span<std::byte>(dsm::Area area)> bytes;
  /// Nothing of that life of a node can land here any more. May block for a moment.
  std::function<Status(const dsm::MemberIdentity& life)> cut_off;
};

struct RegionDeps {
  using Worker = dsm::Worker;
  membership::Membership* session = nullptr;
  const Clock* clock = nullptr;  ///< the session's
  RegionId region = RegionId::kNone;
  dsm::MemberIdentity self;  ///< node, and life as its incarnation
  NodeMemory memory;
  replication::ChannelServerOptions channel = {};
  replication::BackupRegion::Reads reads = {};  ///< of the copy, while this node is a backup
  index::lsm::CheckMemory* checks = nullptr;    ///< of the node: replication::BackupRegion::Deps
  uint32_t min_in_sync = 1;      ///< so many nodes have a write before it is acknowledged
  uint64_t seed = 1;             ///< of tokens: drawn at random, but for simulations
  RegionGates* gates = nullptr;  ///< by which the store, or the copy, is used while it is served

  /// The fabric of all workers knows that memory, of that life of a node, from now on (PeerMemories::Add).
  std::function<Status(const dsm::MemberIdentity& life, const dsm::ServerEndpoint& memory)>
      add_peer;
  /// The region's directory, made if there is none. Good until `copy_store` or `remove`.
  std::function<Result<index::storage::Storage*>()> storage;
  /// What is in the directory, with that mirror.
  std::function<dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>>(
      Worker& worker, index::lsm::Mirror* mirror)>
      open_store;
  /// Starts what works in the background of the store; and ends it, without holding up the worker.
  std::function<Status(index::lsm::LsmStore* store)> begin_background;
  std::function<dsm::Task<void>(Worker& worker)> end_background;
  /// Makes another region's directory, where there was none, of this one's, in which no store is open: durable when it is Ok.
  std::function<dsm::Task<Status>(Worker& worker, RegionId to)> copy_store;
  /// The region is not kept here any more: its directory goes.
  std::function<Status()> remove;
};

std::string NameOf(RegionId region);

}  // namespace farleaf::server::cluster
