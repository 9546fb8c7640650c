// What is in use of a memory server, by the words of its chunk table.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "dsm/region_layout.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

/// dsm::ChunkKind as an operator reads it.
inline constexpr std::array<std::string_view, dsm::kChunkKindMax + 1> kChunkKindNames = {
    "unused", "leaf", "search", "value", "extent", "extent_rest", "redo"};

/// How many chunks of each kind there are.
using ChunkCounts = std::array<uint64_t, kChunkKindNames.size()>;
/// Words that are no chunk words are left out.
void CountChunks(std::span<const uint64_t> words, ChunkCounts* counts);
/// Adds farleaf_memory_server_bytes, its chunk_bytes and its chunks by kind.
void AppendChunkMetrics(const dsm::RegionLayout& layout, const ChunkCounts& chunks,
                        MetricsText* out);

}  // namespace farleaf::server
