// Blocks of out-of-line values, beside the leaf whose entry names them.
//
//   offset  bytes   what
//   0       8       block word: the value's unique id (low two bits 01: in use), or
//                   LockWord{kFreePage, holder}; 0: never used
//   8       4       CRC32C of bytes [0, 8) and [12, 16 + length)
//   12      4       length
//   16      ...     value, padded to 8
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"

namespace farleaf::index {

inline constexpr size_t kBlockHeaderBytes = 16;

/// What is read of a block for a value of that length.
inline uint64_t BlockReadBytes(uint32_t length) {
  return RoundUp(kBlockHeaderBytes + uint64_t{length}, 8);
}
/// The shortest value of which as much is read.
inline uint64_t ShortestValueBytes(uint64_t read_bytes) {
  return read_bytes < kBlockHeaderBytes + 7 ? 0 : read_bytes - kBlockHeaderBytes - 7;
}
inline uint64_t BlockWord(std::span<const std::byte> block) {
  return LoadLittle<uint64_t>(block.data());
}
inline uint32_t BlockStoredCrc(std::span<const std::byte> block) {
  return LoadLittle<uint32_t>(block.data() + 8);
}
inline uint32_t BlockLength(std::span<const std::byte> block) {
  return LoadLittle<uint32_t>(block.data() + 12);
}
/// Of a block's header and value, without padding; or of as many bytes of them as there are.
inline uint32_t BlockCrc(std::span<const std::byte> block) {
  return Crc32c(block.subspan(12), Crc32c(block.first(8)));
}

}  // namespace farleaf::index
