// Finding the redo slots of another compute server: by the chunk word that names it as owner.
//
// Round trips: one for each 64 KiB of the chunk table (8192 chunks).
// Thread rule: coroutines of one worker; no shared state.
#pragma once

#include <cstdint>
#include <optional>

#include "dsm/base/result.h"
#include "dsm/op_context.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

/// Where the redo slots of (owner, low 12 bits of its incarnation) begin on a memory server; nullopt:
/// it has none there. A compute server claims them before it takes its first lock there, and gives
/// them up after its last.
Task<Result<std::optional<uint64_t>>> FindRedoArea(OpContext& op, const RegionLayout& layout,
                                                   MemberId owner, uint16_t short_incarnation);

}  // namespace farleaf::dsm
