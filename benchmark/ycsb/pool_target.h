// The targets `local:` and `pool:`: this process is a compute server with the tree.
//
// Thread rule: see target.h.
#pragma once

#include <memory>
#include <string_view>

#include "benchmark/ycsb/target.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/transport.h"

namespace farleaf::ycsb {

/// What stands behind `local:`: empty, or ?NAME=VALUE&… with servers, region and chunk.
/// InvalidArgument names the option, its value and its range.
Result<dsm::LocalFabric::Options> ParseLocalOptions(std::string_view text);

/// Joins the pool behind `fabric`, and creates or opens the tree.
Result<std::unique_ptr<Target>> OpenPoolTarget(std::unique_ptr<dsm::Fabric> fabric,
                                               const TargetOptions& options, const Clock* clock);

}  // namespace farleaf::ycsb
