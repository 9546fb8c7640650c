// OperationGenerator: one thread's stream of operations, and the check and measurement of their
// results.
//
// Thread rule: a generator belongs to one thread; what PhaseState holds is shared and thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/ycsb/acknowledged.h"
#include "benchmark/ycsb/completion_gaps.h"
#include "benchmark/ycsb/distributions.h"
#include "benchmark/ycsb/measurement.h"
#include "benchmark/ycsb/record.h"
#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/time_series.h"
#include "benchmark/ycsb/trace_player.h"
#include "benchmark/ycsb/workload.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {

/// Keeps the first few messages.
class ProblemLog {
 public:
  static constexpr size_t kKept = 5;
  void Add(std::string problem) {
    std::lock_guard lock(mutex_);
    if (problems_.size() < kKept) problems_.push_back(std::move(problem));
  }
  std::vector<std::string> Copy() const {
    std::lock_guard lock(mutex_);
    return problems_;
  }

 private:
  mutable std::mutex mutex_;  // guards problems_
  std::vector<std::string> problems_;
};

/// What lives as long as the process's phases.
struct RunState {
  const WorkloadOptions& options;
  const RecordCodec& codec;
  AcknowledgedCounter& inserts;  ///< key numbers of the run phase, from record_count on
  const Clock& clock;
  /// An insert failed, so that a missing key proves nothing.
  std::atomic<bool> insert_failed{false};
};

/// What lives as long as one phase.
struct PhaseState {
  RunState& run;
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  ProblemLog problems{};
  std::atomic<uint64_t> start_ns{0};  ///< open loop: when operation 0 is due
};

enum class Mix : uint8_t { kLoad, kWarmup, kRun };

struct GeneratorOptions {
  Mix mix = Mix::kRun;
  uint64_t thread = 0;
  uint64_t threads = 1;
  uint64_t seed = 1;
  uint64_t operations = 0;          ///< of this thread
  uint64_t first_number = 0;        ///< kLoad: the first key number of this thread
  double interval_ns = 0;           ///< open loop: between operations of all threads; 0: closed
  uint64_t series_interval_ns = 0;  ///< 0: no time series
  const Zipfian* latest = nullptr;  ///< for RequestDistribution::kLatest; copied
  const TraceSummary* trace = nullptr;  ///< kRun: replayed, instead of the workload's operations
};

class OperationGenerator final : public OperationSource {
 public:
  OperationGenerator(PhaseState* phase, const GeneratorOptions& options);

  bool Next(Operation* operation) override;
  bool Blocked(const Operation& operation) const override;
  bool Begin(Operation* operation) override;
  bool Modify(const Operation& operation, std::string_view current,
              std::string* replacement) override;
  void Done(const Operation& operation) override;
  bool stopped() const override { return phase_.stop.load(std::memory_order_relaxed); }

  const StatsByKind& stats() const { return stats_; }
  /// Of a trace: values read that may be right or wrong.
  uint64_t unverified() const { return player_ ? player_->unverified() : 0; }
  const CompletionGaps& gaps() const { return gaps_; }
  /// Null without a time series.
  IntervalRecorder* intervals() { return intervals_ ? &*intervals_ : nullptr; }
  /// For progress; any thread.
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  /// False: stopped, or the trace cannot be read any more.
  bool MakeTraced(Operation* operation);
  void MakeChosen(Operation* operation);
  std::string Describe(const Operation& operation) const;
  OpKind ChooseKind();
  uint64_t ChooseNumber();
  /// The newest number that there is, less a draw.
  uint64_t ChooseExponential();
  /// Of the run: which operation of all threads' the next one is, if they are equally fast.
  uint64_t turn() const { return issued_ * options_.threads + options_.thread; }
  uint64_t ChooseScanLength();
  bool MustBePresent(uint64_t number, uint64_t present_end) const;
  Return Classify(const Operation& operation);
  /// nullopt, or what is wrong with an operation that did not fail.
  std::optional<std::string> FindProblem(const Operation& operation);
  std::optional<std::string> FindScanProblem(const Operation& operation) const;
  std::optional<std::string> FindGap(const Operation& operation) const;
  void CountUserBytes(const Operation& operation, KindStats* stats) const;
  void Fail(std::string problem);

  PhaseState& phase_;
  RunState& run_;
  const WorkloadOptions& workload_;
  GeneratorOptions options_;
  Random random_;
  std::optional<ScrambledZipfian> zipfian_;
  std::optional<Zipfian> latest_;
  std::optional<HotSpot> hot_spot_;
  std::optional<Exponential> exponential_;
  std::optional<TracePlayer> player_;
  std::optional<Zipfian> scan_lengths_;
  double cumulative_[kOpKinds] = {};
  uint64_t next_sequential_ = 0;
  uint64_t issued_ = 0;
  StatsByKind stats_;
  CompletionGaps gaps_;
  std::optional<IntervalRecorder> intervals_;
  alignas(64) std::atomic<uint64_t> done_{0};
};

}  // namespace farleaf::ycsb
