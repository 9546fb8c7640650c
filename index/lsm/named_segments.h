// What a store's state names of the segments that exist.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dsm/base/result.h"
#include "index/lsm/state.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// Bytes of a value-log segment that something names.
using NamedBytes = std::map<SegmentId, uint64_t>;

/// Of the segments that exist (ascending), those that nothing names. Corruption: one is missing. Tables' segments must all be there, and
/// of the value log's those whose values tables name. (Others of the value log were granted, and perhaps never made. One that
/// tables name, but not the manifest, was collected.)
Result<std::vector<SegmentId>> FindUnnamed(const StoreState& state, storage::Storage* storage,
                                           const std::vector<SegmentId>& existing);

/// What nothing names of a segment is garbage: records whose commits were lost or that nothing has told of, and what was never filled
/// of the last segments. `named`: by commits of the recovery log.
std::map<SegmentId, uint64_t> GarbageUntold(const StoreState& state, NamedBytes named);

/// Each table's making waited until the whole value log was durable: what was used before the last segment that a table names is
/// whole. That one and those behind it were being filled, perhaps.
std::vector<SegmentId> PerhapsTorn(const StoreState& state);

}  // namespace farleaf::index::lsm
