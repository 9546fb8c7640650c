// Phases on a target that runs in virtual time.
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <poll.h>

#include <algorithm>

#include "benchmark/ycsb/batch_means.h"
#include "benchmark/ycsb/runner.h"
#include "benchmark/ycsb/simulation.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {
// A batch of the stop rule has at least so many operations, and so many of each client.
constexpr uint64_t kBatchOperationsMin = 512, kBatchOperationsPerClient = 16;

std::string_view NameOf(Mix mix) {
  return mix == Mix::kLoad ? "load" : mix == Mix::kRun ? "run" : "warm-up";
}
}  // namespace

/// Watches a simulated phase: ends it by the stop rule, and shows its progress.
class Runner::SimulatedPhase {
 public:
  SimulatedPhase(Runner* runner, Mix mix, uint64_t operations, PhaseState* state,
                 std::span<const std::unique_ptr<OperationGenerator>> generators)
      : runner_(*runner),
        simulation_(*runner->target_->simulation()),
        mix_(mix),
        operations_(operations),
        state_(*state),
        generators_(generators),
        means_(std::max(kBatchOperationsMin, kBatchOperationsPerClient * generators.size() *
                                                 runner->options_.configuration.in_flight)),
        begin_ns_(simulation_.clock().NowNs()),
        begin_real_ns_(runner->clock_->NowNs()) {}

  void Look() {
    uint64_t done = 0;
    for (const auto& generator : generators_) done += generator->done();
    const uint64_t now_ns = simulation_.clock().NowNs();
    means_.Sample(now_ns, done);
    if (runner_.StopsByConfidence(mix_) && done >= operations_ &&
        means_.ConfidencePercent() <= runner_.options_.configuration.confidence_percent) {
      state_.stop.store(true);
    }
    const double limit_s =
        mix_ == Mix::kRun ? static_cast<double>(runner_.workload_.execution_time_s_max) : 0;
    if (limit_s > 0 && static_cast<double>(now_ns - begin_ns_) * 1e-9 >= limit_s) {
      state_.stop.store(true);
    }
    pollfd interrupt{runner_.options_.interrupt_fd, POLLIN, 0};
    if (interrupt.fd >= 0 && !interrupted_ && ::poll(&interrupt, 1, 0) > 0) {
      interrupted_ = true;
      state_.stop.store(true);
    }
    ShowProgress(done, now_ns);
  }
  bool interrupted() const { return interrupted_; }
  double confidence_percent() const { return means_.ConfidencePercent(); }

 private:
  void ShowProgress(uint64_t done, uint64_t now_ns) {
    const double interval_s = runner_.options_.progress ? runner_.options_.status_interval_s : 0;
    const double real_s = static_cast<double>(runner_.clock_->NowNs() - begin_real_ns_) * 1e-9;
    if (interval_s <= 0 || real_s < std::max(kQuietPhaseSeconds, shown_s_ + interval_s)) return;
    shown_s_ = real_s;
    const double virtual_s = static_cast<double>(now_ns - begin_ns_) * 1e-9;
    fmt::print(*runner_.options_.progress, "ycsb: {} {:.0f} s: {} operations", NameOf(mix_), real_s,
               done);
    if (virtual_s > 0) {
      fmt::print(*runner_.options_.progress, " in {:.3f} ms of virtual time, {:.0f} ops/s",
                 virtual_s * 1e3, static_cast<double>(done) / virtual_s);
      const double percent = means_.ConfidencePercent();
      if (percent < 100) fmt::print(*runner_.options_.progress, " +-{:.2f} %", percent);
    }
    *runner_.options_.progress << std::endl;
  }

  Runner& runner_;
  Simulation& simulation_;
  const Mix mix_;
  const uint64_t operations_;
  PhaseState& state_;
  std::span<const std::unique_ptr<OperationGenerator>> generators_;
  BatchMeans means_;
  const uint64_t begin_ns_, begin_real_ns_;
  double shown_s_ = 0;
  bool interrupted_ = false;
};

bool Runner::StopsByConfidence(Mix mix) const {
  return mix == Mix::kRun && options_.configuration.confidence_percent > 0;
}

Result<PhaseResult> Runner::RunSimulated(Mix mix, uint64_t operations) {
  Simulation& simulation = *target_->simulation();
  const RunConfiguration& configuration = options_.configuration;
  PhaseState state{.run = run_};
  auto bytes_before = target_->PoolBytesUsed();
  if (!bytes_before.ok()) return bytes_before.status();
  const uint64_t limit =
      StopsByConfidence(mix) ? std::max(configuration.operations_max, operations) : operations;
  const auto generators = MakeGenerators(&state, mix, limit);
  std::vector<OperationSource*> sources;
  for (const auto& generator : generators) sources.push_back(generator.get());

  const bool free = mix == Mix::kWarmup || (mix == Mix::kLoad && configuration.free_load);
  PhaseResult result;
  const uint64_t begin_ns = simulation.clock().NowNs(), begin_cpu_ns = simulation.cpu_ns();
  const uint64_t begin_events = simulation.events();
  state.start_ns.store(begin_ns);
  SimulatedPhase phase(this, mix, operations, &state, generators);
  FARLEAF_RETURN_IF_ERROR(simulation.Run(sources, configuration.in_flight,
                                         free ? Simulation::Pace::kFree : Simulation::Pace::kTimed,
                                         [&phase] { phase.Look(); }));
  result.interrupted = phase.interrupted();
  result.elapsed_ns = free ? 0 : simulation.clock().NowNs() - begin_ns;
  result.cpu_ns = simulation.cpu_ns() - begin_cpu_ns;
  result.phase = mix == Mix::kLoad ? Phase::kLoad : Phase::kRun;
  // A load begins with an empty tree: its rate is no constant to be known better and better.
  const double percent = phase.confidence_percent();
  if (mix == Mix::kRun && percent < 100) result.confidence_percent = percent;
  result.simulation = simulation.Describe();
  result.simulation["events"] = simulation.events() - begin_events;
  for (const auto& generator : generators) {
    for (size_t i = 0; i < kOpKinds; ++i) result.kinds[i].Merge(generator->stats()[i]);
    result.unverified_values += generator->unverified();
  }
  if (!free) result.series = TakeSeries(generators, result.elapsed_ns);
  result.problems = state.problems.Copy();
  result.failed = state.failed.load();
  auto bytes_after = target_->PoolBytesUsed();
  if (!bytes_after.ok()) return bytes_after.status();
  result.pool_bytes_used = *bytes_after;
  result.pool_bytes_grown = *bytes_after - std::min(*bytes_before, *bytes_after);
  return result;
}

}  // namespace farleaf::ycsb
