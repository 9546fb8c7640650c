// Variable-length unsigned integers: 7 bits a byte, the lowest first; the last byte is below 128.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace farleaf::index::lsm {

inline constexpr size_t kVarintBytesMax = 10;

constexpr size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

/// Returns the end of what was written, at most kVarintBytesMax behind `to`.
inline char* PutVarint(char* to, uint64_t value) {
  for (; value >= 128; value >>= 7) *to++ = static_cast<char>(value | 128);
  *to++ = static_cast<char>(value);
  return to;
}

/// Reads one from [from, end). Returns where it ends; nullptr if it does not end there, has more than 64 bits, or is not what
/// PutVarint writes.
inline const char* GetVarint(const char* from, const char* end, uint64_t* value) {
  uint64_t result = 0;
  for (unsigned shift = 0; from != end && shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(*from++);
    if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0)) return nullptr;
    result |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) {
      *value = result;
      return from;
    }
  }
  return nullptr;
}

/// The same of one that is known to be well-formed.
inline const char* GetCheckedVarint(const char* from, uint64_t* value) {
  uint64_t result = static_cast<uint8_t>(*from) & 127;
  for (unsigned shift = 7; (static_cast<uint8_t>(*from++) & 128) != 0; shift += 7) {
    result |= static_cast<uint64_t>(static_cast<uint8_t>(*from) & 127) << (shift & 63);
  }
  *value = result;
  return from;
}

}  // namespace farleaf::index::lsm
