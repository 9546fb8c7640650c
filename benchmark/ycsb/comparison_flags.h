// The second target of a comparison, as the command line names it.
//
// Thread rule: pure functions, which look at the file system to tell whether two paths are one.
#pragma once

#include <string>

#include "benchmark/ycsb/report.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

bool InVirtualTime(const std::string& target);
/// Both name the same directory, pool or server.
bool SamePlace(const std::string& target, const std::string& other);

/// `run` with the target `against`, and with what is different for it by `args`. `loads`: both are to
/// be loaded. InvalidArgument names the flag and what is wrong with it.
Result<RunConfiguration> ConfigureAgainst(const RunConfiguration& run, const std::string& against,
                                          const std::string& args, bool loads);

}  // namespace farleaf::ycsb
