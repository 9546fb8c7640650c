#include "benchmark/ycsb/comparison_run.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <poll.h>

#include "benchmark/ycsb/comparison.h"
#include "benchmark/ycsb/runner.h"
#include "benchmark/ycsb/verdict.h"

namespace farleaf::ycsb {

namespace {

class ComparisonRun {
 public:
  ComparisonRun(const ComparedTarget& target, const ComparedTarget& against,
                const ComparisonRunOptions& options)
      : options_(options),
        sides_{SideRun(target, options), SideRun(against, options)},
        comparison_({.target = target.configuration,
                     .against = against.configuration,
                     .against_args = options.against_args,
                     .rounds = options.rounds,
                     .virtual_time = target.target->simulation() != nullptr}) {}

  ComparisonOutcome Run() {
    if (options_.load) Load();
    while (code_ == kExitOk && comparison_.rounds() < options_.rounds) RunRound();
    comparison_.Print(*options_.out);
    options_.out->flush();
    return {code_, comparison_.ToJson()};
  }

 private:
  struct SideRun {
    SideRun(const ComparedTarget& compared_in, const ComparisonRunOptions& options)
        : compared(compared_in),
          runner({.configuration = compared.configuration,
                  .status_interval_s = options.status_interval_s,
                  .interrupt_fd = options.interrupt_fd,
                  .progress = options.error},
                 compared.target, options.clock) {}
    const ComparedTarget& compared;
    Runner runner;
  };
  SideRun& side(Side side) { return sides_[static_cast<size_t>(side)]; }

  void Load() {
    for (Side loaded : {Side::kTarget, Side::kAgainst}) {
      const auto result = RunPhase(loaded, Phase::kLoad, "load");
      if (!result) return;
      comparison_.AddLoad(loaded, *result);
      *options_.out << (loaded == Side::kTarget ? "# A" : "# B") << " is loaded:\n";
      PrintText(side(loaded).compared.configuration, *result, *options_.out);
      options_.out->flush();
    }
  }

  void RunRound() {
    const size_t round = comparison_.rounds();
    const uint64_t seed = side(Side::kTarget).compared.configuration.seed + round;
    const Side first = FirstOf(round);
    const Side second = first == Side::kTarget ? Side::kAgainst : Side::kTarget;
    std::optional<PhaseResult> results[2];
    for (Side runs : {first, second}) {
      side(runs).runner.set_seed(seed);
      auto result = RunPhase(runs, Phase::kRun, fmt::format("round {}", round + 1));
      if (!result) return;
      results[static_cast<size_t>(runs)] = std::move(result);
    }
    comparison_.AddRound(seed, *results[0], *results[1]);
    ShowProgress(*results[0], *results[1]);
  }

  /// nullopt: it is not to count, and ends the run.
  std::optional<PhaseResult> RunPhase(Side runs, Phase phase, const std::string& what) {
    SideRun& run = side(runs);
    const std::string where = run.compared.name + ": " + what;
    if (Interrupted()) {
      End(kExitInterrupted, {});
      return std::nullopt;
    }
    auto result = run.runner.Run(phase);
    if (!result.ok()) {
      *options_.error << "ycsb: " << where << ": " << result.status() << "\n";
      End(kExitFailed, {where + ": " + result.status().ToString()});
      return std::nullopt;
    }
    const int code = Judge(*result, run.compared.configuration.workload, where, *options_.error);
    if (code == kExitOk) return std::move(*result);
    std::vector<std::string> problems;
    for (const std::string& problem : result->problems) problems.push_back(where + ": " + problem);
    End(code, std::move(problems));
    return std::nullopt;
  }

  void End(int code, std::vector<std::string> problems) {
    code_ = code;
    if (code == kExitInterrupted) {
      comparison_.SetInterrupted();
    } else {
      comparison_.SetFailed(std::move(problems));
    }
  }

  /// A short phase may end before it looks.
  bool Interrupted() const {
    pollfd interrupt{options_.interrupt_fd, POLLIN, 0};
    return interrupt.fd >= 0 && ::poll(&interrupt, 1, 0) > 0;
  }

  void ShowProgress(const PhaseResult& target, const PhaseResult& against) {
    if (options_.status_interval_s <= 0) return;
    fmt::print(*options_.error, "ycsb: round {} of {}: A {:.0f} ops/s, B {:.0f} ops/s",
               comparison_.rounds(), options_.rounds, target.ops_per_second(),
               against.ops_per_second());
    const auto ratio = comparison_.LastRatio("ops_per_second");
    if (ratio) fmt::print(*options_.error, ", A/B {:.4f}", *ratio);
    *options_.error << std::endl;
  }

  const ComparisonRunOptions& options_;
  SideRun sides_[2];  // by Side
  Comparison comparison_;
  int code_ = kExitOk;
};

}  // namespace

ComparisonOutcome RunComparison(const ComparedTarget& target, const ComparedTarget& against,
                                const ComparisonRunOptions& options) {
  return ComparisonRun(target, against, options).Run();
}

}  // namespace farleaf::ycsb
