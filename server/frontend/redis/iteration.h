// What SCAN, HSCAN and ZSCAN share: their options, and cursors. A cursor is a number under which the pool keeps where an
// iteration goes on, so that any server can go on with it.
//
// Thread rule: coroutines on the worker of their OpContext.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/frontend/redis/command.h"
#include "server/records/piece_scan.h"

namespace farleaf::server::redis {

struct ScanOptions {
  uint64_t cursor = 0;
  uint64_t rows = 10;
  std::string_view pattern = "*";
  std::string type;  ///< empty: any
};
/// `at`: the cursor's argument; options follow it. Returns what is wrong; empty if all is well.
std::string_view ParseScan(const Call& call, size_t at, ScanOptions* options);

/// One turn of an iteration.
struct Iteration {
  bool known = true;  ///< false: the cursor is not, which is answered
  std::vector<index::KeyValue> rows;
};
/// Reads the next rows of `all`, and begins the answer: an array of two, of which the cursor is the first.
dsm::Task<Status> GoOn(Call call, const ScanOptions& options, PieceScan::Range all,
                       Iteration* turn);

}  // namespace farleaf::server::redis
