// The costs of operations (operation_costs.h) as a table and as JSON.
//
// Thread rule: functions only.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "benchmark/micro/operation_costs.h"

namespace farleaf::micro {

/// The configuration of a run, as the JSON has it.
struct OperationRun {
  uint64_t keys = 0;
  std::string fabric;
  size_t key_bytes = 8, value_bytes = 8;
  uint64_t rounds = 0, operations = 0, copy_bytes = 0;
};

/// What operations of one tree cost.
struct TreeCosts {
  std::string leaf_layout;
  double load_ns_per_key = 0;
  std::vector<OperationCost> costs;
};

/// A table for each tree, and of two trees one of both side by side.
void PrintCosts(const OperationRun& run, std::span<const TreeCosts> trees, std::ostream& out);
nlohmann::ordered_json ToJson(const OperationRun& run, std::span<const TreeCosts> trees);

}  // namespace farleaf::micro
