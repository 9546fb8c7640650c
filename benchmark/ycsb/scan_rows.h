// What every scan's rows have to be, whoever asked for them.
//
// Thread rule: a pure function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// nullopt if there is nothing wrong with the value of that key.
using FindValueProblemOf =
    std::function<std::optional<std::string>(std::string_view key, std::string_view value)>;

/// nullopt if the rows ascend from operation.key on and no value has a problem; else what is wrong with the
/// first that is, with expected and found.
std::optional<std::string> FindRowProblem(const Operation& operation,
                                          const FindValueProblemOf& find_value_problem);

}  // namespace farleaf::ycsb
