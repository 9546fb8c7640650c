// The tree under concurrent change of its structure: several compute servers (a Pool and a tree
// object each), small pages, few keys, so that nodes split and merge and roots grow and shrink all
// the time; then every page of the pool is accounted for.
//
// Everything runs on one thread under a seed (test/support/interleaving_fabric.h): a failure prints the
// seed, and the run repeats exactly. On real threads: tree_threads_test.cc.
//
// FARLEAF_STRESS_SEED=n runs with that (first) seed, FARLEAF_STRESS_SEEDS=n interleaving tests with so
// many seeds from there.
#include <gtest/gtest.h>

#include <cstdlib>

#include "index/blink/check.h"
#include "test/model/stress_clients.h"
#include "test/support/interleaved_members.h"
#include "test/support/options_off.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

struct Workload {
  const char* name;
  Geometry geometry;
  size_t keys;
  uint64_t operations;  ///< of a client
  test::OptionSet without = {};
  uint64_t deadline_ns = 0;     ///< not 0: operations have deadlines around it
  bool new_pages_fail = false;  ///< WRITEs of new pages fail now and then
  std::vector<uint64_t> once_failed = {};
};
void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

/// A new page is the only thing that is written whole, lock word included, behind its redo record. It is
/// alone with its change counter if its left sibling is on another server.
bool IsOfNewPage(const dsm::Batch& batch, const Geometry& geometry) {
  const auto verbs = batch.verbs();
  for (const dsm::Verb& verb : verbs) {
    if (verb.kind != dsm::VerbKind::kWrite) return false;
  }
  if (verbs.size() < 2 || verbs.size() > 3) return false;
  const bool counter = verbs.size() < 3 || verbs[2].length == 8;
  return counter &&
         (verbs[1].length == geometry.leaf_bytes || verbs[1].length == geometry.node_bytes);
}

/// Some of its verbs run, and the batch fails. `failed`: how many did.
dsm::BatchFault FailNewPages(const Workload& workload, uint64_t seed, uint64_t* failed) {
  auto random = std::make_shared<Random>(seed + 1'000'000);
  return [random, geometry = workload.geometry, failed](const dsm::Batch& batch) {
    if (!IsOfNewPage(batch, geometry) || random->OneIn(4)) return -1;
    ++*failed;
    return static_cast<int>(random->Below(batch.verbs().size()));
  };
}

class InterleavingTest : public testing::TestWithParam<Workload> {};

struct Outcome {
  std::string failure;
  uint64_t failed_pages = 0;  ///< WRITEs of new pages that failed
};

Outcome RunInterleaving(const Workload& workload, uint64_t seed) {
  Outcome outcome;
  InterleavedMembers run(
      {.seed = seed,
       .geometry = workload.geometry,
       .tree = test::Without(workload.without,
                             {.hop_threshold = 3, .merge_below = 0.45, .merge_up_to = 0.9}),
       .fail = workload.new_pages_fail ? FailNewPages(workload, seed, &outcome.failed_pages)
                                       : nullptr});
  StressRun shared(workload.geometry, workload.keys);
  shared.pages_given_up = workload.new_pages_fail;
  constexpr size_t kCoroutines = 3;
  const size_t clients = run.members().size() * 2 * kCoroutines;
  size_t number = 0;
  for (Member& member : run.members()) {
    for (auto& worker : member.workers) {
      for (size_t i = 0; i < kCoroutines; ++i, ++number) {
        worker->Spawn(
            RunStressClient({&shared, member.tree.get(), worker.get(), number, clients,
                             run.random().Next(), workload.operations, workload.deadline_ns,
                             workload.deadline_ns > 0 || workload.new_pages_fail}));
      }
    }
  }
  run.RunAll();
  if (!shared.failed) {
    run.RunSetup(VerifyStressRun(&shared, run.setup().tree.get(), run.setup().workers[0].get(),
                                 run.setup().pool.get()));
  }
  if (std::getenv("FARLEAF_STRESS_STATS")) {
    for (Member& member : run.members()) {
      const TreeStats& s = member.tree->stats();
      std::printf(
          "splits %lu merges %lu grown %lu shrunk %lu hops %lu torn %lu conflicts %lu "
          "handovers %lu completed %lu deferred %lu given up %lu refreshes %lu\n",
          s.splits.load(), s.merges.load(), s.roots_grown.load(), s.roots_shrunk.load(),
          s.hops.load(), s.torn_reads.load(), s.lock_conflicts.load(), s.handovers.load(),
          s.separators_completed.load(), s.separators_deferred.load(), s.merges_given_up.load(),
          s.cache_refreshes.load());
    }
  }
  outcome.failure = shared.failure;
  return outcome;
}

TEST_P(InterleavingTest, EveryAnswerIsLinearizableAndEveryPageAccountedFor) {
  const uint64_t first = FromEnvironment("FARLEAF_STRESS_SEED", 1);
  const uint64_t seeds =
      FromEnvironment("FARLEAF_STRESS_SEEDS", test::Amount{.small = 2, .usual = 6});
  std::vector<uint64_t> tried = GetParam().once_failed;
  for (uint64_t seed = first; seed < first + seeds; ++seed) tried.push_back(seed);
  uint64_t failed_pages = 0;
  for (const uint64_t seed : tried) {
    const Outcome outcome = RunInterleaving(GetParam(), seed);
    EXPECT_EQ(outcome.failure, "") << "FARLEAF_STRESS_SEED=" << seed;
    if (!outcome.failure.empty()) break;
    failed_pages += outcome.failed_pages;
  }
  EXPECT_EQ(failed_pages > 0, GetParam().new_pages_fail);
}

std::vector<Workload> AllWorkloads() {
  using test::OptionSet, test::TreeOption;
  const Geometry fixed8 = Geometry::Fixed8(256), parted = Geometry::Parted(4, 256);
  return {
      {"Fixed8FewKeys", fixed8, 72, 400},
      {"Fixed8LargeLeaves", Geometry::Fixed8(512, 256), 900, 700},
      {"Fixed8SmallLeaves", Geometry::Fixed8(256, 512), 900, 700},
      {.name = "Fixed8FailingNewPages",
       .geometry = fixed8,
       .keys = 720,
       .operations = 500,
       .new_pages_fail = true,
       .once_failed = {996, 5068}},
      {"PartedFewKeys", parted, 72, 400},
      {"PartedMoreKeys", parted, 900, 700},
      {"PartedLargeLeaves", Geometry::Parted(12, 256), 900, 700},
      {"PartedOfDefaultSize", Geometry::Parted(kLeafPartsDefault, 256), 1'800, 900},
      {"PartedUncached", parted, 144, 300, {TreeOption::kCache}},
      {.name = "PartedDeadlines",
       .geometry = parted,
       .keys = 360,
       .operations = 500,
       .deadline_ns = 40'000},
      {.name = "PartedFailingNewPages",
       .geometry = parted,
       .keys = 720,
       .operations = 500,
       .new_pages_fail = true},
      {"PartedWithoutShortcuts", parted, 360, 500, OptionSet::Shortcuts()},
      {"PartedAllOff", parted, 144, 300, OptionSet::All()},
      {"BytesFewKeys", StressBytes(), 72, 400},
      {"BytesMoreKeys", StressBytes(), 540, 500},
      {"BytesWithoutShortcuts", StressBytes(), 180, 400, OptionSet::Shortcuts()},
      {"BytesAllOff", StressBytes(), 72, 300, OptionSet::All()},
  };
}

INSTANTIATE_TEST_SUITE_P(Trees, InterleavingTest, testing::ValuesIn(AllWorkloads()),
                         [](const auto& test) { return std::string(test.param.name); });

// Space: what is deleted is used again, whoever deleted it, in whatever order.

/// Pages in use by the tree and chunks taken by anyone.
struct Space {
  uint64_t pages = 0;
  uint64_t chunks = 0;
};

Space SpaceInUse(InterleavedMembers& run) {
  dsm::FabricCounts counts;
  OpContext op{*run.setup().workers[0], counts};
  auto report = run.RunSetup(CheckPool(op, *run.setup().pool, {}));
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok()) return {};
  for (const Finding& finding : report->findings.described()) ADD_FAILURE() << finding.text;
  Space space;
  for (const LevelReport& level : report->trees.at(0).levels) space.pages += level.nodes;
  space.chunks = report->chunk_bytes_taken() / dsm::kChunkBytesMin;
  return space;
}

Task<void> PutRange(BlinkTree* tree, dsm::Worker* worker, uint64_t first, uint64_t last,
                    uint64_t step, Status* failure) {
  dsm::FabricCounts counts;
  OpContext op{*worker, counts};
  for (uint64_t key = first; key < last; key += step) {
    auto put = co_await tree->Put(op, Fixed(key), Fixed(key));
    if (!put.ok()) *failure = put.status();
  }
}

Task<void> DeleteRange(BlinkTree* tree, dsm::Worker* worker, uint64_t first, uint64_t last,
                       uint64_t step, Status* failure) {
  dsm::FabricCounts counts;
  OpContext op{*worker, counts};
  for (uint64_t key = first; key < last; key += step) {
    auto erased = co_await tree->Delete(op, Fixed(key));
    if (!erased.ok()) *failure = erased.status();
    if (erased.ok() && !*erased) *failure = Status::NotFound("key " + std::to_string(key));
  }
}

/// Every worker of every member takes its share of [first, last).
template <typename Function>
void OnAllWorkers(InterleavedMembers& run, Function function, uint64_t first, uint64_t last) {
  Status failure;
  uint64_t shares = 0, share = 0;
  for (Member& member : run.members()) shares += member.workers.size();
  for (Member& member : run.members()) {
    for (auto& worker : member.workers) {
      worker->Spawn(
          function(member.tree.get(), worker.get(), first + share++, last, shares, &failure));
    }
  }
  run.RunAll();
  EXPECT_TRUE(failure.ok()) << failure;
}

TEST(TreeSpaceTest, AWindowOfKeysThatMovesUsesABoundedPool) {
  const uint64_t seed = FromEnvironment("FARLEAF_STRESS_SEED", 1);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  InterleavedMembers run({.seed = seed, .local_free_pages_max = 512});
  constexpr uint64_t kWindow = 2'000, kStep = 500, kMoves = 40;
  OnAllWorkers(run, PutRange, 0, kWindow);
  Space settled;
  for (uint64_t move = 0; move < kMoves; ++move) {
    OnAllWorkers(run, PutRange, kWindow + move * kStep, kWindow + (move + 1) * kStep);
    OnAllWorkers(run, DeleteRange, move * kStep, (move + 1) * kStep);
    const Space now = SpaceInUse(run);
    if (move == 8) settled = now;
    if (move > 8) {
      // Each member may begin another chunk when more pages are in use for a while.
      ASSERT_LE(now.chunks, settled.chunks + run.members().size()) << "after " << move << " moves";
      ASSERT_LE(now.pages, settled.pages * 3 / 2) << "after " << move << " moves";
    }
  }
}

TEST(TreeSpaceTest, ATreeThatIsEmptiedAndFilledAgainUsesNoMoreThanBefore) {
  const uint64_t seed = FromEnvironment("FARLEAF_STRESS_SEED", 1);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  InterleavedMembers run({.seed = seed, .local_free_pages_max = 16});
  constexpr uint64_t kKeys = 3'000;
  Space full;
  for (int round = 0; round < 12; ++round) {
    OnAllWorkers(run, PutRange, 0, kKeys);
    const Space now = SpaceInUse(run);
    if (round == 2) full = now;
    if (std::getenv("FARLEAF_STRESS_STATS")) {
      std::printf("round %d: %lu pages, %lu chunks\n", round, now.pages, now.chunks);
    }
    if (round > 2) {
      ASSERT_LE(now.chunks, full.chunks) << "in round " << round;
    }
    OnAllWorkers(run, DeleteRange, 0, kKeys);
    ASSERT_LE(SpaceInUse(run).pages, now.pages / 4) << "in round " << round;
  }
}

}  // namespace
}  // namespace farleaf::index
