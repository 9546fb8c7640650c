// A tree that is to be there: opened, or created unless it exists.
//
// Thread rule: runs on the worker of its OpContext.
#pragma once

#include "server/frontend/tree_host.h"

namespace farleaf::server {

/// InvalidArgument if it exists with another layout.
dsm::Task<Result<HostedTree>> OpenOrCreateTree(TreeHost& host, dsm::OpContext& op, NewTree tree);

}  // namespace farleaf::server
