// sim: the tree in simulated worlds, one a seed.
//
//   sim --file hot_key.toml                     # the file's budget of seeds, and those that failed once
//   sim --file hot_key.toml --seeds 1..100000   # many runs; exit code 1 if one fails a check
//   sim --file hot_key.toml --replay 4711 --trace   # one of them again, with a line for each piece of a verb
//   sim --faults drops+stalls --seeds 1..1000   # a wide plan without a file, or a file with other faults
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/simulation/run_file.h"
#include "test/simulation/seed_range.h"
#include "test/simulation/tree_run.h"
#include "test/support/test_scale.h"

namespace farleaf::simulation {
namespace {

struct Command {
  RunPlan plan;
  std::string arguments;  ///< that name the plan
  SeedRange seeds;
  uint32_t jobs = 1;
  bool trace = false;
};

struct Outcome {
  TreeRunResult sum;
  uint64_t seeds = 0, failed = 0;
};

std::string Counts(const TreeRunResult& sum) {
  return fmt::format(
      "operations {}, failed {}, {} by their deadline; longest {:.3f} ms; events {}; crashes {}; "
      "stops {}, refused {}; left in disorder {}\n{}",
      sum.operations, sum.failed_operations, sum.expired_operations,
      static_cast<double>(sum.longest_ns) / 1e6, sum.events, sum.crashes, sum.stops,
      sum.stops_refused, sum.left_in_disorder, sum.probes.Table());
}

int Replay(const Command& command) {
  dsm::SimTrace::Sink sink;
  if (command.trace) {
    sink = [](uint64_t now_ns, const std::string& line) {
      fmt::print("{:>14.3f} us  {}\n", static_cast<double>(now_ns) / 1e3, line);
    };
  }
  const uint64_t seed = command.seeds.first;
  const TreeRunResult result = RunTree(command.plan, seed, sink);
  fmt::print("seed {}, faults {}: trace {:016x}, {:.3f} ms of virtual time\n{}\n{}\n", seed,
             FaultsOf(command.plan, seed).set.Name(), result.trace_hash,
             static_cast<double>(result.virtual_ns) / 1e6, Counts(result),
             result.failure.empty() ? "all checks passed" : result.failure);
  return result.failure.empty() ? 0 : 1;
}

/// Runs a range of seeds; adds to `sum` what they counted. Returns the failures.
std::vector<SeedFailure> RunRange(const Command& command, SeedRange seeds, TreeRunResult* sum) {
  constexpr size_t kShownMax = 10;
  const auto jobs =
      static_cast<uint32_t>(std::min<uint64_t>(command.jobs, seeds.last - seeds.first + 1));
  const size_t sums_bytes = sizeof(TreeRunResult) * jobs;
  // Children write their sums here; the strings in them stay empty.
  void* shared =
      ::mmap(nullptr, sums_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FARLEAF_CHECK(shared != MAP_FAILED, errno);
  auto* sums = static_cast<TreeRunResult*>(shared);
  TreeRunResult of_child;
  auto failures = RunSeeds(
      seeds, jobs, kShownMax,
      [&](uint64_t seed) {
        const TreeRunResult result = RunTree(command.plan, seed);
        of_child.Add(result);
        return result.failure;
      },
      [&](uint32_t job) { new (&sums[job]) TreeRunResult(of_child); });
  for (uint32_t job = 0; job < jobs; ++job) sum->Add(sums[job]);
  ::munmap(shared, sums_bytes);
  return failures;
}

void RunMany(const Command& command, Outcome* outcome) {
  TreeRunResult sum;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<SeedFailure> failures;
  for (const uint64_t seed : command.plan.seeds) {
    for (SeedFailure& failure : RunRange(command, {seed, seed}, &sum)) failures.push_back(failure);
  }
  for (SeedFailure& failure : RunRange(command, command.seeds, &sum)) failures.push_back(failure);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  for (const SeedFailure& failure : failures) {
    fmt::print("seed {}, faults {}: {}\n  again: sim {} --replay {}\n", failure.seed,
               FaultsOf(command.plan, failure.seed).set.Name(), failure.what, command.arguments,
               failure.seed);
  }
  const uint64_t seeds = command.seeds.last - command.seeds.first + 1 + command.plan.seeds.size();
  fmt::print("{} seeds, {}, {} failed, {:.1f} s ({:.0f} seeds/s)\n", seeds, command.arguments,
             failures.size(), took.count(), static_cast<double>(seeds) / took.count());
  outcome->sum.Add(sum);
  outcome->seeds += seeds;
  outcome->failed += failures.size();
}

Status ChoosePlan(const std::string& file, const std::string& faults, RunPlan* plan,
                  std::string* arguments) {
  if (!file.empty()) {
    auto loaded = LoadRunFile(file);
    if (!loaded.ok()) return loaded.status();
    *plan = std::move(*loaded);
    *arguments = "--file " + file;
  }
  if (faults.empty()) return Status::Ok();
  const auto set = ParseFaultSet(faults);
  if (!set.ok()) return set.status().WithContext("--faults");
  plan->faults = {FaultPlan{.set = *set}};
  *arguments += (arguments->empty() ? "--faults " : " --faults ") + faults;
  return Status::Ok();
}

struct Flags {
  std::vector<std::string> files;
  std::string seeds, faults, leaf_parts, without;
  uint64_t replay = 0;
  bool replays = false;
  uint64_t share_percent = 100;
  bool require_probes = false;
};

Status MakeCommand(const Flags& flags, const std::string& file, Command* command) {
  FARLEAF_RETURN_IF_ERROR(ChoosePlan(file, flags.faults, &command->plan, &command->arguments));
  if (!flags.leaf_parts.empty()) {
    const auto parts = ParseLeafParts(flags.leaf_parts);
    if (!parts.ok()) return parts.status().WithContext("--leaf-parts");
    command->plan.setup.leaf_parts = *parts;
    command->arguments +=
        (command->arguments.empty() ? "" : " ") + ("--leaf-parts " + flags.leaf_parts);
  }
  if (!flags.without.empty()) {
    const auto set = test::ParseOptionSet(flags.without);
    if (!set.ok()) return set.status().WithContext("--without");
    command->plan.setup.without.Add(*set);
    command->arguments += (command->arguments.empty() ? "" : " ") + ("--without " + flags.without);
  }
  const uint64_t budget = std::max<uint64_t>(1, command->plan.budget * flags.share_percent / 100);
  command->seeds = {1, test::Amount{budget, budget, budget * 500}};
  if (!flags.seeds.empty()) {
    const auto seeds = ParseRange(flags.seeds);
    if (!seeds.ok()) return seeds.status().WithContext("--seeds");
    command->seeds = {seeds->low, seeds->high};
  }
  if (flags.replays) command->seeds = {flags.replay, flags.replay};
  return Status::Ok();
}

int RunFiles(const Flags& flags, std::vector<Command> commands) {
  Outcome outcome;
  for (const Command& command : commands) RunMany(command, &outcome);
  fmt::print("{}", Counts(outcome.sum));
  const std::string missed = outcome.sum.probes.Missed();
  if (flags.require_probes && !missed.empty()) {
    fmt::print("no seed took these paths: {}\n", missed);
    return 1;
  }
  return outcome.failed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs the tree in simulated worlds, one a seed, and checks what it answered.");
  Flags flags;
  uint32_t jobs = std::max(1u, std::min(64u, std::thread::hardware_concurrency()));
  bool trace = false;
  app.add_option("--file", flags.files,
                 "setup, workload, faults and checks (test/simulation/files); may be repeated");
  app.add_option("--seeds", flags.seeds,
                 "A..B: the seeds to run, beside those that the file names (default: the file's "
                 "budget)");
  app.add_option("--share", flags.share_percent, "of the budget to run, in percent")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  auto* replayed =
      app.add_option("--replay", flags.replay, "run this seed alone, and print its trace hash");
  app.add_option("--faults", flags.faults, "what goes wrong meanwhile: " + AllowedFaults());
  app.add_option("--leaf-parts", flags.leaf_parts,
                 "A..B: trees of fixed8 have parted leaves, of so many parts");
  app.add_option("--without", flags.without,
                 "options of the tree that are off: " + test::AllowedOptions());
  app.add_option("--jobs", jobs, "runs at a time")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_flag("--trace", trace, "with --replay: a line for each piece of a verb")->needs(replayed);
  app.add_flag("--require-probes", flags.require_probes,
               "fail if a path of the table of probes was taken by no seed");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::warn);  // who cuts off whom is in the trace
  flags.replays = replayed->count() > 0;
  if (flags.files.empty()) flags.files.emplace_back();
  std::vector<Command> commands;
  for (const std::string& file : flags.files) {
    Command& command = commands.emplace_back();
    command.jobs = jobs;
    command.trace = trace;
    if (Status made = MakeCommand(flags, file, &command); !made.ok()) {
      fmt::print(stderr, "sim: {}\n", made.message());
      return 2;
    }
  }
  return flags.replays ? Replay(commands.front()) : RunFiles(flags, std::move(commands));
}

}  // namespace
}  // namespace farleaf::simulation

int main(int argc, char** argv) { return farleaf::simulation::Main(argc, argv); }
