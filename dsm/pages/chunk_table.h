// Claiming chunks by CAS on the words of a region's chunk table.
//
// Round trips: one to read the table (64 KiB of it at a time, 8192 chunks), one to take the word
// and read the carve mark behind it; a lost race tries the next word.
//
// Thread rule: coroutines of one worker; no shared state.
#pragma once

#include <cstdint>
#include <optional>

#include "dsm/base/result.h"
#include "dsm/op_context.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

/// Words of the chunk table read at once.
inline constexpr uint64_t kChunkWindow = 8192;

struct ChunkClaim {
  std::optional<uint64_t> chunk;  ///< nullopt: the server has none
  uint64_t carved = 0;            ///< pages of it that were carved by an earlier owner
  uint64_t chunks_used = 0;       ///< if there is none: how many the table shows as taken
};

/// A chunk for `wanted` (its kind, class and owner): one of that class without owner, else a fresh
/// one, which is all zero. The search begins at chunk `start`.
Task<Result<ChunkClaim>> ClaimChunk(OpContext& op, const RegionLayout& layout, ChunkWord wanted,
                                    uint64_t start);

/// CAS of a chunk's word. Corruption if it was not `from`: only a chunk's owner changes its word.
Task<Status> ChangeChunkWord(OpContext& op, const RegionLayout& layout, uint64_t chunk,
                             ChunkWord from, ChunkWord to);

/// Makes a claimed chunk that held an extent or redo slots all zero. Its mark is written behind the
/// zeros: a claimer that dies before leaves it dirty.
Task<Status> ClearChunk(OpContext& op, const RegionLayout& layout, uint64_t chunk);

/// Gives a chunk up: `word` is its word; the next owner goes on at page `carved`.
Task<Status> ReleaseChunk(OpContext& op, const RegionLayout& layout, uint64_t chunk, ChunkWord word,
                          uint64_t carved);

}  // namespace farleaf::dsm
