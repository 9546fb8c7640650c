#include "benchmark/ycsb/verdict.h"

namespace farleaf::ycsb {

int Judge(const PhaseResult& result, const WorkloadOptions& workload, std::string_view where,
          std::ostream& error) {
  for (const std::string& problem : result.problems) {
    error << "ycsb: " << where << ": " << problem << "\n";
  }
  const auto& inserts = result.kinds[static_cast<size_t>(OpKind::kInsert)];
  const uint64_t existing = inserts.returns[static_cast<size_t>(Return::kExists)];
  if (existing > 0 && !result.failed && workload.trace_file.empty()) {
    error << "ycsb: " << where << ": " << existing
          << " inserts found their key there already (Return=EXISTS): tree '" << workload.tree
          << "' holds more than recordcount=" << workload.record_count
          << " records; load a fresh tree for exact INSERT figures\n";
  }
  if (result.failed) return kExitFailed;
  return result.interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace farleaf::ycsb
