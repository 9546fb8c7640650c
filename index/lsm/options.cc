#include <fmt/format.h>

#include "index/lsm/options.h"

#include "index/option_range.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

Status LsmOptions::Validate() const {
  FARLEAF_RETURN_IF_ERROR(InRange<uint64_t>("flush_ms", flush_ms, 1, 60'000));
  if (flush_memtable_ms != 0) {
    FARLEAF_RETURN_IF_ERROR(InRange<uint64_t>("flush_memtable_ms", flush_memtable_ms, 10, 3'600'000));
  }
  FARLEAF_RETURN_IF_ERROR(InRange("memtable_bytes", memtable_bytes, kMiB, 4096 * kMiB));
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("growth_factor", growth_factor, 4, 16));
  FARLEAF_RETURN_IF_ERROR(
      InRange<uint32_t>("value_separation_bytes", value_separation_bytes, 1, 65'536));
  FARLEAF_RETURN_IF_ERROR(InRange("cache_bytes", cache_bytes, kMiB, kMiB << 24));
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("block_bytes", block_bytes, 4096, 65'536));
  if (block_bytes % 4096 != 0) {
    return Status::InvalidArgument(
        fmt::format("block_bytes is {}: multiples of 4096 can be", block_bytes));
  }
  FARLEAF_RETURN_IF_ERROR(InRange("table_bytes_max", table_bytes_max, 4 * kMiB, 1024 * kMiB));
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("filter_bits_per_key", filter_bits_per_key, 0, 20));
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("log_buffers_max", log_buffers_max, 2, 64));
  FARLEAF_RETURN_IF_ERROR(InRange("collect_above", collect_above, 0.05, 0.95));
  FARLEAF_RETURN_IF_ERROR(InRange("garbage_max", garbage_max, 0.1, 0.95));
  FARLEAF_RETURN_IF_ERROR(
      InRange<uint64_t>("reserve_segments_max", reserve_segments_max, 0, 65'536));
  return InRange<uint32_t>("compaction_threads", compaction_threads, 1, 16);
}

}  // namespace farleaf::index::lsm
