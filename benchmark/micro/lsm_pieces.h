// What the pieces of the LSM store's write path cost: the memtable, and appending to a log.
#pragma once

namespace farleaf::micro {

/// Registers them with Google Benchmark.
void RegisterLsmPieces();

}  // namespace farleaf::micro
