// The costs of operations (operation_costs.h) as a table and as JSON.
//
// Thread rule: functions only.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "benchmark/micro/operation_costs.h"

namespace farleaf::micro {

/// The configuration of a run, as the JSON has it.
struct OperationRun {
  uint64_t keys = 0;
  std::string fabric, leaf_layout;
  uint64_t rounds = 0, operations = 0, copy_bytes = 0;
  double load_ns_per_key = 0;
};

void PrintCosts(const OperationRun& run, std::span<const OperationCost> costs, std::ostream& out);
nlohmann::ordered_json ToJson(const OperationRun& run, std::span<const OperationCost> costs);

}  // namespace farleaf::micro
