// The tree under concurrent change of its structure: several compute servers (a Pool and a tree
// object each), small pages, few keys, so that nodes split and merge and roots grow and shrink all
// the time; then every page of the pool is accounted for.
//
// Interleaving tests run everything on one thread under a seed (test/support/interleaving_fabric.h):
// a failure prints the seed, and the run repeats exactly. Threaded tests run on real threads, on the
// local fabric as it is and with delays.
//
// FARLEAF_STRESS_SEED=n runs interleaving tests with that first seed, FARLEAF_STRESS_SEEDS=n with so
// many seeds from there.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
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
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
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
                             .new_pages_fail = true},
                    Workload{"BytesFewKeys", SmallBytes(), 72, 400},
                    Workload{"BytesMoreKeys", SmallBytes(), 540, 500}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace farleaf::index
