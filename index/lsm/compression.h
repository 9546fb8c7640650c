// Compression of blocks.
//
// Thread rule: Decompress is a pure function; a Compressor has one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "index/lsm/options.h"

namespace farleaf::index::lsm {

/// Whether `from` decompresses to exactly to.size() bytes. Hostile bytes are refused.
bool Decompress(Compression compression, std::span<const std::byte> from, std::span<std::byte> to);

class Compressor {
 public:
  explicit Compressor(Compression compression);
  ~Compressor();
  Compressor(const Compressor&) = delete;

  /// The bytes compressed, if that makes them shorter by `percent` at least; else empty. Until the next call.
  std::span<const std::byte> Compress(std::span<const std::byte> bytes, uint32_t percent);

 private:
  struct State;
  const Compression compression_;
  std::unique_ptr<State> state_;
  std::vector<std::byte> out_;
};

}  // namespace farleaf::index::lsm
