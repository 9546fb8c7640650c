#include "benchmark/ycsb/scan_rows.h"

#include "benchmark/ycsb/record.h"

namespace farleaf::ycsb {

std::optional<std::string> FindRowProblem(const Operation& operation,
                                          const FindValueProblemOf& find_value_problem) {
  const std::string* previous = nullptr;
  for (const index::KeyValue& row : operation.rows) {
    if (previous ? row.key <= *previous : row.key < operation.key) {
      return "expected a key above " + Printable(previous ? *previous : operation.key) +
             ", found " + Printable(row.key);
    }
    previous = &row.key;
    if (auto problem = find_value_problem(row.key, row.value)) {
      return "row of key " + Printable(row.key) + ": " + *problem;
    }
  }
  return std::nullopt;
}

}  // namespace farleaf::ycsb
