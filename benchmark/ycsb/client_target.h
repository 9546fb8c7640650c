// The target `farleaf://HOST:PORT`: a compute server, through one client session a thread.
//
// Thread rule: see target.h.
#pragma once

#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// `url`: farleaf://HOST:PORT, farleaf+unix:PATH or farleaf+ring:PATH.
Result<std::unique_ptr<Target>> OpenClientTarget(const std::string& url,
                                                 const TargetOptions& options, const Clock* clock);

}  // namespace farleaf::ycsb
