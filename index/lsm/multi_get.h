// MultiGet: the values of many keys, of a store or of a copy of one.
//
// Keys whose blocks are in memory are answered in a first pass, without a coroutine. Of the rest kLookupsTogether at a time are on their way: so
// the device has as many reads to do at once, and a batch takes about as long as the deepest lookup of each kLookupsTogether keys.
// Blocks that several of them want are read once (block_fetch.h).
//
// Thread rule: runs on the worker of the operation.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/view_read.h"

namespace farleaf::index::lsm {

/// Lookups of one MultiGet that wait for the device at a time.
inline constexpr size_t kLookupsTogether = 32;

/// The newest value of each key, looked for as by FindInView, at a moment of its own. InvalidArgument: no key can be like one of
/// them. On failure there are no values.
Task<Status> FindValues(OpContext& op, LookupPlaces places, std::span<const std::string_view> keys,
                        const std::function<const ReadView&()>& view_of,
                        std::vector<std::optional<std::string>>* values);

}  // namespace farleaf::index::lsm
