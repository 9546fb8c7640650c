// The last upkeep of a worker that serves a host's trees: what is left behind it keeps the pool from being
// left in good order (dsm::Pool::Leave).
//
// Thread rule: runs on the worker of its OpContext.
#pragma once

#include <cstdint>

#include "dsm/base/clock.h"
#include "dsm/op_context.h"
#include "dsm/task.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

/// How long to go on with it: a connection that broke is restored within a second, or not soon.
inline constexpr uint64_t kLastUpkeepNs = 2 * kNsPerSecond;

/// TreeHost::Upkeep until it is Ok, or for others to do, or until the operation's deadline. What it was in
/// the end.
dsm::Task<Status> KeepUpToTheEnd(TreeHost& host, dsm::OpContext& op);

}  // namespace farleaf::server
