// farleafctl recover.
//
// Thread rule: one thread.
#pragma once

#include "dsm/base/status.h"
#include "dsm/region_layout.h"
#include "server/control/store.h"

namespace farleaf::server {

/// Recovers the compute server `id`, or, 0, all that a memory server has cut off and that have not left;
/// prints what was returned, and its progress to standard error. NotFound: `id` was never in the pool.
Status RecoverMembers(Store& store, dsm::MemberId id, bool json);

}  // namespace farleaf::server
