// The handshake of dsm/handshake.h in the private data of librdmacm's connection messages, which
// have little room. A connect request carries a Hello (with a part of the cluster's name), an acceptance
// the Welcome with where the region is, a rejection why.
//
//   request  56 B: u32 magic "FLVB" · u16 version · u16 memory server · u16 compute server ·
//                  u8 kind · u8 0 · u16 id to cut off · u16 hash of the cluster's name · u64 the compute server's incarnation ·
//                  u64 incarnation to cut off · u64 nonce · first 16 bytes of the cluster's
//                  name, or zeros behind it
//   accept   40 B: u32 magic · u16 version · u16 memory server · u64 region bytes ·
//                  u64 region incarnation · u64 remote address of the region · u32 key · u32 0
//   reject   10 B: u32 magic · u16 version · u16 memory server · u8 status code · u8 bytes of the message · message
//
// Little-endian; zeros may follow. A rejection with status code 0 confirms a cut-off.
// Thread rule: pure functions. Bytes from outside never fail a check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/handshake.h"

namespace farleaf::dsm {

inline constexpr size_t kConnectDataBytesMax = 56;  ///< what librdmacm leaves of a request
inline constexpr size_t kRejectDataBytesMax = 148;

/// Where a region is for the NIC.
struct RemoteRegion {
  RegionInfo info;
  uint64_t address = 0;
  uint32_t key = 0;
};

std::string EncodeConnectData(const Hello& hello);
std::string EncodeAcceptData(const RemoteRegion& region);
/// Of memory server `server`.
std::string EncodeRejectData(ServerId server, const Status& why);

/// Corruption: not of this protocol, or too short. A Hello of another version holds its version and
/// nothing else. The Hello's cluster is `cluster` if it can be that; else what of its name came ('?' for
/// what no name has, '*' for what may follow), which is never `cluster`.
Result<Hello> ParseConnectData(std::string_view bytes, const std::string& cluster);
Result<RemoteRegion> ParseAcceptData(std::string_view bytes);
/// The returned status: whether the bytes could be parsed. `refusal`: who says what; of another version only what.
Status ParseRejectData(std::string_view bytes, Welcome* refusal);

}  // namespace farleaf::dsm
