#include "benchmark/micro/operation_report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

namespace farleaf::micro {

void PrintCosts(const OperationRun& run, std::span<const OperationCost> costs, std::ostream& out) {
  fmt::print(out,
             "{} keys, {} leaves, fabric {}, one thread, one operation at a time; medians of {} "
             "batches of {}; CPU time\n",
             run.keys, run.leaf_layout, run.fabric, run.rounds, run.operations);
  fmt::print(out, "{:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>12} {:>12}\n", "operation",
             "cpu ns", "min", "wall ns", "copies", "bound", "of bound", "allocations",
             "round trips");
  for (const OperationCost& cost : costs) {
    fmt::print(out, "{:<18} {:>9.0f} {:>9.0f} {:>9.0f} {:>9.2f} ", cost.name, cost.cpu_ns,
               cost.cpu_ns_min, cost.wall_ns, cost.copies);
    if (cost.copies_bound > 0) {
      fmt::print(out, "{:>9.2f} {:>10.2f} ", cost.copies_bound, cost.copies / cost.copies_bound);
    } else {
      fmt::print(out, "{:>9} {:>10} ", "-", "-");
    }
    fmt::print(out, "{:>12.4f} {:>12.4f}\n", cost.allocations, cost.round_trips);
  }
  fmt::print(out, "load: {:.0f} ns an insert into a tree that grows from nothing\n",
             run.load_ns_per_key);
}

nlohmann::ordered_json ToJson(const OperationRun& run, std::span<const OperationCost> costs) {
  using Json = nlohmann::ordered_json;
  Json operations = Json::object();
  for (const OperationCost& cost : costs) {
    Json figures = {{"cpu_ns", cost.cpu_ns},           {"cpu_ns_min", cost.cpu_ns_min},
                    {"wall_ns", cost.wall_ns},         {"copies_of_1024", cost.copies},
                    {"allocations", cost.allocations}, {"round_trips", cost.round_trips}};
    if (cost.copies_bound > 0) {
      figures["copies_bound"] = cost.copies_bound;
      figures["of_bound"] = cost.copies / cost.copies_bound;
    }
    operations[cost.name] = std::move(figures);
  }
  return {{"configuration",
           {{"keys", run.keys},
            {"fabric", run.fabric},
            {"leaf_layout", run.leaf_layout},
            {"threads", 1},
            {"in_flight", 1},
            {"rounds", run.rounds},
            {"operations", run.operations},
            {"copy_bytes", run.copy_bytes},
            {"seed", 1}}},
          {"load_ns_per_key", run.load_ns_per_key},
          {"operations", operations}};
}

}  // namespace farleaf::micro
