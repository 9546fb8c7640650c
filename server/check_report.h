// What a check of a pool found (index/blink/check.h), as an operator and as a program reads it.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "index/blink/check.h"

namespace farleaf::server {

/// Tables of trees and memory servers, then what was found, then one line that sums it up.
std::string CheckReportText(const index::CheckReport& report);
nlohmann::ordered_json CheckReportJson(const index::CheckReport& report);

}  // namespace farleaf::server
