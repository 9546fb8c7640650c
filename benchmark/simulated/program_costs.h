// What an operation of a verb program costs on the fabric by its file alone: nobody waits for anybody, no
// attempt is repeated, and no lock is handed over. A run counts the same where nothing collides.
//
// Thread rule: pure functions.
#pragma once

#include "benchmark/simulated/verb_program.h"

namespace farleaf::ycsb {

/// Means of an operation. Bytes leave out those of atomics.
struct ProgramCosts {
  double round_trips = 0, reads = 0, writes = 0, atomics = 0;
  double bytes_read = 0, bytes_written = 0;              ///< as the file asks for them
  double bytes_read_moved = 0, bytes_written_moved = 0;  ///< each verb's rounded up to 8

  ProgramCosts& Add(const ProgramCosts& other, double times);
};

struct CostCase {
  OpKind kind = OpKind::kRead;
  bool skewed = false;  ///< some keys are asked for far more often
  uint64_t scan_length = 100;
};

ProgramCosts CostsOf(const VerbProgram& program, const CostCase& of);

/// Leaves that a scan of `scan_length` rows covers whose first row is the leaf's `first`.
uint64_t LeavesOfScan(const VerbProgram& program, uint64_t scan_length, uint64_t first);

}  // namespace farleaf::ycsb
