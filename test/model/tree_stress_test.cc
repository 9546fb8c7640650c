// The tree under concurrent change of its structure: several compute servers (a Pool and a tree
// object each), small pages, few keys, so that nodes split and merge and roots grow and shrink all
// the time; then every page of the pool is accounted for.
//
// Interleaving tests run everything on one thread under a seed (test/support/interleaving_fabric.h):
// a failure prints the seed, and the run repeats exactly. Threaded tests run on real threads, on the
// local fabric as it is and with delays.
//
// FARLEAF_STRESS_SEED=n runs with that (first) seed, FARLEAF_STRESS_SEEDS=n interleaving tests with so
// many seeds from there, FARLEAF_STRESS_MS=n threaded ones for so long.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "dsm/delay/delay_fabric.h"
#include "index/blink/check.h"
#include "test/support/interleaved_members.h"
#include "test/support/shared_fabric.h"
#include "test/support/single_writer_model.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr size_t kCounters = 6;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// A few keys among the others that everyone increments.
std::string CounterKey(const Geometry& geometry, size_t counter) {
  if (geometry.layout == Layout::kFixed8) return Fixed((counter * 9 + 1) << 40 | 1);
  return "1000" + std::string(20, 'p') + std::to_string(100 + counter) + "#";
}

/// What all clients of one tree share.
struct Shared {
  Shared(const Geometry& g, size_t keys) : geometry(g), model(g, keys) {}
  Geometry geometry;
  SingleWriterModel model;
  std::atomic<uint64_t> increments{0};
  std::atomic<uint64_t> operations{0};
  std::atomic<bool> failed{false};
  bool pages_given_up = false;
  uint64_t stop_ns = UINT64_MAX;
  std::mutex mutex;  // guards failure
  std::string failure;

  void Fail(const std::string& what) {
    std::lock_guard lock(mutex);
    if (!failed.exchange(true)) failure = what;
  }
};

struct Client {
  Shared* shared;
  BlinkTree* tree;
  dsm::Worker* worker;
  size_t number, clients;
  uint64_t seed;
  uint64_t operations;
  uint64_t deadline_ns = 0;  ///< not 0: operations have deadlines around it
  bool may_fail = false;     ///< operations may fail, without having happened

  bool MayFailWith(const Status& status) const {
    return may_fail && status.code() != StatusCode::kUnknown;
  }
};

Task<void> WriteOne(Client* client, OpContext* op, size_t key, bool insert) {
  Shared& shared = *client->shared;
  const std::string name = shared.model.Key(key);
  const bool was_present = shared.model.IsPresent(key);
  const uint64_t write = shared.model.BeginWrite(key, insert);
  bool answer = false;
  Status status;
  if (insert) {
    const std::string value = shared.model.Value(write);
    auto is_new = co_await client->tree->Put(*op, name, value);
    status = is_new.status();
    if (is_new.ok()) answer = !*is_new;
  } else {
    auto existed = co_await client->tree->Delete(*op, name);
    status = existed.status();
    if (existed.ok()) answer = *existed;
  }
  if (status.ok() || !client->MayFailWith(status)) {
    shared.model.EndWrite(key);
  } else {
    shared.model.CancelWrite(key);
    co_return;
  }
  if (!status.ok()) {
    shared.Fail("write of key " + std::to_string(key) + ": " + status.ToString());
  } else if (answer != was_present) {
    shared.Fail("write " + std::to_string(write) + " of key " + std::to_string(key) + " found it " +
                (answer ? "present" : "absent"));
  }
}

Task<void> ReadOne(Client* client, OpContext* op, size_t key) {
  Shared& shared = *client->shared;
  const std::string name = shared.model.Key(key);
  const auto begun = shared.model.BeginRead(key);
  std::string value;
  auto found = co_await client->tree->Get(*op, name, &value);
  if (!found.ok() && client->MayFailWith(found.status())) co_return;
  if (!found.ok()) {
    shared.Fail("get of key " + std::to_string(key) + ": " + found.status().ToString());
    co_return;
  }
  const auto seen = *found ? std::optional<std::string_view>(value) : std::nullopt;
  const std::string wrong = shared.model.EndRead(key, begun, seen);
  if (!wrong.empty()) shared.Fail(wrong);
}

Task<void> ScanSome(Client* client, OpContext* op, size_t low, size_t high, bool forward) {
  Shared& shared = *client->shared;
  const std::string start = shared.model.Key(low), end = shared.model.Key(high);
  std::vector<SingleWriterModel::Seen> begun;
  for (size_t key = low; key < high; ++key) begun.push_back(shared.model.BeginRead(key));
  ScanRange range;
  range.start = start;
  range.end = end;
  range.direction = forward ? ScanDirection::kForward : ScanDirection::kReverse;
  std::vector<KeyValue> rows;
  Status status = co_await client->tree->Scan(*op, range, &rows);
  if (!status.ok() && client->MayFailWith(status)) co_return;
  if (!status.ok()) {
    shared.Fail("scan: " + status.ToString());
    co_return;
  }
  const std::string wrong = shared.model.EndScan(low, high, begun, rows, range.direction);
  if (!wrong.empty()) shared.Fail(wrong);
}

ModifyAction Increment(std::optional<std::string_view> current, std::string* replacement) {
  const uint64_t count = current ? LoadBig64(current->data()) : 0;
  *replacement = Fixed(count + 1);
  return ModifyAction::kWrite;
}

Task<void> IncrementOne(Client* client, OpContext* op, size_t counter) {
  const std::string key = CounterKey(client->shared->geometry, counter);
  const ModifyFunction increment = Increment;
  auto result = co_await client->tree->ReadModifyWrite(*op, key, increment);
  if (!result.ok() && client->MayFailWith(result.status())) co_return;
  if (!result.ok()) client->shared->Fail("increment: " + result.status().ToString());
  client->shared->increments.fetch_add(1);
}

/// Writes its own keys, and reads everyone's. The share of inserts swings between nearly all and
/// nearly none, so that the tree grows and empties again and again.
Task<void> RunClient(Client client) {
  Shared& shared = *client.shared;
  Random random(client.seed);
  dsm::FabricCounts counts;
  OpContext op{*client.worker, counts};
  const size_t keys = shared.model.keys(), own = keys / client.clients;
  for (uint64_t i = 0; i < client.operations && !shared.failed.load(); ++i) {
    if (shared.stop_ns != UINT64_MAX && client.worker->clock().NowNs() >= shared.stop_ns) break;
    const uint64_t phase = shared.operations.fetch_add(1) / (keys * 6) % 2;
    const uint64_t dice = random.Below(100);
    if (client.deadline_ns > 0) {
      op.deadline_ns = client.worker->clock().NowNs() + 1 + random.Below(2 * client.deadline_ns);
    }
    if (dice < 60 && own > 0) {
      const size_t key = random.Below(own) * client.clients + client.number;
      co_await WriteOne(&client, &op, key, random.Below(100) < (phase == 0 ? 85 : 12));
    } else if (dice < 85) {
      co_await ReadOne(&client, &op, random.Below(keys));
    } else if (dice < 90) {
      const size_t low = random.Below(keys - 1);
      const size_t high = low + 1 + random.Below(keys - low - 1);
      co_await ScanSome(&client, &op, low, high, random.OneIn(2));
    } else {
      co_await IncrementOne(&client, &op, random.Below(kCounters));
    }
  }
}

/// Everything in the tree is what the model says, and every page of the pool is accounted for.
Task<void> VerifyAll(Shared* shared, BlinkTree* tree, dsm::Worker* worker, dsm::Pool* pool) {
  dsm::FabricCounts counts;
  OpContext op{*worker, counts};
  Client client{shared, tree, worker, 0, 1, 0, 0};
  for (size_t key = 0; key < shared->model.keys(); ++key) co_await ReadOne(&client, &op, key);
  const bool directions[] = {true, false};
  for (bool forward : directions) {
    co_await ScanSome(&client, &op, 0, shared->model.keys() - 1, forward);
  }
  uint64_t sum = 0;
  for (size_t counter = 0; counter < kCounters; ++counter) {
    const std::string key = CounterKey(shared->geometry, counter);
    std::string value;
    auto found = co_await tree->Get(op, key, &value);
    if (!found.ok()) shared->Fail(found.status().ToString());
    if (found.ok() && *found) sum += LoadBig64(value.data());
  }
  if (sum != shared->increments.load()) {
    shared->Fail("counters add up to " + std::to_string(sum) + " after " +
                 std::to_string(shared->increments.load()) + " increments");
  }
  auto report = co_await CheckPool(op, *pool, {});
  if (!report.ok()) {
    shared->Fail(report.status().ToString());
    co_return;
  }
  for (const Finding& finding : report->findings.described()) {
    // A page whose first WRITE failed is given up, for its state is unknown.
    if (shared->pages_given_up && finding.kind != FindingKind::kSeparator &&
        finding.kind != FindingKind::kChain) {
      continue;
    }
    shared->Fail(std::string(FindingKindName(finding.kind)) + " " + finding.text);
  }
}

Task<int> RunVerifyAll(Shared* shared, Member* member) {
  co_await VerifyAll(shared, member->tree.get(), member->workers[0].get(), member->pool.get());
  co_return 0;
}

/// Counters are 8 bytes, also among byte strings.
Geometry SmallBytes() { return {Layout::kBytes, 512, 100, 40}; }

struct Workload {
  const char* name;
  Geometry geometry;
  size_t keys;
  uint64_t operations;  ///< of a client
  CacheMode cache = CacheMode::kSearchLayer;
  double merge_below = 0.45, merge_up_to = 0.9;
  uint64_t deadline_ns = 0;     ///< not 0: operations have deadlines around it
  bool new_pages_fail = false;  ///< WRITEs of new pages fail now and then
  std::vector<uint64_t> once_failed = {};
};
void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

/// A new page is the only thing that is written whole, lock word included; alone if its left sibling
/// is on another server.
dsm::BatchFault FailNewPages(const Workload& workload, uint64_t seed) {
  auto random = std::make_shared<Random>(seed + 1'000'000);
  const uint32_t page_bytes = workload.geometry.page_bytes;
  return [random, page_bytes](const dsm::Batch& batch) {
    const auto verbs = batch.verbs();
    const bool new_page =
        verbs[0].kind == dsm::VerbKind::kWrite && verbs[0].length == page_bytes &&
        (verbs.size() == 1 || (verbs.size() == 2 && verbs[1].length == 8));  // a change counter
    return new_page && !random->OneIn(4) ? static_cast<int>(random->Below(2)) : -1;
  };
}

class InterleavingTest : public testing::TestWithParam<Workload> {};

std::string RunInterleaving(const Workload& workload, uint64_t seed) {
  InterleavedMembers run(
      {.seed = seed,
       .geometry = workload.geometry,
       .tree = {.cache = workload.cache,
                .hop_threshold = 3,
                .merge_below = workload.merge_below,
                .merge_up_to = workload.merge_up_to},
       .fail = workload.new_pages_fail ? FailNewPages(workload, seed) : nullptr});
  Shared shared(workload.geometry, workload.keys);
  shared.pages_given_up = workload.new_pages_fail;
  constexpr size_t kCoroutines = 3;
  const size_t clients = run.members().size() * 2 * kCoroutines;
  size_t number = 0;
  for (Member& member : run.members()) {
    for (auto& worker : member.workers) {
      for (size_t i = 0; i < kCoroutines; ++i, ++number) {
        worker->Spawn(RunClient({&shared, member.tree.get(), worker.get(), number, clients,
                                 run.random().Next(), workload.operations, workload.deadline_ns,
                                 workload.deadline_ns > 0 || workload.new_pages_fail}));
      }
    }
  }
  run.RunAll();
  if (!shared.failed) {
    run.RunSetup(VerifyAll(&shared, run.setup().tree.get(), run.setup().workers[0].get(),
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
  return shared.failure;
}

TEST_P(InterleavingTest, EveryAnswerIsLinearizableAndEveryPageAccountedFor) {
  const uint64_t first = FromEnvironment("FARLEAF_STRESS_SEED", 1);
  const uint64_t seeds = FromEnvironment("FARLEAF_STRESS_SEEDS", 6);
  std::vector<uint64_t> tried = GetParam().once_failed;
  for (uint64_t seed = first; seed < first + seeds; ++seed) tried.push_back(seed);
  for (const uint64_t seed : tried) {
    const std::string failure = RunInterleaving(GetParam(), seed);
    EXPECT_EQ(failure, "") << "FARLEAF_STRESS_SEED=" << seed;
    if (!failure.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trees, InterleavingTest,
    testing::Values(Workload{"Fixed8FewKeys", Geometry::Fixed8(256), 72, 400},
                    Workload{"Fixed8MoreKeys", Geometry::Fixed8(256), 900, 700},
                    Workload{"Fixed8Uncached", Geometry::Fixed8(256), 144, 300, CacheMode::kNone},
                    Workload{.name = "Fixed8Deadlines",
                             .geometry = Geometry::Fixed8(256),
                             .keys = 360,
                             .operations = 500,
                             .deadline_ns = 40'000},
                    Workload{.name = "Fixed8FailingNewPages",
                             .geometry = Geometry::Fixed8(256),
                             .keys = 720,
                             .operations = 500,
                             .new_pages_fail = true,
                             .once_failed = {996, 5068}},
                    Workload{"BytesFewKeys", SmallBytes(), 72, 400},
                    Workload{"BytesMoreKeys", SmallBytes(), 540, 500}),
    [](const auto& test) { return std::string(test.param.name); });

// Real threads.

struct Threads {
  const char* name;
  Geometry geometry;
  size_t keys;
  uint64_t delay_ns;  ///< 0: verbs complete at once
  CacheMode cache = CacheMode::kSearchLayer;
};
void PrintTo(const Threads& threads, std::ostream* out) { *out << threads.name; }

class ThreadsTest : public testing::TestWithParam<Threads> {};

TEST_P(ThreadsTest, EveryAnswerIsLinearizableAndEveryPageAccountedFor) {
  const uint64_t seed = FromEnvironment("FARLEAF_STRESS_SEED", std::random_device()());
  SCOPED_TRACE(testing::Message() << "FARLEAF_STRESS_SEED=" << seed);
  const uint64_t milliseconds = FromEnvironment("FARLEAF_STRESS_MS", 1'000);
  constexpr size_t kMembers = 3, kThreads = 2, kCoroutines = 4;
  const Threads& param = GetParam();
  MonotonicClock clock;
  auto servers = dsm::LocalFabric::Create({.servers = 2,
                                           .region_bytes = uint64_t{16} << 20,
                                           .chunk_bytes = dsm::kChunkBytesMin,
                                           .hugepages = dsm::Hugepages::kNever});
  ASSERT_TRUE(servers.ok()) << servers.status();
  std::optional<TreeInfo> info;
  std::vector<Member> members(kMembers);
  for (size_t i = 0; i < kMembers; ++i) {
    std::unique_ptr<dsm::Fabric> fabric = std::make_unique<dsm::SharedFabric>(servers->get());
    if (param.delay_ns > 0) {
      const dsm::DelayOptions delay{param.delay_ns / 2, param.delay_ns, seed + i};
      fabric = std::make_unique<dsm::DelayFabric>(std::move(fabric), delay, &clock);
    }
    auto pool = dsm::Pool::Join(std::move(fabric), {.seed = seed + i, .allocator = {.grace_ms = 0}},
                                &clock);
    ASSERT_TRUE(pool.ok()) << pool.status();
    members[i].pool = std::move(*pool);
    for (size_t t = 0; t < kThreads; ++t) {
      members[i].workers.push_back(std::move(*members[i].pool->OpenWorker()));
    }
    if (!info) {
      dsm::FabricCounts counts;
      OpContext op{*members[i].workers[0], counts};
      auto created = op.worker.Run(CreateTree(op, *members[i].pool, "threads", param.geometry));
      ASSERT_TRUE(created.ok()) << created.status();
      info = *created;
    }
    const TreeOptions options{
        .cache = param.cache, .hop_threshold = 3, .merge_below = 0.45, .merge_up_to = 0.9};
    members[i].tree = std::make_unique<BlinkTree>(members[i].pool.get(), *info, options);
  }
  Shared shared(param.geometry, param.keys);
  shared.stop_ns = clock.NowNs() + milliseconds * kNsPerMs;
  // Where nothing suspends, one coroutine would keep the others waiting until it has ended.
  const size_t coroutines = param.delay_ns > 0 ? kCoroutines : 1;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kMembers * kThreads; ++i) {
    threads.emplace_back([&, i] {
      Member& member = members[i / kThreads];
      dsm::Worker* worker = member.workers[i % kThreads].get();
      for (size_t c = 0; c < coroutines; ++c) {
        const size_t number = i * coroutines + c;
        worker->Spawn(
            RunClient({&shared, member.tree.get(), worker, number, kMembers * kThreads * coroutines,
                       seed + 77 * number, UINT64_MAX}));
      }
      worker->RunUntilIdle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!shared.failed) {
    members[0].workers[0]->Run(RunVerifyAll(&shared, &members[0]));
  }
  EXPECT_EQ(shared.failure, "");
  uint64_t splits = 0, merges = 0;
  for (Member& member : members) {
    splits += member.tree->stats().splits;
    merges += member.tree->stats().merges;
  }
  std::printf("%lu operations, %lu splits, %lu merges\n", shared.operations.load(), splits, merges);
  EXPECT_GT(splits, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Trees, ThreadsTest,
    testing::Values(Threads{"Fixed8FewKeys", Geometry::Fixed8(256), 96, 0},
                    Threads{"Fixed8MoreKeys", Geometry::Fixed8(256), 3'000, 0},
                    Threads{"Fixed8Delayed", Geometry::Fixed8(256), 960, 3'000},
                    Threads{"Fixed8Uncached", Geometry::Fixed8(256), 480, 0, CacheMode::kNone},
                    Threads{"BytesFewKeys", SmallBytes(), 96, 0},
                    Threads{"BytesDelayed", SmallBytes(), 720, 3'000}),
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
  InterleavedMembers run({.seed = seed});
  constexpr uint64_t kWindow = 2'000, kStep = 500, kMoves = 40;
  OnAllWorkers(run, PutRange, 0, kWindow);
  Space settled;
  for (uint64_t move = 0; move < kMoves; ++move) {
    OnAllWorkers(run, PutRange, kWindow + move * kStep, kWindow + (move + 1) * kStep);
    OnAllWorkers(run, DeleteRange, move * kStep, (move + 1) * kStep);
    const Space now = SpaceInUse(run);
    if (move == 8) settled = now;
    if (move > 8) {
      ASSERT_LE(now.chunks, settled.chunks) << "after " << move << " moves";
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
