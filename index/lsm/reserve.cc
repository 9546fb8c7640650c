#include "index/lsm/reserve.h"

#include <algorithm>
#include <numeric>

namespace farleaf::index::lsm {

namespace {

/// Of a table's last segment, and of its footer where that begins one.
constexpr uint64_t kRest = 2;

uint64_t SegmentsOf(const Run& run) {
  uint64_t segments = 0;
  for (const TableRef& ref : run.tables) segments += ref.file->info().segments.size();
  return segments;
}

uint64_t LargestFresh(const Version& version) {
  uint64_t largest = 0;
  for (size_t i = 0; i < version.fresh; ++i) {
    largest = std::max(largest, SegmentsOf(version.runs[i]));
  }
  return largest;
}

}  // namespace

storage::ReserveSizes ReserveOf(const Version& version, uint64_t recovery_segments,
                                const LsmOptions& options) {
  uint64_t all = 0, table = 0;  // in tables, and in the largest one that is not fresh
  for (size_t i = 0; i < version.runs.size(); ++i) {
    all += SegmentsOf(version.runs[i]);
    if (i < version.fresh) continue;
    for (const TableRef& ref : version.runs[i].tables) {
      table = std::max(table, ref.file->info().segments.size());
    }
  }
  // A table takes no more than the commits of which it is made.
  const uint64_t flush =
      std::min(recovery_segments + 1, options.memtable_bytes / storage::kSegmentBytes + kRest);
  const uint64_t merged = std::max({LargestFresh(version), flush, table});
  const uint64_t output =
      std::min(all + flush, options.table_bytes_max / storage::kSegmentBytes + kRest);
  storage::ReserveSizes sizes = {merged + table + output + 1, flush, kReserveOfLogs};
  const uint64_t sum = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  if (sum > options.reserve_segments_max) {
    for (uint64_t& size : sizes) size = size * options.reserve_segments_max / sum;
  }
  return sizes;
}

void KeepOldest(const Version& version, std::vector<RunPlace>* sources) {
  const uint64_t most = LargestFresh(version);
  uint64_t segments = 0;
  size_t kept = 0;  // fresh ones
  for (size_t i = version.fresh; i-- > 0; ++kept) {
    segments += SegmentsOf(version.runs[i]);
    if (kept > 0 && segments > most) break;
  }
  sources->erase(sources->begin(), sources->begin() + static_cast<ptrdiff_t>(version.fresh - kept));
}

}  // namespace farleaf::index::lsm
