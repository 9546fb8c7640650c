// What the pieces of the LSM store's tables cost: search of a block, a filter, the cache, a warm lookup; and per entry, building,
// walking and streaming a table.
//
// Thread rule: one thread.
#pragma once

namespace farleaf::micro {

/// Registers them with Google Benchmark, as "table_...".
void RegisterTableBenchmarks();

}  // namespace farleaf::micro
