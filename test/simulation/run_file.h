// Run files: a RunPlan as TOML (test/simulation/files/*.toml; format.md).
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "test/simulation/run_plan.h"

namespace farleaf::simulation {

/// `name` is for messages, and the plan's. InvalidArgument names file, line, key and what is allowed.
Result<RunPlan> ParseRunFile(std::string_view text, const std::string& name);
Result<RunPlan> LoadRunFile(const std::string& path);

}  // namespace farleaf::simulation
