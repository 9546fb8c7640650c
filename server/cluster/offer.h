// Offer: a backup tells its region's primary where the channel is: an ephemeral entry /offers/REGION-NODE.
//
//   offer = "FOFR" version(1)=2 primary:u16 primary_life:u64 life:u64 server:u16 area:u64 token:u64
//           end_bytes:u32 end crc32c:u32
//
// Little-endian; the crc covers all in front of it.
//
// Thread rule: value types and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "dsm/address.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeId;
using membership::RegionId;

struct Offer {
  NodeId primary = membership::kNoNode;  ///< whom it is made to
  uint64_t primary_life = 0;
  uint64_t life = 0;         ///< of the backup
  dsm::ServerId server = 0;  ///< of its memory
  uint64_t area = 0;         ///< offset in that memory
  uint64_t token = 0;        ///< of the channel; a new one for each try
  std::string end;           ///< the region's, as the backup has seen it
  bool operator==(const Offer&) const = default;
};

inline constexpr const char* kOffersPath = "/offers";
std::string OfferPath(RegionId region, NodeId backup);
std::string EncodeOffer(const Offer& offer);
/// Corruption, naming the entry.
Result<Offer> ParseOffer(const std::string& path, std::span<const std::byte> bytes);

}  // namespace farleaf::server::cluster
