// Runner: runs phases against a target with threads, shows progress, and gathers what they
// measured.
//
// Thread rule: one thread, which starts and joins the phase's threads.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include "benchmark/ycsb/measurement.h"
#include "benchmark/ycsb/operations.h"
#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/target.h"
#include "dsm/base/clock.h"

namespace farleaf::ycsb {

struct RunnerOptions {
  RunConfiguration configuration;
  double status_interval_s = 2;  ///< 0: no progress lines
  int interrupt_fd = -1;         ///< readable: end the phase early
  std::ostream* progress = nullptr;
  const Clock* unix_clock = nullptr;  ///< time of day; null: results do not tell it
};

/// A phase shorter than this shows no progress.
inline constexpr double kQuietPhaseSeconds = 2;

class Runner {
 public:
  Runner(RunnerOptions options, Target* target, const Clock* clock);

  /// The Status is of the benchmark itself (a session cannot be opened); failed operations and
  /// wrong values are in the result. A run phase is preceded by the warm-up.
  Result<PhaseResult> Run(Phase phase);
  /// Of the phases to come.
  void set_seed(uint64_t seed) { options_.configuration.seed = seed; }

 private:
  struct Crew;  ///< the threads of one phase
  class SimulatedPhase;

  Result<PhaseResult> RunMix(Mix mix, uint64_t operations);
  /// nullopt unless one was asked for.
  std::optional<TimeSeries> TakeSeries(
      std::span<const std::unique_ptr<OperationGenerator>> generators, uint64_t elapsed_ns) const;
  /// What a target with a directory has done since `before`.
  StoreUse TakeStoreUse(const std::optional<DeviceTraffic>& before) const;
  /// Waits until the target is quiet, or the time for it is up.
  Settling Settle() const;
  /// Adds what the phase has inserted, and returns what the store holds then.
  uint64_t CountLiveUserBytes(const PhaseResult& result);
  /// RunMix on a target in virtual time.
  Result<PhaseResult> RunSimulated(Mix mix, uint64_t operations);
  bool StopsByConfidence(Mix mix) const;
  std::vector<std::unique_ptr<OperationGenerator>> MakeGenerators(PhaseState* state, Mix mix,
                                                                  uint64_t operations);
  /// Waits for the crew; returns whether it was interrupted.
  bool Watch(Crew& crew, Mix mix, uint64_t operations);
  void ShowProgress(Mix mix, uint64_t done, uint64_t total, double rate, double elapsed_s);

  RunnerOptions options_;
  const WorkloadOptions& workload_;
  Target* target_;
  const Clock* clock_;
  RecordCodec codec_;
  AcknowledgedCounter inserts_;
  RunState run_;
  std::optional<Zipfian> latest_;
  std::optional<uint64_t> live_user_bytes_;  ///< nullopt: no phase has counted yet
};

}  // namespace farleaf::ycsb
