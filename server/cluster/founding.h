// Founding: where the first map of regions is to be cut: an entry /founding, which is there before the map is, and goes in the commit that founds it.
//
//   founding = "FFND" version(1)=1 keys:u16 { string16 }*keys crc32c:u32
//
// Little-endian; string16 = bytes:u16 bytes*; the crc covers all in front of it. Keys are ascending, none empty.
//
// Thread rule: value types and pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dsm/base/result.h"

namespace farleaf::server::cluster {

inline constexpr const char* kFoundingPath = "/founding";
inline constexpr size_t kFoundingKeysMax = 1'000;
/// Of a key's bytes: each is in two regions' entries, and all of these are one commit (membership::kEntryBytesMax).
inline constexpr size_t kFoundingBytesMax = size_t{192} << 10;

/// InvalidArgument: not ascending, one empty or too long for a region, or too many.
Status CheckFoundingKeys(const std::vector<std::string>& keys);
/// REQUIRES: CheckFoundingKeys is Ok.
std::string EncodeFounding(const std::vector<std::string>& keys);
/// Corruption.
Result<std::vector<std::string>> ParseFounding(std::span<const std::byte> bytes);

}  // namespace farleaf::server::cluster
