// RecoverMember: what a compute server that is gone has left in a pool, found by a scan and returned.
//
// REQUIRES, of all of it: the member is fenced at every memory server of the pool.
//
// Thread rule: coroutines of one worker.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dsm/member.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// Takes over every lock that `dead` holds in pages of these trees, which are all trees of the pool, and
/// finishes what it had begun under them. Returns how many there were. DeadlineExceeded: some are left.
Task<Result<uint64_t>> RecoverLocks(OpContext& op, dsm::Pool& pool,
                                    std::span<BlinkTree* const> trees, dsm::MemberIdentity dead);

}  // namespace farleaf::index
