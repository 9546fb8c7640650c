// Held: what a node has of a region on its disk, of which nobody has anything in memory any more: an ephemeral entry /held/REGION-NODE. Of those
// who were in sync the one that holds most becomes the primary (DESIGN section 6, rule (i)).
//
//   held = "FHLD" version(1)=1 life:u64 epoch:u64 sequence:u64 crc32c:u32
//
// Little-endian; the crc covers all in front of it.
//
// Thread rule: that of Membership.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "index/lsm/store_copy.h"
#include "server/membership/membership.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeId;
using membership::RegionId;

struct Held {
  RegionId region = RegionId::kNone;
  NodeId node = membership::kNoNode;
  uint64_t life = 0;                ///< of the node
  index::lsm::HeldThrough through;  ///< 0, 0: no copy that is whole
  bool operator==(const Held&) const = default;
};

inline constexpr const char* kHeldPath = "/held";

/// Until the session ends, or WithdrawHeld. Again does no harm.
dsm::Task<Status> TellHeld(dsm::Worker& worker, membership::Membership& session, Held held);
dsm::Task<Status> WithdrawHeld(dsm::Worker& worker, membership::Membership& session,
                               RegionId region, NodeId node);
/// All that is told. What is watched is who tells. Corruption names the entry.
dsm::Task<Result<std::vector<Held>>> ReadHeld(dsm::Worker& worker, membership::Membership& session,
                                              membership::Watch watch);

/// "/held/7-3".
std::string HeldPath(RegionId region, NodeId node);
std::string EncodeHeld(const Held& held);
Result<Held> ParseHeld(const std::string& path, std::span<const std::byte> bytes);

}  // namespace farleaf::server::cluster
