// sim: the tree in simulated worlds, one a seed.
//
//   sim --seeds 1..1000 --faults drops        # many runs; exit code 1 if one fails a check
//   sim --replay 4711 --faults drops --trace  # one of them again, with a line for each piece of a verb
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "test/simulation/seed_range.h"
#include "test/simulation/tree_run.h"

namespace farleaf::simulation {
namespace {

struct Command {
  SeedRange seeds;
  FaultMix faults = FaultMix::kNone;
  uint32_t jobs = 1;
  bool trace = false;
};

std::string Counts(const TreeRunResult& sum) {
  return fmt::format(
      "operations {} (failed {}, {} by their deadline, longest {:.3f} ms) crashes {} events {} "
      "left_behind {} splits {} merges {} "
      "roots_grown {} roots_shrunk {} "
      "hops {} torn_reads {} lock_conflicts {} handovers {} separators_completed {}",
      sum.operations, sum.failed_operations, sum.expired_operations,
      static_cast<double>(sum.longest_ns) / 1e6, sum.crashes, sum.events, sum.left_behind,
      sum.splits, sum.merges, sum.roots_grown, sum.roots_shrunk, sum.hops, sum.torn_reads,
      sum.lock_conflicts, sum.handovers, sum.separators_completed);
}

int Replay(const Command& command) {
  TreeRunOptions options{command.seeds.first, command.faults, nullptr};
  if (command.trace) {
    options.trace = [](uint64_t now_ns, const std::string& line) {
      fmt::print("{:>14.3f} us  {}\n", static_cast<double>(now_ns) / 1e3, line);
    };
  }
  const TreeRunResult result = RunTree(options);
  fmt::print("seed {}: trace {:016x}, {:.3f} ms of virtual time\n{}\n{}\n", options.seed,
             result.trace_hash, static_cast<double>(result.virtual_ns) / 1e6, Counts(result),
             result.failure.empty() ? "all checks passed" : result.failure);
  return result.failure.empty() ? 0 : 1;
}

int RunMany(const Command& command) {
  constexpr size_t kFailuresMax = 10;
  const size_t sums_bytes = sizeof(TreeRunResult) * command.jobs;
  // Children write their sums here; the strings in them stay empty.
  void* shared =
      ::mmap(nullptr, sums_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FARLEAF_CHECK(shared != MAP_FAILED, errno);
  auto* sums = static_cast<TreeRunResult*>(shared);
  TreeRunResult sum;
  const auto begun = std::chrono::steady_clock::now();
  const auto failures = RunSeeds(
      command.seeds, command.jobs, kFailuresMax,
      [&](uint64_t seed) {
        const TreeRunResult result = RunTree({seed, command.faults, nullptr});
        sum.Add(result);
        return result.failure;
      },
      [&](uint32_t job) { new (&sums[job]) TreeRunResult(sum); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  for (uint32_t job = 0; job < command.jobs; ++job) sum.Add(sums[job]);
  ::munmap(shared, sums_bytes);
  for (const SeedFailure& failure : failures) {
    fmt::print("seed {}: {}\n  again: sim --replay {} --faults {}\n", failure.seed, failure.what,
               failure.seed, kFaultMixNames[static_cast<size_t>(command.faults)]);
  }
  const uint64_t seeds = command.seeds.last - command.seeds.first + 1;
  fmt::print("{} seeds, faults {}, {} failed, {:.1f} s ({:.0f} seeds/s)\n{}\n", seeds,
             kFaultMixNames[static_cast<size_t>(command.faults)], failures.size(), took.count(),
             static_cast<double>(seeds) / took.count(), Counts(sum));
  return failures.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs the tree in simulated worlds, one a seed, and checks what it answered.");
  std::string seeds = "1..100", faults = "none";
  uint64_t replay = 0;
  Command command;
  command.jobs = std::max(1u, std::min(64u, std::thread::hardware_concurrency()));
  app.add_option("--seeds", seeds, "A..B: the seeds to run")->capture_default_str();
  auto* replayed =
      app.add_option("--replay", replay, "run this seed alone, and print its trace hash");
  app.add_option(
         "--faults", faults,
         "what goes wrong meanwhile: none, drops, stalls, partitions, lost_servers, crashes")
      ->capture_default_str();
  app.add_option("--jobs", command.jobs, "runs at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--trace", command.trace, "with --replay: a line for each piece of a verb")
      ->needs(replayed);
  CLI11_PARSE(app, argc, argv);
  const auto mix = ParseFaultMix(faults);
  if (!mix.ok()) {
    fmt::print(stderr, "sim: --faults: {}\n", mix.status().message());
    return 2;
  }
  command.faults = *mix;
  if (*replayed) {
    command.seeds = {replay, replay};
    return Replay(command);
  }
  unsigned long long first = 0, last = 0;
  char rest = 0;
  if (std::sscanf(seeds.c_str(), "%llu..%llu%c", &first, &last, &rest) != 2 || first == 0 ||
      last < first) {
    fmt::print(stderr, "sim: --seeds: '{}' is not A..B with 1 <= A <= B\n", seeds);
    return 2;
  }
  command.seeds = {first, last};
  return RunMany(command);
}

}  // namespace
}  // namespace farleaf::simulation

int main(int argc, char** argv) { return farleaf::simulation::Main(argc, argv); }
