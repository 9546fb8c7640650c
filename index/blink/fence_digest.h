// FenceDigest: the fences of a leaf in 48 bits, so that two who know them can compare what they know
// in one word: a compute server by the separators that it has cached (SearchCache::FindLeaf), and the
// leaf by its own.
//
// It is a function of the bytes alone, and of a key: fences of 8 bytes take a short way, whatever the layout
// is, all others are read eight bytes at a time. Never 0, which so says "none". Two different triples of (tree,
// low, high) agree by chance, one in 2^48. The key is random, the same for all who use the pool, and told to
// no client: without it, who chooses keys could make factors zero, and so digests agree, as often as he likes.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "dsm/base/bytes.h"
#include "index/blink/geometry.h"

namespace farleaf::index {

namespace internal {

// Odd, half of the bits set, and far from each other: the fractional parts of square roots.
inline constexpr uint64_t kDigestKeys[4] = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b,
                                            0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1};

/// Both halves of the 128-bit product, one upon the other.
inline uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// The other word of the key, for the high fence. Rotated, it would differ from the first by few numbers, and
/// factors can change places.
inline uint64_t OtherDigestKey(uint64_t key) { return key * 0x9e3779b97f4a7c15; }

/// Tree, which fences there are, and which of the two ways was taken.
enum class DigestWay : uint64_t { kFixed8 = 0, kBytes = 4 };
inline uint64_t DigestSeed(TreeId tree, bool has_low, bool has_high, DigestWay way) {
  return uint64_t{tree} << 3 | static_cast<uint64_t>(way) | uint64_t{has_low} << 1 |
         uint64_t{has_high};
}

/// `state`, then the bytes. The length goes in first, so that what follows cannot be confused with it.
inline uint64_t DigestBytes(uint64_t state, std::string_view bytes) {
  state = FoldedProduct(state ^ bytes.size(), kDigestKeys[1]);
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    state = FoldedProduct(state ^ LoadLittle<uint64_t>(at), kDigestKeys[2]);
  }
  uint64_t rest = 0;
  for (size_t i = 0; i < left; ++i) {
    rest |= uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
  }
  return left == 0 ? state : FoldedProduct(state ^ rest, kDigestKeys[3]);
}

/// 48 bits of 64; never 0.
inline uint64_t CutDigest(uint64_t mixed) {
  const uint64_t digest = mixed >> 16;
  return digest != 0 ? digest : 1;
}

}  // namespace internal

inline constexpr int kFenceDigestBits = 48;

/// What digests differ by besides the fences.
struct DigestScope {
  uint64_t key = 0;  ///< Geometry::digest_key
  TreeId tree = 0;
};

/// The same as below for fences that are numbers, big-endian as keys of fixed8 are.
inline uint64_t FenceDigestFixed8(DigestScope scope, std::optional<uint64_t> low,
                                  std::optional<uint64_t> high) {
  using internal::kDigestKeys;
  const uint64_t seed = internal::DigestSeed(scope.tree, low.has_value(), high.has_value(),
                                             internal::DigestWay::kFixed8);
  // Two multiplications, as wyhash mixes 16 bytes.
  const uint64_t low_factor = low.value_or(0) ^ kDigestKeys[0] ^ scope.key;
  const uint64_t high_factor =
      high.value_or(0) ^ kDigestKeys[1] ^ internal::OtherDigestKey(scope.key);
  const auto product = static_cast<unsigned __int128>(low_factor) * high_factor;
  return internal::CutDigest(
      internal::FoldedProduct(static_cast<uint64_t>(product) ^ seed ^ kDigestKeys[2],
                              static_cast<uint64_t>(product >> 64) ^ kDigestKeys[3]));
}

/// Of a node that covers low <= key < high; nullopt: there is no such fence.
inline uint64_t FenceDigest(DigestScope scope, std::optional<std::string_view> low,
                            std::optional<std::string_view> high) {
  if ((!low || low->size() == 8) && (!high || high->size() == 8)) {
    std::optional<uint64_t> low_number, high_number;
    if (low) low_number = LoadBig64(low->data());
    if (high) high_number = LoadBig64(high->data());
    return FenceDigestFixed8(scope, low_number, high_number);
  }
  const uint64_t seed = internal::DigestSeed(scope.tree, low.has_value(), high.has_value(),
                                             internal::DigestWay::kBytes);
  // Multiplied first: flags and lengths are small numbers, which could make up for each other.
  uint64_t state = internal::FoldedProduct(seed ^ internal::kDigestKeys[0] ^ scope.key,
                                           internal::kDigestKeys[3]);
  if (low) state = internal::DigestBytes(state, *low);
  if (high) state = internal::DigestBytes(state, *high);
  return internal::CutDigest(
      internal::FoldedProduct(state ^ state >> 32, internal::kDigestKeys[0]));
}

}  // namespace farleaf::index
