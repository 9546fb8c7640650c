// Reading a cost model from its TOML file: a table a group of parameters (dsm/sim/cost_model.h), every
// parameter given, none unknown.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "dsm/base/result.h"
#include "dsm/sim/cost_model.h"

namespace farleaf::ycsb {

/// NotFound if there is no such file; InvalidArgument names file, line, key, value and range.
Result<dsm::CostModel> LoadModelFile(const std::string& path);
Result<dsm::CostModel> ParseModel(std::string_view text, const std::string& source);

}  // namespace farleaf::ycsb
