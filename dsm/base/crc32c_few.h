// CRC32C of a few bytes, by the processor's instruction: what ISA-L begins with costs more than all of them.
//
// Thread rule: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dsm/base/crc32c.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace farleaf {

/// Of more ISA-L is quicker.
inline constexpr size_t kCrcFewBytes = 256;

namespace internal {

#if defined(__x86_64__)
/// The register, neither end inverted.
__attribute__((target("sse4.2"))) inline uint32_t CrcOfFew(std::span<const std::byte> bytes,
                                                           uint32_t crc) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  if (left % 8 >=
      4) {  // in front, where a number of half as many bytes stands ahead of whole words
    uint32_t half;
    std::memcpy(&half, at, 4);
    crc = _mm_crc32_u32(crc, half);
    at += 4, left -= 4;
  }
  uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*at));
  return crc;
}
#endif

}  // namespace internal

/// Crc32c(bytes).
inline uint32_t Crc32cOfFew(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (bytes.size() <= kCrcFewBytes && __builtin_cpu_supports("sse4.2")) {
    return ~internal::CrcOfFew(bytes, ~uint32_t{0});
  }
#endif
  return Crc32c(bytes);
}

}  // namespace farleaf
