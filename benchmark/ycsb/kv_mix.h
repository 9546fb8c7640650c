// Key-value size mixes: small, medium and large pairs in the shares of Talos' evaluation (its Table 2; SD is
// what Cao et al. found at Facebook, FAST '20; 40 % and 80 % small pairs, the others half and half, are of its figure 10).
//
// Sizes are of the pair, key included. A pair's size is a function of its key, so that an update keeps it, and whoever
// reads a pair knows what its size must be.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace farleaf::ycsb {

/// kNone: all values are of one size, fieldcount x fieldlength.
enum class KvMix : uint8_t { kNone, kS, kM, kL, kSd, kMd, kLd, kS40, kS80 };
inline constexpr size_t kKvMixes = 9;
/// "none", "s", "m", "l", "sd", "md", "ld", "s40", "s80".
std::string_view KvMixName(KvMix mix);

enum class KvSize : uint8_t { kSmall, kMedium, kLarge };
inline constexpr size_t kKvSizes = 3;
inline constexpr std::array<uint64_t, kKvSizes> kPairBytes = {33, 123, 1023};

/// "user" and 20 digits: what leaves 9 bytes of a small pair for its value.
inline constexpr uint64_t kMixKeyDigits = 20;
inline constexpr uint64_t kMixKeyBytes = 4 + kMixKeyDigits;

/// Percent of the pairs, by KvSize. REQUIRES: mix is not kNone.
std::array<uint64_t, kKvSizes> SharesOf(KvMix mix);
/// REQUIRES: mix is not kNone.
KvSize SizeOfKey(KvMix mix, std::string_view key);
/// Of all possible keys. REQUIRES: mix is not kNone.
double MeanPairBytes(KvMix mix);

/// 64 bits of all the key's bytes; `seed` makes functions that do not hang together.
uint64_t HashKey(std::string_view key, uint64_t seed);

}  // namespace farleaf::ycsb
