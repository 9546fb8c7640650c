// What a change of some bytes does to the CRC32C of all of them, without looking at the others.
//
// A CRC is linear over GF(2): crc(a xor d) = crc(a) xor L(d), where L is the CRC's register begun at 0. Zeros in front
// of the first changed byte leave that register 0; n zero bytes behind the last multiply it by x^(8n) modulo the polynomial. So the
// change is the register of the xor of old and new bytes, times a power of x from a table. Where the processor multiplies
// without carries that is two instructions, else 32 steps.
//
// Thread rule: pure functions.
#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c_few.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farleaf {

namespace internal {

/// Of images up to 4 KiB, in words of 8 bytes.
inline constexpr size_t kCrcWordsMax = 512;
/// CRC32C's polynomial, bit 31 being x^0.
inline constexpr uint32_t kCrcPolynomial = 0x82f63b78;

constexpr uint32_t TimesX(uint32_t a) { return (a & 1) != 0 ? (a >> 1) ^ kCrcPolynomial : a >> 1; }

constexpr uint32_t MultiplyCrc(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & (0u - (a >> bit & 1));
    b = TimesX(b);
  }
  return product;
}

/// [k]: x^(64 k - skipped), from k = 1 on.
constexpr std::array<uint32_t, kCrcWordsMax + 1> CrcPowers(int skipped) {
  std::array<uint32_t, kCrcWordsMax + 1> powers{};
  uint32_t power = uint32_t{1} << 31;
  for (int i = 0; i < 64 - skipped; ++i) power = TimesX(power);
  for (size_t k = 1; k <= kCrcWordsMax; ++k) {
    powers[k] = power;
    for (int i = 0; i < 64; ++i) power = TimesX(power);
  }
  return powers;
}
inline constexpr auto kCrcPowers = CrcPowers(0);

inline uint32_t ShiftCrcPortably(uint32_t crc, size_t words) {
  return words == 0 ? crc : MultiplyCrc(crc, kCrcPowers[words]);
}

/// What has changed in the word at `at`.
inline uint64_t WordChange(std::span<const std::byte> before, std::span<const std::byte> after,
                           size_t at) {
  return LoadLittle<uint64_t>(before.data() + at) ^ LoadLittle<uint64_t>(after.data() + at);
}

#if defined(__x86_64__)
/// The product of two reflected numbers comes out shifted by one, and the CRC instruction multiplies by x^32.
inline constexpr auto kCrcPowersLess33 = CrcPowers(33);

__attribute__((target("sse4.2,pclmul"))) inline uint32_t ShiftCrcByInstructions(uint32_t crc,
                                                                                size_t words) {
  if (words == 0) return crc;
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(crc)),
                           _mm_cvtsi32_si128(static_cast<int>(kCrcPowersLess33[words])), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

__attribute__((target("sse4.2,pclmul"))) inline uint32_t CrcChangeOfFew(
    std::span<const std::byte> before, std::span<const std::byte> after, size_t words_behind) {
  uint64_t crc = 0;
  for (size_t at = 0; at < before.size(); at += 8) {
    crc = _mm_crc32_u64(crc, WordChange(before, after, at));
  }
  return ShiftCrcByInstructions(static_cast<uint32_t>(crc), words_behind);
}
#endif

}  // namespace internal

/// The register `crc` behind `words` x 8 zero bytes. REQUIRES: at most 4 KiB of them.
inline uint32_t ShiftCrc32c(uint32_t crc, size_t words) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2")) {
    return internal::ShiftCrcByInstructions(crc, words);
  }
#endif
  return internal::ShiftCrcPortably(crc, words);
}

/// What the CRC32C of some bytes has to be xor-ed with, if `before` among them becomes `after`, and `words_behind` x 8
/// bytes stand behind it. REQUIRES: both have the same length, a multiple of 8.
inline uint32_t Crc32cChange(std::span<const std::byte> before, std::span<const std::byte> after,
                             size_t words_behind) {
#if defined(__x86_64__)
  if (before.size() <= kCrcFewBytes && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("sse4.2")) {
    return internal::CrcChangeOfFew(before, after, words_behind);
  }
#endif
  uint32_t crc = 0;
  std::array<unsigned char, 512> difference;
  for (size_t done = 0; done < before.size();) {
    const size_t bytes = std::min(before.size() - done, difference.size());
    for (size_t at = 0; at < bytes; at += 8) {
      StoreLittle(&difference[at], internal::WordChange(before, after, done + at));
    }
    crc = crc32_iscsi(difference.data(), static_cast<int>(bytes), crc);
    done += bytes;
  }
  return ShiftCrc32c(crc, words_behind);
}

}  // namespace farleaf
