#include "benchmark/micro/operation_report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

namespace farleaf::micro {

namespace {

void PrintTree(const TreeCosts& tree, std::ostream& out) {
  fmt::print(out, "\n{} leaves\n", tree.leaf_layout);
  fmt::print(out, "{:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>12} {:>12} {:>9}\n", "operation",
             "cpu ns", "min", "wall ns", "copies", "bound", "of bound", "allocations",
             "round trips", "bytes");
  for (const OperationCost& cost : tree.costs) {
    fmt::print(out, "{:<18} {:>9.0f} {:>9.0f} {:>9.0f} {:>9.2f} ", cost.name, cost.cpu_ns,
               cost.cpu_ns_min, cost.wall_ns, cost.copies);
    if (cost.copies_bound > 0) {
      fmt::print(out, "{:>9.2f} {:>10.2f} ", cost.copies_bound, cost.copies / cost.copies_bound);
    } else {
      fmt::print(out, "{:>9} {:>10} ", "-", "-");
    }
    fmt::print(out, "{:>12.4f} {:>12.4f} {:>9.1f}\n", cost.allocations, cost.round_trips,
               cost.bytes);
  }
  fmt::print(out, "load: {:.0f} ns an insert into a tree that grows from nothing\n",
             tree.load_ns_per_key);
}

/// `before` beside `after`, and what of the former the latter takes.
void PrintSideBySide(const TreeCosts& before, const TreeCosts& after, std::ostream& out) {
  fmt::print(out, "\n{:<12} {:>25} {:>7} {:>25} {:>7} {:>25} {:>7}\n",
             after.leaf_layout + "/" + before.leaf_layout, "round trips", "", "bytes", "", "cpu ns",
             "");
  for (size_t i = 0; i < before.costs.size(); ++i) {
    const OperationCost &a = before.costs[i], &b = after.costs[i];
    if (a.round_trips == 0) continue;  // a copy
    fmt::print(out,
               "{:<12} {:>12.4f} {:>12.4f} {:>7.2f} {:>12.1f} {:>12.1f} {:>7.2f} {:>12.0f} "
               "{:>12.0f} {:>7.2f}\n",
               a.name, a.round_trips, b.round_trips, b.round_trips / a.round_trips, a.bytes,
               b.bytes, b.bytes / a.bytes, a.cpu_ns, b.cpu_ns, b.copies / a.copies);
  }
}

nlohmann::ordered_json ToJson(const TreeCosts& tree) {
  using Json = nlohmann::ordered_json;
  Json operations = Json::object();
  for (const OperationCost& cost : tree.costs) {
    Json figures = {{"cpu_ns", cost.cpu_ns},
                    {"cpu_ns_min", cost.cpu_ns_min},
                    {"wall_ns", cost.wall_ns},
                    {"copies_of_1024", cost.copies},
                    {"allocations", cost.allocations},
                    {"round_trips", cost.round_trips},
                    {"bytes", cost.bytes}};
    if (cost.copies_bound > 0) {
      figures["copies_bound"] = cost.copies_bound;
      figures["of_bound"] = cost.copies / cost.copies_bound;
    }
    operations[cost.name] = std::move(figures);
  }
  return {{"load_ns_per_key", tree.load_ns_per_key}, {"operations", std::move(operations)}};
}

}  // namespace

void PrintCosts(const OperationRun& run, std::span<const TreeCosts> trees, std::ostream& out) {
  fmt::print(out,
             "{} keys of {} bytes, values of {}, fabric {}, one thread, one operation at a time; "
             "medians of "
             "{} batches of {}; CPU time\n",
             run.keys, run.key_bytes, run.value_bytes, run.fabric, run.rounds, run.operations);
  for (const TreeCosts& tree : trees) PrintTree(tree, out);
  if (trees.size() == 2) PrintSideBySide(trees[0], trees[1], out);
}

nlohmann::ordered_json ToJson(const OperationRun& run, std::span<const TreeCosts> trees) {
  nlohmann::ordered_json leaves = nlohmann::ordered_json::object();
  for (const TreeCosts& tree : trees) leaves[tree.leaf_layout] = ToJson(tree);
  return {{"configuration",
           {{"keys", run.keys},
            {"key_bytes", run.key_bytes},
            {"value_bytes", run.value_bytes},
            {"fabric", run.fabric},
            {"threads", 1},
            {"in_flight", 1},
            {"rounds", run.rounds},
            {"operations", run.operations},
            {"copy_bytes", run.copy_bytes},
            {"seed", 1}}},
          {"leaves", std::move(leaves)}};
}

}  // namespace farleaf::micro
