#include "index/lsm/named_segments.h"

#include <algorithm>
#include <set>

namespace farleaf::index::lsm {

namespace {

Status MissingSegment(storage::Storage* storage, SegmentId id) {
  return Status::Corruption(storage->NameOf(id) + " is missing; restore the directory from a copy");
}

}  // namespace

Result<std::vector<SegmentId>> FindUnnamed(const StoreState& state, storage::Storage* storage,
                                           const std::vector<SegmentId>& existing) {
  std::set<SegmentId> unnamed(existing.begin(), existing.end());
  const auto exists = [&](SegmentId id) {
    return std::binary_search(existing.begin(), existing.end(), id);
  };
  for (const auto& [place, run] : state.runs()) {
    for (const auto& each : run->tables) {
      for (const SegmentId id : each.table.segments) {
        if (unnamed.erase(id) == 0) return MissingSegment(storage, id);
      }
      for (const auto& values : each.table.dictionary) {
        if (state.value_log.contains(values.segment) && !exists(values.segment)) {
          return MissingSegment(storage, values.segment);
        }
      }
    }
  }
  for (const SegmentId id : state.recovery_log) unnamed.erase(id);
  for (const auto& [id, garbage] : state.value_log) unnamed.erase(id);
  return std::vector<SegmentId>(unnamed.begin(), unnamed.end());
}

std::map<SegmentId, uint64_t> GarbageUntold(const StoreState& state, NamedBytes named) {
  for (const auto& [place, run] : state.runs()) {
    for (const auto& each : run->tables) {
      for (const TableInfo::LogSegment& log : each.table.dictionary) {
        named[log.segment] += log.live_bytes;
      }
    }
  }
  std::map<SegmentId, uint64_t> untold;
  for (const auto& [id, garbage] : state.value_log) {
    const uint64_t known = garbage + named[id];
    if (known < storage::kSegmentBytes) untold[id] = storage::kSegmentBytes - known;
  }
  return untold;
}

std::vector<SegmentId> PerhapsTorn(const StoreState& state) {
  SegmentId last = SegmentId::kNone;
  for (const auto& [place, run] : state.runs()) {
    for (const auto& each : run->tables) {
      for (const TableInfo::LogSegment& log : each.table.dictionary) {
        last = std::max(last, log.segment);
      }
    }
  }
  std::vector<SegmentId> torn;
  for (auto at = state.value_log.lower_bound(last); at != state.value_log.end(); ++at) {
    torn.push_back(at->first);
  }
  return torn;
}

}  // namespace farleaf::index::lsm
