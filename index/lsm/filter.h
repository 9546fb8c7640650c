// Bloom filters in lines of 64 bytes: all bits of a key are in one line, so that a probe costs one cache miss.
//
// The hash is part of the format. Measured false positive rates: FilterTest.FalsePositiveRates.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "dsm/base/bytes.h"

namespace farleaf::index::lsm {

inline constexpr uint32_t kFilterLineBytes = 64;

namespace internal {
inline uint64_t FoldMultiply(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
}  // namespace internal

/// Of a key, for filters. 16 bytes a step; the last step may overlap the one before (as wyhash does).
inline uint64_t HashKey(std::string_view key) {
  constexpr uint64_t kA = 0xa0761d6478bd642f, kB = 0xe7037ed1a0b428db, kC = 0x8ebc6af09c88c6e3;
  const char* at = key.data();
  const size_t bytes = key.size();
  uint64_t state = kC ^ bytes, low = 0, high = 0;
  if (bytes > 16) [[likely]] {
    for (const char* const last = at + bytes - 16; at < last; at += 16) {
      state = internal::FoldMultiply(LoadLittle<uint64_t>(at) ^ kA,
                                     LoadLittle<uint64_t>(at + 8) ^ state);
    }
    low = LoadLittle<uint64_t>(key.data() + bytes - 16);
    high = LoadLittle<uint64_t>(key.data() + bytes - 8);
  } else if (bytes >= 8) {
    low = LoadLittle<uint64_t>(at);
    high = LoadLittle<uint64_t>(at + bytes - 8);
  } else if (bytes >= 4) {
    low = LoadLittle<uint32_t>(at);
    high = LoadLittle<uint32_t>(at + bytes - 4);
  } else if (bytes > 0) {
    low = static_cast<uint64_t>(static_cast<uint8_t>(at[0])) << 16 |
          static_cast<uint64_t>(static_cast<uint8_t>(at[bytes / 2])) << 8 |
          static_cast<uint8_t>(at[bytes - 1]);
  }
  return internal::FoldMultiply(kB ^ bytes, internal::FoldMultiply(low ^ kB, high ^ state));
}

/// How many bits of its line a key sets. 1..10.
constexpr uint32_t FilterProbes(uint32_t bits_per_key) {
  // Fewer than bits * ln 2: the fuller lines would suffer more than the others gain.
  const uint32_t probes = bits_per_key * 6 / 10;
  return probes < 1 ? 1 : probes > 10 ? 10 : probes;
}

/// Lines for so many keys. At least one.
constexpr uint32_t FilterLines(uint64_t keys, uint32_t bits_per_key) {
  const uint64_t bits = kFilterLineBytes * 8;
  const uint64_t lines = (keys * bits_per_key + bits - 1) / bits;
  return lines == 0 ? 1 : lines > UINT16_MAX ? UINT16_MAX : static_cast<uint32_t>(lines);
}

namespace internal {
/// The upper half chooses the line, the lower one the bits.
inline uint32_t LineOf(uint64_t hash, uint32_t lines) {
  return static_cast<uint32_t>(((hash >> 32) * lines) >> 32);
}
}  // namespace internal

/// REQUIRES: `filter` is a whole number of lines, not 0.
inline void AddToFilter(std::span<std::byte> filter, uint32_t probes, uint64_t hash) {
  const auto lines = static_cast<uint32_t>(filter.size() / kFilterLineBytes);
  std::byte* const line = filter.data() + size_t{internal::LineOf(hash, lines)} * kFilterLineBytes;
  auto bits = static_cast<uint32_t>(hash);
  for (uint32_t i = 0; i < probes; ++i, bits *= 0x9e3779b9) {
    line[bits >> 26] |= std::byte{1} << (bits >> 23 & 7);
  }
}

/// False: no key of this hash was added.
inline bool MayContain(const std::byte* filter, uint32_t lines, uint32_t probes, uint64_t hash) {
  const std::byte* const line = filter + size_t{internal::LineOf(hash, lines)} * kFilterLineBytes;
  auto bits = static_cast<uint32_t>(hash);
  for (uint32_t i = 0; i < probes; ++i, bits *= 0x9e3779b9) {
    if ((line[bits >> 26] & std::byte{1} << (bits >> 23 & 7)) == std::byte{0}) return false;
  }
  return true;
}

}  // namespace farleaf::index::lsm
