// CRC32C (Castagnoli) by ISA-L, which picks the processor's best instructions at run time.
//
// Thread rule: pure function. Users link farleaf::dsm (the client library does not use it).
#pragma once

#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace farleaf {

/// CRC32C of `bytes`, continuing from `seed` (the CRC of what stands before).
inline uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t seed = 0) {
  // ISA-L takes a non-const pointer and does not write through it.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~seed);
}

}  // namespace farleaf
