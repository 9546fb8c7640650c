#include "index/lsm/compression.h"

#include <lz4.h>
#include <zstd.h>

#include "dsm/base/check.h"

namespace farleaf::index::lsm {

namespace {
constexpr int kZstdLevel = 1;  // above it, more time than space is gained on blocks of 4 KiB

const char* Chars(const std::byte* bytes) { return reinterpret_cast<const char*>(bytes); }
char* Chars(std::byte* bytes) { return reinterpret_cast<char*>(bytes); }
}  // namespace

bool Decompress(Compression compression, std::span<const std::byte> from, std::span<std::byte> to) {
  switch (compression) {
    case Compression::kLz4: {
      const int bytes =
          LZ4_decompress_safe(Chars(from.data()), Chars(to.data()), static_cast<int>(from.size()),
                              static_cast<int>(to.size()));
      return bytes >= 0 && static_cast<size_t>(bytes) == to.size();
    }
    case Compression::kZstd: {
      const size_t bytes = ZSTD_decompress(to.data(), to.size(), from.data(), from.size());
      return ZSTD_isError(bytes) == 0 && bytes == to.size();
    }
    case Compression::kNone:
      return false;
  }
  return false;
}

struct Compressor::State {
  ZSTD_CCtx* zstd = nullptr;
  ~State() { ZSTD_freeCCtx(zstd); }
};

Compressor::Compressor(Compression compression)
    : compression_(compression), state_(std::make_unique<State>()) {
  if (compression == Compression::kZstd) {
    state_->zstd = ZSTD_createCCtx();
    FARLEAF_CHECK(state_->zstd != nullptr, "out of memory");
  }
}

Compressor::~Compressor() = default;

std::span<const std::byte> Compressor::Compress(std::span<const std::byte> bytes,
                                                uint32_t percent) {
  if (compression_ == Compression::kNone || bytes.empty()) return {};
  // No more room than what pays: the compressor gives up as soon as it is used up.
  const size_t room = bytes.size() - bytes.size() * percent / 100;
  if (room == 0) return {};
  out_.resize(room);
  size_t used = 0;
  if (compression_ == Compression::kLz4) {
    const int written =
        LZ4_compress_default(Chars(bytes.data()), Chars(out_.data()),
                             static_cast<int>(bytes.size()), static_cast<int>(room));
    used = written > 0 ? static_cast<size_t>(written) : 0;
  } else {
    const size_t written =
        ZSTD_compressCCtx(state_->zstd, out_.data(), room, bytes.data(), bytes.size(), kZstdLevel);
    used = ZSTD_isError(written) != 0 ? 0 : written;
  }
  return std::span(out_).first(used);
}

}  // namespace farleaf::index::lsm
