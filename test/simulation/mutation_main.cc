// mutations: proves that the checkers of simulated runs find faults. For each Mutation (dsm/base/mutation.h)
// it runs seeds of one file until one fails, and prints how many that took and what found it.
//
//   mutations FILES_FOLDER                  # all; exit code 1 if one is not caught within its seeds
//   mutations FILES_FOLDER --only no_replay
//   mutations FILES_FOLDER --without shortcuts   # options of the tree that are off: without what is theirs
//   mutations FILES_FOLDER --leaf-parts 4..8     # all trees of fixed8, with parted leaves: without what is not of them
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/mutation.h"
#include "test/simulation/run_file.h"
#include "test/simulation/seed_range.h"
#include "test/simulation/tree_run.h"
#include "test/support/test_scale.h"

namespace farleaf {

namespace {
/// The choice is this program's alone, and made before each child process starts.
Mutation chosen = Mutation::kNone;
}  // namespace

bool Mutated(Mutation mutation) { return mutation == chosen; }

namespace simulation {
namespace {

/// A run that takes longer, of processor time, is taken not to end. An ordinary one takes up to 1.7.
constexpr time_t kRunSecondsMax = 6;
constexpr int kSkipped = 77;  ///< exit code

using test::TreeOption;

enum class Leaves : uint8_t {
  kAny,        ///< the fault is of all leaves, and the file draws which there are
  kParted,     ///< the fault is of parted leaves alone
  kNotParted,  ///< the fault is of gets of other leaves, or of values out of line
};

struct Case {
  Mutation mutation;
  std::string_view name;
  std::string_view file;    ///< of test/simulation/files, without .toml
  std::string_view faults;  ///< instead of the file's
  uint64_t seeds_max;
  Leaves leaves = Leaves::kAny;
  test::OptionSet needs = {};  ///< without any of them the code that is at fault does not run
  std::string_view file_without = {};  ///< instead of `file`, where any option is off
};

// Of a page that is written whole a death seldom leaves what a copy of the record would mend.
constexpr test::OptionSet kSmallWriteBacks{TreeOption::kSmallWriteBacks};
constexpr test::OptionSet kMerging{TreeOption::kMerging}, kHandOver{TreeOption::kHandOver},
    kWriteCombining{TreeOption::kWriteCombining}, kReadSharing{TreeOption::kReadSharing},
    kCache{TreeOption::kCache}, kCachedValueHints{TreeOption::kValueHints, TreeOption::kCache},
    kCachedValueLists{TreeOption::kValueLists, TreeOption::kCache},
    kCachedOrderedLeaves{TreeOption::kOrderedLeaves, TreeOption::kCache};
constexpr Case kCases[] = {
    {Mutation::kSkipChecksum, "skip_checksum", "hot_key", "none", 50},
    {Mutation::kNoFenceCheckOnLeaf, "no_fence_check_on_leaf", "byte_keys", "none", 50},
    {Mutation::kAbsentFromStaleLeaf, "absent_from_stale_leaf", "uniform", "none", 50,
     Leaves::kNotParted, kCache},
    {Mutation::kReadAheadOfLock, "read_ahead_of_lock", "tiny_tree", "none", 50},
    {Mutation::kUnlockBeforeWriteBack, "unlock_before_write_back", "hot_key", "none", 50},
    {Mutation::kIgnoreFailedBatch, "ignore_failed_batch", "hot_key", "drops", 100},
    {Mutation::kRightUnlockedBeforeLeft, "right_unlocked_before_left", "tiny_tree", "none", 1000},
    {Mutation::kSplitUnlocksBeforePublish, "split_unlocks_before_publish", "many_members", "none",
     5000},
    {Mutation::kMergeKillsRightFirst, "merge_kills_right_first", "moving_window", "crashes", 6000,
     Leaves::kAny, kMerging, "many_members"},
    {Mutation::kMergeForgetsParents, "merge_forgets_parents", "moving_window", "none", 500,
     Leaves::kAny, kMerging},
    {Mutation::kRootSwappedByWrite, "root_swapped_by_write", "tiny_tree", "none", 1000},
    {Mutation::kScanSkipsFences, "scan_skips_fences", "scans", "none", 100, Leaves::kAny, kCache},
    {Mutation::kReverseScanTrustsCache, "reverse_scan_trusts_cache", "scans", "none", 100,
     Leaves::kAny, kCache},
    {Mutation::kValueIdUnchecked, "value_id_unchecked", "hot_key", "none", 100, Leaves::kNotParted},
    {Mutation::kValueHintUnchecked, "value_hint_unchecked", "byte_keys", "none", 100,
     Leaves::kNotParted, kCachedValueHints},
    {Mutation::kScanGuessUnchecked, "scan_guess_unchecked", "scans", "none", 300,
     Leaves::kNotParted, kCachedValueLists},
    {Mutation::kValueFreedFirst, "value_freed_first", "hot_key", "crashes", 3000,
     Leaves::kNotParted},
    {Mutation::kPageNeverFreed, "page_never_freed", "moving_window", "none", 500, Leaves::kAny,
     kMerging},
    {Mutation::kPageFreedTwice, "page_freed_twice", "moving_window", "none", 500, Leaves::kAny,
     kMerging},
    {Mutation::kTakeOverWithoutFence, "take_over_without_fence", "hot_key", "none", 100},
    {Mutation::kNoRedoRecord, "no_redo_record", "hot_key", "crashes", 500},
    {Mutation::kNoReplay, "no_replay", "hot_key", "crashes", 500},
    {Mutation::kNoRedoCopy, "no_redo_copy", "uniform", "crashes_again", 2000, Leaves::kAny,
     kSmallWriteBacks, "many_members"},
    {Mutation::kHandOverBeforeWriteBack, "hand_over_before_write_back", "hot_key", "none", 100,
     Leaves::kAny, kHandOver},
    {Mutation::kFenceDigestUnchecked, "fence_digest_unchecked", "uniform", "none", 100,
     Leaves::kParted},
    {Mutation::kPassedMarkIgnored, "passed_mark_ignored", "uniform", "none", 100, Leaves::kParted},
    {Mutation::kPassedMarkForgotten, "passed_mark_forgotten", "uniform", "none", 100,
     Leaves::kParted},
    {Mutation::kCombinesOtherLeaves, "combines_other_leaves", "default", "none", 500, Leaves::kAny,
     kWriteCombining},
    {Mutation::kServedBeforeWriteBack, "served_before_write_back", "hot_key", "none", 100,
     Leaves::kAny, kWriteCombining},
    {Mutation::kScanTrustsOpenChains, "scan_trusts_open_chains", "scans", "none", 300,
     Leaves::kParted, kCachedOrderedLeaves},
    {Mutation::kScanTrustsPlacementHint, "scan_trusts_placement_hint", "scans", "none", 300,
     Leaves::kParted, kCache},
    {Mutation::kJoinsReadInFlight, "joins_read_in_flight", "hot_parts", "none", 100,
     Leaves::kParted, kReadSharing},
    {Mutation::kParkedTurnKept, "parked_turn_kept", "few_slots", "stalls", 5000, Leaves::kNotParted,
     kMerging},
    {Mutation::kSlotKeptWhileBusy, "slot_kept_while_busy", "few_slots_two_servers", "stalls", 40000,
     Leaves::kNotParted, kMerging},
    {Mutation::kNoUpkeep, "no_upkeep", "hot_key", "partitions", 1500},
};
static_assert(std::size(kCases) + 1 == kMutations, "each mutation, save none, is proven");

/// Where all leaves are parted, some mutations show, or show sooner, in another file, or among other faults.
struct Elsewhere {
  Mutation mutation;
  std::string_view file, faults;  ///< empty: its own
};
constexpr Elsewhere kOfPartedLeaves[] = {
    {Mutation::kNoFenceCheckOnLeaf, "uniform", ""},
    {Mutation::kRightUnlockedBeforeLeft, "moving_window", ""},
    {Mutation::kSplitUnlocksBeforePublish, "", "crashes"},
    {Mutation::kRootSwappedByWrite, "unequal_pages", ""},
    {Mutation::kNoRedoCopy, "hot_parts", ""},
    {Mutation::kHandOverBeforeWriteBack, "uniform", "stalls"},
};
/// Where options are off, too, what takes few seeds in most settings takes more in one or two.
constexpr uint64_t kPartedWithoutSeeds = 5000;

/// And where all of them are large: the keys of most files are in one or two of those.
constexpr uint64_t kLargeLeafParts = 20;
constexpr Elsewhere kOfLargeLeaves[] = {
    {Mutation::kRootSwappedByWrite, "large_leaves", ""},
    {Mutation::kScanTrustsOpenChains, "large_leaves", ""},
    {Mutation::kScanTrustsPlacementHint, "large_leaves", ""},
};
/// What needs a split, a merge or a torn page to meet a crash: the larger leaves are, the more seeds it takes.
constexpr Mutation kRare[] = {Mutation::kSplitUnlocksBeforePublish, Mutation::kMergeKillsRightFirst,
                              Mutation::kNoRedoCopy};

void TakeWhatShows(std::span<const Elsewhere> elsewhere, Case* one) {
  for (const auto& [mutation, file, faults] : elsewhere) {
    if (mutation != one->mutation) continue;
    if (!file.empty()) one->file = file;
    if (!faults.empty()) one->faults = faults;
  }
}

/// Which checker a failure comes from, by its first words.
std::string CheckerOf(const std::string& what) {
  const auto has = [&what](std::string_view text) { return what.find(text) != std::string::npos; };
  if (has("not linearizable")) return "linearizability";
  if (has("undecided after")) return "linearizability: no order found";
  if (has("scan [") || has("a scan") || has("scan of")) return "scans";
  if (has("signal 27")) return "progress: the run does not end";
  if (has("beside idle members") || has("upkeep:")) return "idle members";
  if (has("an operation took") || has("deadline exceeded")) return "bounded time";
  if (has("corruption")) return "answers: corruption";
  if (has("the run was ended by signal")) return "a check of the product";
  for (const std::string_view kind :
       {"page:", "node:", "lock:", "chain:", "separator:", "value:", "counter:"}) {
    if (what.starts_with(kind)) return "whole tree";
  }
  for (const std::string_view kind : {"ownership", "leak:", "chunk", "free list", "are held by"}) {
    if (has(kind)) return "page accounting";
  }
  return "answers: " + what.substr(0, 60);
}

/// Whether a seed caught it.
bool Prove(const Case& one, const RunPlan& file_plan, uint64_t seeds_max) {
  RunPlan plan = file_plan;
  plan.faults = {FaultPlan{.set = *ParseFaultSet(one.faults)}};
  if (one.leaves == Leaves::kParted && plan.setup.leaf_parts.high == 0) {
    plan.setup.leaf_parts = {4, 8};
  }
  chosen = one.mutation;
  const auto begun = std::chrono::steady_clock::now();
  const auto failures = RunSeeds(
      {1, seeds_max}, 1, 1,
      [&](uint64_t seed) {
        const itimerval limit{{0, 0}, {kRunSecondsMax, 0}};
        ::setitimer(ITIMER_PROF, &limit, nullptr);
        return RunTree(plan, seed).failure;
      },
      [](uint32_t) {});
  chosen = Mutation::kNone;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const bool caught = !failures.empty();
  fmt::print("{:<30} {:<14} {:<14} {:>6} of {:<6} {:<32} {:.1f} s\n", one.name, one.file,
             one.faults, caught ? std::to_string(failures[0].seed) : "none", seeds_max,
             caught ? CheckerOf(failures[0].what) : "NOT CAUGHT", took.count());
  std::fflush(stdout);
  return caught;
}

struct Flags {
  std::string folder, only, file, faults, without, leaf_parts;
  uint64_t seeds_max = 0;
  bool long_tests = false;
};

/// What all runs have in common.
Result<SetupPlan> CommonSetup(const Flags& flags) {
  SetupPlan setup;
  if (!flags.without.empty()) {
    const auto off = test::ParseOptionSet(flags.without);
    if (!off.ok()) return off.status().WithContext("--without");
    setup.without = *off;
  }
  if (!flags.leaf_parts.empty()) {
    const auto parts = ParseLeafParts(flags.leaf_parts);
    if (!parts.ok()) return parts.status().WithContext("--leaf-parts");
    setup.leaf_parts = *parts;
  }
  return setup;
}

/// Whether a seed caught it, or it has nothing to do here.
bool ProveOne(Case one, const Flags& flags, const SetupPlan& common) {
  const bool parted = common.leaf_parts.high != 0;
  if (common.without.HasAnyOf(one.needs)) {
    fmt::print("{:<30} is of an option that is off\n", one.name);
    return true;
  }
  if (parted && one.leaves == Leaves::kNotParted) {
    fmt::print("{:<30} is not of parted leaves\n", one.name);
    return true;
  }
  const bool large = common.leaf_parts.low >= kLargeLeafParts, without = !common.without.empty();
  if ((large || (parted && without)) && std::ranges::count(kRare, one.mutation) > 0) {
    fmt::print("{:<30} is rare where leaves are large, or parted with an option off\n", one.name);
    return true;
  }
  if (without && !one.file_without.empty()) one.file = one.file_without;
  if (parted && without) one.seeds_max = std::max(one.seeds_max, kPartedWithoutSeeds);
  if (parted) TakeWhatShows(kOfPartedLeaves, &one);
  if (large) TakeWhatShows(kOfLargeLeaves, &one);
  if (!flags.file.empty()) one.file = flags.file;
  if (!flags.faults.empty()) one.faults = flags.faults;
  auto plan = LoadRunFile(flags.folder + "/" + std::string(one.file) + ".toml");
  FARLEAF_CHECK(plan.ok(), plan.status());
  plan->setup.without = common.without;
  if (parted) {
    plan->setup.layout = LayoutChoice::kFixed8;
    plan->setup.leaf_parts = common.leaf_parts;
  }
  return Prove(one, *plan, flags.seeds_max > 0 ? flags.seeds_max : one.seeds_max);
}

int Main(int argc, char** argv) {
  CLI::App app("Proves that the checkers of simulated runs find deliberate faults.");
  Flags flags;
  app.add_option("folder", flags.folder, "of the run files")->required();
  app.add_option("--only", flags.only, "one mutation");
  app.add_option("--file", flags.file, "with --only: another file, by its name");
  app.add_option("--faults", flags.faults, "with --only: other faults");
  app.add_option("--without", flags.without,
                 "options of the tree that are off: " + test::AllowedOptions());
  app.add_option("--leaf-parts", flags.leaf_parts,
                 "A..B: all trees are of fixed8, with parted leaves, of so many parts");
  app.add_flag("--long-tests", flags.long_tests,
               "only where FARLEAF_TEST_SCALE is long; else exit code 77, and nothing is done");
  app.add_option("--seeds", flags.seeds_max, "at most, instead of each mutation's own number");
  CLI11_PARSE(app, argc, argv);
  if (flags.long_tests && test::ScaleOfTests() != test::Scale::kLong) return kSkipped;
  spdlog::set_level(spdlog::level::off);
  const auto common = CommonSetup(flags);
  if (!common.ok()) {
    fmt::print(stderr, "mutations: {}\n", common.status().message());
    return 2;
  }
  fmt::print("{:<30} {:<14} {:<14} {:>6}    {:<6} {:<32}\n", "mutation", "file", "faults", "seeds",
             "", "caught by");
  bool all_caught = true, any = false;
  for (const Case& one : kCases) {
    if (!flags.only.empty() && one.name != flags.only) continue;
    any = true;
    all_caught &= ProveOne(one, flags, *common);
  }
  if (!any) fmt::print(stderr, "mutations: there is none named '{}'\n", flags.only);
  return all_caught && any ? 0 : 1;
}

}  // namespace
}  // namespace simulation
}  // namespace farleaf

int main(int argc, char** argv) { return farleaf::simulation::Main(argc, argv); }
