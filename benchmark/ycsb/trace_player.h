// TracePlayer: one thread's part of a trace as operations, and what may be said against their
// results.
//
// Of the data before the trace nothing is known. A key that is not there is no fault, and neither
// is a value that nothing marks as the benchmark's, unless farleaf.trace_own_values says that all
// are.
//
// With many operations in flight, those of a key still run one after another: one that was handed
// out is Blocked while an earlier one of its key has not ended.
//
// Thread rule: one owner, the thread that runs the operations.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/trace.h"
#include "benchmark/ycsb/trace_values.h"

namespace farleaf::ycsb {

struct TracePlayerOptions {
  uint64_t thread = 0;
  double interval_ns = 0;   ///< of an untimed trace: between its operations; 0: closed loop
  bool own_values = false;  ///< foreign values are faults
  const std::atomic<bool>* stop = nullptr;  ///< true: nothing more is wanted
};

class TracePlayer {
 public:
  /// REQUIRES: `trace` and `codec` outlive it.
  TracePlayer(const TraceSummary* trace, const RecordCodec* codec,
              const TracePlayerOptions& options);

  /// The thread's next operation; time 0 of the trace is `start_ns`. False: stopped, which may be
  /// while lines of other threads are passed over. Fails if the file is no longer what the summary
  /// was made of. REQUIRES: fewer calls before than operations of the thread.
  Result<bool> Next(uint64_t start_ns, Operation* operation);
  /// An operation of the same key that was handed out before has not ended.
  bool Blocked(const Operation& operation) const;
  void Ended(const Operation& operation);
  /// False: `current` is damaged.
  bool Modify(const Operation& operation, std::string_view current, std::string* replacement) const;
  /// nullopt, or what is wrong with an operation that did not fail.
  std::optional<std::string> FindProblem(const Operation& operation);
  /// Values read of which nobody can tell whether they are right.
  uint64_t unverified() const { return unverified_; }

 private:
  Status Changed() const;
  std::optional<std::string> FindValueProblem(std::string_view key, std::string_view value);
  std::optional<std::string> FindScanProblem(const Operation& operation);

  const TraceSummary& trace_;
  const TraceValues values_;
  const TracePlayerOptions options_;
  std::unique_ptr<TraceReader> reader_;  ///< opened by the first call of Next
  TracedOperation next_;
  std::set<std::pair<uint64_t, uint64_t>> running_;  ///< key's hash and line of those handed out
  uint64_t unverified_ = 0;
};

}  // namespace farleaf::ycsb
