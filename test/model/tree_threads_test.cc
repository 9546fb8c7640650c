// The tree under concurrent change of its structure, on real threads: several compute servers with
// connections of their own, small pages, few keys; then every page of the pool is accounted for. On
// local memory as it is and with delays, and on every fabric between processes.
//
// FARLEAF_STRESS_SEED=n runs with that seed, FARLEAF_STRESS_MS=n for so long.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "dsm/delay/delay_fabric.h"
#include "index/blink/catalog.h"
#include "test/model/stress_clients.h"
#include "test/support/fabric_under_test.h"
#include "test/support/options_off.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr size_t kMembers = 3, kThreads = 2;

/// With merges as frequent as can be.
TreeOptions Stressed(test::OptionSet without = {}) {
  return test::Without(without, {.hop_threshold = 3, .merge_below = 0.45, .merge_up_to = 0.9});
}

struct Threads {
  std::string name;
  Geometry geometry;
  size_t keys;
  uint64_t delay_ns = 0;  ///< added to every batch
  TreeOptions tree = Stressed();
  dsm::FabricKind fabric = dsm::FabricKind::kLocal;

  /// Where no verb suspends, one coroutine would keep the others waiting until it has ended.
  size_t coroutines() const {
    const bool at_once = fabric == dsm::FabricKind::kLocal || fabric == dsm::FabricKind::kShm;
    return at_once && delay_ns == 0 ? 1 : 4;
  }
};
void PrintTo(const Threads& threads, std::ostream* out) { *out << threads.name; }

std::vector<Threads> AllThreads() {
  using test::OptionSet, test::TreeOption;
  const Geometry parted = Geometry::Parted(4, 256);
  TreeOptions small_cache = Stressed();
  small_cache.cache_bytes = 20'000;
  const TreeOptions without_shortcuts = Stressed(OptionSet::Shortcuts());
  std::vector<Threads> all{{"Fixed8FewKeys", Geometry::Fixed8(256), 96},
                           {"Fixed8Delayed", Geometry::Fixed8(256), 960, 3'000},
                           {"PartedFewKeys", parted, 96},
                           {"PartedMoreKeys", parted, 3'000},
                           {"PartedOfDefaultSize", Geometry::Parted(kLeafPartsDefault, 256), 3'000},
                           {"PartedDelayed", parted, 960, 3'000},
                           {"PartedUncached", parted, 480, 0, Stressed({TreeOption::kCache})},
                           {"PartedSmallCache", parted, 3'000, 0, small_cache},
                           {"PartedWithoutShortcuts", parted, 480, 3'000, without_shortcuts},
                           {"PartedAllOff", parted, 480, 3'000, Stressed(OptionSet::All())},
                           {"BytesFewKeys", StressBytes(), 96},
                           {"BytesDelayed", StressBytes(), 720, 3'000},
                           {"BytesWithoutShortcuts", StressBytes(), 96, 0, without_shortcuts},
                           {"BytesAllOff", StressBytes(), 96, 0, Stressed(OptionSet::All())}};
  for (const dsm::FabricKind fabric : dsm::ProcessFabrics()) {
    const std::string name = dsm::FabricKindName(fabric);
    all.push_back({.name = "Parted_" + name, .geometry = parted, .keys = 480, .fabric = fabric});
    all.push_back(
        {.name = "Bytes_" + name, .geometry = StressBytes(), .keys = 96, .fabric = fabric});
  }
  return all;
}

class ThreadsTest : public testing::TestWithParam<Threads> {
 protected:
  struct Member {
    std::unique_ptr<dsm::Pool> pool;
    std::unique_ptr<BlinkTree> tree;
    std::vector<std::unique_ptr<dsm::Worker>> workers;
  };

  void Join(uint64_t seed) {
    const Threads& param = GetParam();
    std::unique_ptr<dsm::Fabric> fabric = servers.Connect();
    if (param.delay_ns > 0) {
      const dsm::DelayOptions delay{param.delay_ns / 2, param.delay_ns, seed};
      fabric = std::make_unique<dsm::DelayFabric>(std::move(fabric), delay, &servers.clock());
    }
    auto pool = dsm::Pool::Join(std::move(fabric), {.seed = seed, .allocator = {.grace_ms = 0}},
                                &servers.clock());
    ASSERT_TRUE(pool.ok()) << pool.status();
    Member& member = members.emplace_back();
    member.pool = std::move(*pool);
    for (size_t t = 0; t < kThreads; ++t) {
      auto worker = member.pool->OpenWorker();
      ASSERT_TRUE(worker.ok()) << worker.status();
      member.workers.push_back(std::move(*worker));
    }
    dsm::FabricCounts counts;
    OpContext op{*member.workers[0], counts};
    auto info =
        op.worker.Run(members.size() == 1 ? CreateTree(op, *member.pool, "threads", param.geometry)
                                          : OpenTree(op, *member.pool, "threads"));
    ASSERT_TRUE(info.ok()) << info.status();
    member.tree = std::make_unique<BlinkTree>(member.pool.get(), *info, param.tree);
  }

  dsm::FabricUnderTest servers{
      GetParam().fabric,
      {.servers = 2, .region_bytes = uint64_t{16} << 20, .chunk_bytes = dsm::kChunkBytesMin}};
  std::vector<Member> members;
};

/// Gets that are called on a worker ahead of Run look at cached nodes as all others do, beside one that changes them.
TEST(GetAheadOfRunTest, CachedNodesStayWhileTheyAreLookedAt) {
  for (const Geometry& geometry : {Geometry::Parted(4, 256), StressBytes()}) {
    LocalTree tree({.geometry = geometry});
    const std::string value(geometry.layout == Layout::kBytes ? 100 : 8, 'v');
    ASSERT_TRUE(tree.Put(Fixed(0), value));
    std::atomic<bool> ends{false};
    std::thread reader([&] {
      const std::unique_ptr<dsm::Worker> worker = tree.NewWorker();
      dsm::FabricCounts counts;
      std::string found;
      for (uint64_t number = 0; !ends; ++number) {
        OpContext op{*worker, counts};
        auto got = worker->Run(tree.tree().Get(op, Fixed(Mix64(number % 20'000)), &found));
        EXPECT_TRUE(got.ok()) << got.status();
      }
    });
    for (uint64_t number = 0; number < 20'000; ++number) tree.Put(Fixed(Mix64(number)), value);
    ends = true;
    reader.join();
  }
}

TEST_P(ThreadsTest, EveryAnswerIsLinearizableAndEveryPageAccountedFor) {
  const uint64_t seed = FromEnvironment("FARLEAF_STRESS_SEED", std::random_device()());
  SCOPED_TRACE(testing::Message() << "FARLEAF_STRESS_SEED=" << seed);
  for (size_t i = 0; i < kMembers; ++i) ASSERT_NO_FATAL_FAILURE(Join(seed + i));
  StressRun run(GetParam().geometry, GetParam().keys);
  run.stop_ns = servers.clock().NowNs() + FromEnvironment("FARLEAF_STRESS_MS", 1'000) * kNsPerMs;
  run.operations_min = 6'000;  // on the slowest machine too: the tree grows and shrinks
  const size_t coroutines = GetParam().coroutines();
  const size_t clients = kMembers * kThreads * coroutines;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kMembers * kThreads; ++i) {
    threads.emplace_back([&, i] {
      Member& member = members[i / kThreads];
      dsm::Worker* worker = member.workers[i % kThreads].get();
      for (size_t c = 0; c < coroutines; ++c) {
        const size_t number = i * coroutines + c;
        worker->Spawn(RunStressClient(
            {&run, member.tree.get(), worker, number, clients, seed + 77 * number, UINT64_MAX}));
      }
      worker->RunUntilIdle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!run.failed) {
    Member& member = members[0];
    dsm::Worker* worker = member.workers[0].get();
    worker->Spawn(VerifyStressRun(&run, member.tree.get(), worker, member.pool.get()));
    worker->RunUntilIdle();
  }
  EXPECT_EQ(run.failure, "");
  uint64_t splits = 0, merges = 0;
  for (Member& member : members) {
    splits += member.tree->stats().splits;
    merges += member.tree->stats().merges;
  }
  std::printf("%lu operations, %lu splits, %lu merges\n", run.operations.load(), splits, merges);
  EXPECT_GT(splits, 0u);
}

INSTANTIATE_TEST_SUITE_P(Trees, ThreadsTest, testing::ValuesIn(AllThreads()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace farleaf::index
