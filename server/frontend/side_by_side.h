// RunSideBySide: independent steps of one command, some at a time, so that the round trips of one hide behind those
// of the others.
//
// Thread rule: a coroutine on the worker of its OpContext.
#pragma once

#include <cstddef>
#include <functional>

#include "dsm/base/status.h"
#include "dsm/op_context.h"
#include "dsm/task.h"

namespace farleaf::server {

/// Begins the step of that number.
using NumberedStep = std::function<dsm::Task<Status>(size_t i)>;

/// Runs steps 0 to `count` - 1 on `op`, at most `lanes` at a time, each begun in the order of numbers. Behind the first
/// failure, which it returns, none is begun; it ends when all that were begun have. `step` outlives it.
dsm::Task<Status> RunSideBySide(dsm::OpContext& op, size_t count, size_t lanes,
                                const NumberedStep& step);

}  // namespace farleaf::server
