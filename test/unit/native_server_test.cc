#include "server/frontend/native_server.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/await.h"
#include "test/support/lsm_trees.h"
#include "test/support/native_under_test.h"
#include "test/support/pool_hosts.h"
#include "test/support/test_scale.h"

namespace farleaf::server {
namespace {

using client::CallOptions;
using client::ConditionOutcome;
using client::Fixed8Key;
using client::Rows;
using client::ScanRange;
using client::Value;
using client::Values;
using test::KeyOf;
using test::kPatienceMs;

/// What each server tells, or does, of itself.
using NativeServerTest = test::TwoRuledOnOnePool;

enum class TestedEngine : uint8_t { kMap, kLsm, kPool };

/// What holds whatever keeps the trees. A pool's other compute server makes trees and tells their content.
struct NativeEngineTest : test::NativeUnderTest, ::testing::WithParamInterface<TestedEngine> {
  std::unique_ptr<test::MapTreeHost> maps;
  std::unique_ptr<test::LsmTrees> lsm;
  std::unique_ptr<test::PoolHosts> pool;

  void SetUp() override {
    NativeUnderTest::SetUp();
    if (GetParam() == TestedEngine::kMap) maps = std::make_unique<test::MapTreeHost>(&clock);
    if (GetParam() == TestedEngine::kLsm) lsm = std::make_unique<test::LsmTrees>();
    if (GetParam() == TestedEngine::kPool) pool = std::make_unique<test::PoolHosts>(2);
  }
  size_t servers() const override { return pool ? 2 : 1; }
  TreeHost& served(size_t i) override {
    if (pool) return pool->host(i % 2);
    return lsm ? lsm->host() : static_cast<TreeHost&>(*maps);
  }
};
INSTANTIATE_TEST_SUITE_P(Each, NativeEngineTest,
                         ::testing::Values(TestedEngine::kMap, TestedEngine::kLsm,
                                           TestedEngine::kPool),
                         [](const auto& engine) {
                           return engine.param == TestedEngine::kMap   ? "Map"
                                  : engine.param == TestedEngine::kLsm ? "Lsm"
                                                                       : "TwoOnOnePool";
                         });

struct NativeQuiescenceTest : NativeEngineTest {};
INSTANTIATE_TEST_SUITE_P(Lsm, NativeQuiescenceTest, ::testing::Values(TestedEngine::kLsm));

// Else what writes replace in memory would stay there for as long as somebody reads without a pause.
TEST_P(NativeQuiescenceTest, AThreadThatNeverSleepsAndNeedsNoCoroutinesHoldsNothingUp) {
  options.ring_poll_us = 1'000'000;
  StartServer();
  Add("t");
  auto session = ConnectSession(ring_url());
  auto tree = *session->OpenTree("t");
  const auto get = [&] {
    bool done = false;
    tree.GetAsync("absent", [&](Result<Value> value) { done = value.ok(); });
    while (!done) session->Poll(0);
  };
  get();
  std::atomic<bool> freed = false;  // by whichever thread retires next: the store's own, too
  lsm->store().epochs().Retire([&freed] { freed = true; });
  const uint64_t end_ns = clock.NowNs() + 20 * kNsPerSecond;
  while (!freed && clock.NowNs() < end_ns) {
    get();
    lsm->store().epochs().Retire([] {});
  }
  EXPECT_TRUE(freed);
}

TEST_P(NativeEngineTest, EveryOperationOverTcpUnixSocketsAndRings) {
  StartServer();
  for (const std::string& url : all_urls()) {
    auto client = Connect(url);
    auto created = client->CreateTree({.name = "tree of " + url});
    ASSERT_TRUE(created.ok()) << created.status();
    auto tree = *client->OpenTree("tree of " + url);
    EXPECT_EQ(tree.info(), created->info());
    auto others_client = Connect(tcp_url(url == unix_url(1) ? 0 : 1));
    auto there = *others_client->OpenTree("tree of " + url);
    EXPECT_TRUE(*tree.Insert("a", "1"));
    EXPECT_FALSE(*there.Insert("a", "2"));
    EXPECT_TRUE(*tree.Put("b", "2"));
    EXPECT_FALSE(*there.Put("b", "3"));
    EXPECT_FALSE(*tree.Update("c", "4"));
    EXPECT_TRUE(*tree.Update("a", "5"));
    EXPECT_EQ(**tree.Get("a"), "5");
    EXPECT_EQ(*tree.Get("c"), std::nullopt);
    EXPECT_EQ(*tree.CompareAndSet("a", "1", "6"),
              (client::CompareAndSetResult{ConditionOutcome::kDifferent, "5"}));
    EXPECT_EQ(*there.CompareAndSet("a", "5", "6"), ConditionOutcome::kDone);
    EXPECT_EQ(*tree.CompareAndSet("c", "5", "6"), ConditionOutcome::kAbsent);
    EXPECT_EQ(*tree.DeleteIf("a", "5"), ConditionOutcome::kDifferent);
    const std::vector<std::string> keys = {"b", "z", "a"};
    EXPECT_EQ(*there.MultiGet(keys), (client::Values{"3", std::nullopt, "6"}));
    EXPECT_EQ(*tree.Scan({}), (Rows{{"a", "6"}, {"b", "3"}}));
    EXPECT_EQ(*there.DeleteIf("a", "6"), ConditionOutcome::kDone);
    EXPECT_EQ(*tree.DeleteIf("a", "6"), ConditionOutcome::kAbsent);
    EXPECT_TRUE(*there.Delete("b"));
    EXPECT_FALSE(*tree.Delete("b"));
    EXPECT_EQ(*tree.Add("counter", 5, -7), -2);
    EXPECT_EQ(*there.Add("counter", 5, -7), 3);
    EXPECT_EQ(**tree.Get("counter"), client::CounterValue(3));
    EXPECT_TRUE(client->Ping().ok());
  }
  EXPECT_EQ(Connect(unix_url())->ListTrees()->size(), 3u);
}

TEST_P(NativeEngineTest, ErrorsNameTheServerAndTheThing) {
  StartServer();
  Add("numbers", protocol::TreeLayout::kFixed8);
  auto client = Connect(tcp_url());
  EXPECT_EQ(client->OpenTree("none").status().ToString(),
            "not found: " + tcp_url() +
                (pool ? ": there is no tree 'none' in this pool; there are: numbers"
                      : ": tree \"none\" does not exist"));
  EXPECT_EQ(client->CreateTree({.name = "numbers"}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(client->OpenTree("").status().code(), StatusCode::kInvalidArgument);
  auto numbers = *client->OpenTree("numbers");
  EXPECT_EQ(numbers.Put("short", "v").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(numbers.Put(Fixed8Key(3), Fixed8Key(4)).ok());
  EXPECT_EQ(numbers.Put(std::string(70'000, 'k'), "v").status().ToString(),
            "invalid argument: a key of 70000 bytes; at most 65536 can be sent");
}

TEST_P(NativeEngineTest, AWriteMayAskForMoreDurabilityWhereThereIsADisk) {
  StartServer();
  Add("words", protocol::TreeLayout::kBytes);
  auto client = Connect(tcp_url());
  auto words = *client->OpenTree("words");
  const bool disk = GetParam() == TestedEngine::kLsm;
  const CallOptions synced{.durability = WriteDurability::kSynced};
  const CallOptions replicated{.durability = WriteDurability::kReplicated};
  const auto stored = words.Put("synced", "1", synced);
  EXPECT_EQ(stored.ok(), disk) << stored.status();
  EXPECT_EQ(words.Get("synced")->has_value(), disk);
  for (const auto& refused : {words.Put("a", "1", replicated), words.Insert("a", "1", replicated),
                              words.Delete("a", replicated)}) {
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << refused.status();
  }
  EXPECT_EQ(words.Add("a", 1, 0, replicated).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(words.Get("a")->has_value());
  if (disk) {
    EXPECT_EQ(*words.Add("n", 1, 0, synced), 1);
    EXPECT_EQ(words.CompareAndSet("synced", "1", "2", synced)->outcome, ConditionOutcome::kDone);
    EXPECT_TRUE(*words.Delete("synced", synced));
  }
}

// Copies are a cluster's.
TEST_P(NativeEngineTest, ReadsThatMayBeStaleAreNotWhereNothingIsCopied) {
  StartServer();
  Add("words", protocol::TreeLayout::kBytes);
  auto client = Connect(tcp_url());
  auto words = *client->OpenTree("words");
  ASSERT_TRUE(words.Put("a", "1").ok());
  uint32_t told = 77;
  const CallOptions stale{.max_staleness_ms = 1'000, .staleness_ms = &told};
  EXPECT_EQ(*words.Get("a", stale), "1");
  EXPECT_EQ(told, 0u);
  EXPECT_EQ(words.Scan({}, stale)->size(), 1u);
  const std::vector<std::string> keys = {"a", "b"};
  EXPECT_EQ(*words.MultiGet(keys, stale), (Values{"1", std::nullopt}));
  EXPECT_EQ(told, 0u);
}

TEST_F(NativeServerTest, StatsCountEachKindOfOperation) {
  StartServer();
  Add("t");
  const auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tree.Put(KeyOf(1), "v").ok());
  ASSERT_TRUE(there.Put(KeyOf(2), "v").ok());
  for (client::Tree* each : {&tree, &there}) ASSERT_FALSE(each->Get("").ok());
  for (const auto& [asked, puts] : {std::pair(client.get(), "3"), std::pair(others.get(), "1")}) {
    // A turn's records are published when its answers are on their way: ask until they are there.
    std::string text;
    do {
      text = *asked->ServerStats();
    } while (text.find("get.failed 1\n") == std::string::npos);
    EXPECT_NE(text.find("put.count " + std::string(puts) + "\n"), std::string::npos) << text;
    EXPECT_NE(text.find("put.failed 0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("put.latency_us.p99 "), std::string::npos) << text;
    EXPECT_NE(text.find("connections.open 1\n"), std::string::npos) << text;
    EXPECT_NE(text.find("pool.memory_servers 2\n"), std::string::npos) << text;
  }
}

/// Until `condition` holds.
template <typename Condition>
bool Comes(Condition condition) {
  return test::Await(condition, kPatienceMs, 10);
}

TEST_F(NativeServerTest, EachThreadKeepsTheTreesUpWithoutRequestsAndBehindTheLastOne) {
  Add("t");
  options.threads = 3;
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    test::RuledHost& trees = ruled[i];
    EXPECT_TRUE(Comes([&] { return trees.upkeeps() >= 6; })) << trees.upkeeps();
    constexpr uint64_t kLeft = 20;
    const uint64_t before = trees.upkeeps();
    trees.set_upkeeps_left(kLeft);
    slot(i)->Stop();
    EXPECT_GE(trees.upkeeps(), before + kLeft + options.threads) << "each until it is through";
  }
}

TEST_P(NativeEngineTest, ThousandsInFlightAllComeBackRight) {
  StartServer();
  Add("t");
  const uint64_t operations = test::Amount{.small = 4'000, .usual = 20'000};
  for (const std::string& url : all_urls()) {
    auto session = ConnectSession(url);
    auto tree = *session->OpenTree("t");
    uint64_t right = 0;
    for (uint64_t i = 0; i < operations; ++i) {
      tree.PutAsync(KeyOf(i), "value " + std::to_string(i),
                    [&](Result<bool> is_new) { right += is_new.ok(); });
    }
    EXPECT_EQ(session->pending(), operations);
    while (session->pending() > 0) session->Poll(1'000);
    EXPECT_EQ(right, operations);
    for (uint64_t i = 0; i < operations; ++i) {
      tree.GetAsync(KeyOf(i), [&right, i](Result<Value> value) {
        right += value.ok() && *value == "value " + std::to_string(i);
      });
    }
    while (session->pending() > 0) session->Poll(1'000);
    EXPECT_EQ(right, 2 * operations);
  }
  EXPECT_EQ(Content("t").size(), operations);
}

TEST_P(NativeEngineTest, FuturesAndCallbacksFromManyThreads) {
  StartServer();
  Add("t");
  const auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  client::Tree trees[] = {*client->OpenTree("t"), *others->OpenTree("t")};
  std::vector<std::thread> threads;
  std::atomic<uint64_t> called_back{0}, right{0};
  constexpr uint64_t kThreads = 4, kEach = 1'000;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      client::Tree& tree = trees[t % 2];
      std::vector<std::future<Result<bool>>> puts;
      for (uint64_t i = 0; i < kEach; ++i) {
        puts.push_back(tree.PutAsync(KeyOf(t * kEach + i), std::to_string(t)));
      }
      for (auto& put : puts) right += put.get().ok();
      for (uint64_t i = 0; i < kEach; ++i) {
        tree.GetAsync(KeyOf(t * kEach + i), [&, t](Result<Value> value) {
          right += value.ok() && *value == std::to_string(t);
          ++called_back;
        });
      }
      right += **tree.Get(KeyOf(t * kEach)) == std::to_string(t);
    });
  }
  for (auto& thread : threads) thread.join();
  while (called_back < kThreads * kEach) ASSERT_TRUE(client->Ping().ok());
  EXPECT_EQ(right, kThreads * (2 * kEach + 1));
}

TEST_P(NativeEngineTest, CallbackMayStartTheNextOperation) {
  StartServer();
  Add("t");
  auto client = Connect(unix_url());
  auto tree = *client->OpenTree("t");
  std::promise<uint64_t> done;
  std::function<void(Result<bool>, uint64_t)> next = [&](Result<bool> result, uint64_t n) {
    if (!result.ok() || n == 100) return done.set_value(n);
    tree.PutAsync(KeyOf(n), "v", [&next, n](Result<bool> r) { next(std::move(r), n + 1); });
  };
  next(true, 0);
  EXPECT_EQ(done.get_future().get(), 100u);
}

struct NativeLargeValuesTest : test::TwoOnOnePool {
  NativeLargeValuesTest() : TwoOnOnePool(uint64_t{128} << 20) {}
};

TEST_F(NativeLargeValuesTest, LargestValuesPass) {
  StartServer();
  Add("t");
  const auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  const std::string large(16 << 20, 'x'), changed(16 << 20, 'y');
  ASSERT_TRUE(tree.Put("large", large).ok());
  EXPECT_TRUE(**there.Get("large") == large);
  EXPECT_EQ(*there.CompareAndSet("large", large, changed), ConditionOutcome::kDone);
  EXPECT_TRUE(Content("t").at("large") == changed);
  ASSERT_TRUE(there.Put("second", large).ok());
  const std::vector<std::string> keys = {"large", "second", "large"};
  const auto values = tree.MultiGet(keys);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(*values == (client::Values{changed, large, changed}));
  EXPECT_TRUE(*there.Scan({}) == (Rows{{"large", changed}, {"second", large}}));
}

TEST_P(NativeEngineTest, MultiGetOfManyKeysIsOneCall) {
  StartServer();
  Add("t");
  auto session = ConnectSession(tcp_url(0)), others = ConnectSession(tcp_url(1));
  auto tree = *session->OpenTree("t"), there = *others->OpenTree("t");
  std::vector<std::string> keys;
  client::Values expected;
  for (uint64_t i = 0; i < 5'000; ++i) {
    keys.push_back(KeyOf(i));
    expected.push_back(i % 3 ? Value(std::to_string(i)) : std::nullopt);
    if (i % 3) tree.PutAsync(keys.back(), std::to_string(i), [](Result<bool>) {});
  }
  while (session->pending() > 0) session->Poll(1'000);
  EXPECT_TRUE(*there.MultiGet(keys) == expected);
  EXPECT_EQ(there.MultiGet({})->size(), 0u);
}

// Scans of every shape equal the model's, through continuations of every size.
TEST_P(NativeEngineTest, ScansContinueWhereThePieceEnded) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  StartServer();
  Add("t");
  auto session = ConnectSession(tcp_url());
  auto tree = *session->OpenTree("t");
  const uint64_t puts = test::Amount{3'000, 6'000}, rounds = test::Amount{3, 20};
  for (uint64_t i = 0; i < puts; ++i) {
    tree.PutAsync(KeyOf(random.Below(10'000)), std::string(random.Below(2'000), 'v'),
                  [](Result<bool>) {});
  }
  // Keys of the greatest length, one after the other: the next one is not longer.
  for (char last : {'\x00', '\x01', '\xfe', '\xff'}) {
    tree.PutAsync(std::string(1023, 'm') + last, std::string(700 << 10, 'w'), [](Result<bool>) {});
  }
  while (session->pending() > 0) session->Poll(1'000);
  const auto model = Content("t");
  auto expected = [&](const ScanRange& range) {
    Rows rows;
    auto first = model.lower_bound(range.start);
    auto last = range.end ? model.lower_bound(*range.end) : model.end();
    for (; first != last; ++first) rows.push_back({first->first, first->second});
    if (range.reverse) std::reverse(rows.begin(), rows.end());
    if (rows.size() > range.limit) rows.resize(range.limit);
    return rows;
  };
  auto others = ConnectSession(tcp_url(1));
  auto there = *others->OpenTree("t");
  for (bool reverse : {false, true}) {
    EXPECT_TRUE(*tree.Scan({.reverse = reverse}) == expected({.reverse = reverse}));
    for (uint64_t limit : {0, 1, 127, 128, 129, 3'000}) {
      EXPECT_TRUE(*there.Scan({.limit = limit, .reverse = reverse}) ==
                  expected({.limit = limit, .reverse = reverse}))
          << limit;
    }
    for (uint64_t round = 0; round < rounds; ++round) {
      ScanRange range{.start = KeyOf(random.Below(6'000)),
                      .end = KeyOf(4'000 + random.Below(6'000)),
                      .limit = random.OneIn(2) ? UINT64_MAX : random.Below(2'000),
                      .reverse = reverse};
      if (*range.end < range.start) std::swap(range.start, *range.end);
      EXPECT_TRUE(*(round % 2 ? there : tree).Scan(range) == expected(range))
          << range.start << " " << *range.end;
    }
  }
}

TEST_P(NativeEngineTest, FixedKeyScansReachTheLargestKey) {
  StartServer();
  Add("t", protocol::TreeLayout::kFixed8);
  auto session = ConnectSession(tcp_url(0)), others = ConnectSession(tcp_url(1));
  auto tree = *session->OpenTree("t"), there = *others->OpenTree("t");
  Rows all;
  Status put_all;
  const uint64_t count = test::Amount{10'000, 70'000};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t key = UINT64_MAX - count + 1 + i;
    all.push_back({Fixed8Key(key), Fixed8Key(i)});
    tree.PutAsync(all.back().key, all.back().value, [&put_all](Result<bool> put) {
      if (put_all.ok()) put_all = put.status();
    });
    while (session->pending() > 10'000) session->Poll(1'000);
  }
  while (session->pending() > 0) session->Poll(1'000);
  ASSERT_TRUE(put_all.ok()) << put_all;
  const auto forward = there.Scan({});
  ASSERT_TRUE(forward.ok()) << forward.status();
  EXPECT_EQ(forward->size(), all.size());
  EXPECT_TRUE(*forward == all);
  std::reverse(all.begin(), all.end());
  const auto reverse = tree.Scan({.reverse = true});
  ASSERT_TRUE(reverse.ok()) << reverse.status();
  EXPECT_TRUE(*reverse == all);
}

TEST_P(NativeEngineTest, CountersRefuseWhatTheyCannotCount) {
  StartServer();
  Add("t");
  Add("numbers", protocol::TreeLayout::kFixed8);
  auto client = Connect(unix_url());
  auto tree = *client->OpenTree("t");
  EXPECT_EQ(tree.Add("c", 1).status().ToString(),
            "not found: " + unix_url() + ": no counter to add to, and no initial value was given");
  EXPECT_EQ(*tree.Add("c", 1, INT64_MAX - 1), INT64_MAX);
  EXPECT_EQ(tree.Add("c", 1).status().ToString(),
            "invalid argument: " + unix_url() +
                ": key \"c\": 9223372036854775807 + 1 does not fit 64 bits with sign");
  auto others = Connect(unix_url(1));
  auto there = *others->OpenTree("t");
  EXPECT_EQ(there.Add("c", 1, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*there.Add("c", INT64_MIN), -1);
  EXPECT_EQ(*tree.Add("c", INT64_MIN + 1), INT64_MIN);
  EXPECT_EQ(tree.Add("c", -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Content("t").at("c"), client::CounterValue(INT64_MIN));
  EXPECT_EQ(tree.Add("d", 1, INT64_MAX).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Content("t").contains("d"));
  ASSERT_TRUE(tree.Put("text", "seven..").ok());
  EXPECT_EQ(tree.Add("text", 1, 0).status().ToString(),
            "invalid argument: " + unix_url() +
                ": key \"text\": a value of 7 bytes is no counter, which has 8");
  auto numbers = *client->OpenTree("numbers");
  EXPECT_EQ(*numbers.Add(Fixed8Key(1), 40, 2), 42);
  EXPECT_EQ(**numbers.Get(Fixed8Key(1)), Fixed8Key(42));
}

TEST_P(NativeEngineTest, PrefixScansEqualTheModels) {
  StartServer();
  Add("numbers", protocol::TreeLayout::kFixed8);
  Add("t");
  auto session = ConnectSession(unix_url(0)), others = ConnectSession(unix_url(1));
  auto tree = *session->OpenTree("t"), there = *others->OpenTree("t");
  for (const char* key : {"a", "ab", "ab\xff", "ab\xff\xff", "ab\xff\xffz", "ac", "b", "\xff",
                          "\xff\xff", "\xff\xff\x01"}) {
    ASSERT_TRUE(tree.Put(key, "v").ok());
  }
  const auto model = Content("t");
  for (const std::string prefix :
       {"", "a", "ab", "ab\xff", "ab\xff\xff", "b", "bb", "\xff", "\xff\xff", "\xff\xff\xff"}) {
    for (const std::string start : {"", "ab\xff", "b", "\xff\xff"}) {
      for (const bool reverse : {false, true}) {
        Rows expected;
        for (const auto& [key, value] : model) {
          if (key.starts_with(prefix) && key >= start) expected.push_back({key, value});
        }
        if (reverse) std::reverse(expected.begin(), expected.end());
        EXPECT_EQ(*there.Scan({.start = start, .reverse = reverse, .prefix = prefix}), expected)
            << prefix << " from " << start;
      }
    }
  }
  EXPECT_EQ(there.Scan({.end = "ab\xff", .prefix = "ab"})->size(), 1u);
  EXPECT_EQ(there.Scan({.prefix = std::string(2'000, 'a')})->size(), 0u);
  auto numbers = *session->OpenTree("numbers");
  for (uint64_t i : {uint64_t{1}, uint64_t{0x100}, uint64_t{0x101}, UINT64_MAX}) {
    ASSERT_TRUE(numbers.Put(Fixed8Key(i), Fixed8Key(i)).ok());
  }
  EXPECT_EQ(numbers.Scan({.prefix = Fixed8Key(0x100).substr(0, 7)})->size(), 2u);
  EXPECT_EQ(numbers.Scan({.prefix = "\xff"})->size(), 1u);
  EXPECT_EQ(numbers.Scan({.prefix = std::string(9, '\0')})->size(), 0u);
}

TEST_P(NativeEngineTest, KeysOnlyScansBringNoValuesAndPiecesComeAsTheyAre) {
  StartServer();
  Add("t");
  auto writer = ConnectSession(tcp_url(0)), session = ConnectSession(tcp_url(1));
  auto written = *writer->OpenTree("t"), tree = *session->OpenTree("t");
  constexpr uint64_t kKeys = 3'000;
  for (uint64_t i = 0; i < kKeys; ++i) {
    written.PutAsync(KeyOf(i), std::string(2'000, 'v'), [](Result<bool>) {});
  }
  while (writer->pending() > 0) writer->Poll(1'000);
  for (const bool reverse : {false, true}) {
    const auto keys = tree.Scan({.reverse = reverse, .keys_only = true});
    ASSERT_TRUE(keys.ok()) << keys.status();
    ASSERT_EQ(keys->size(), kKeys);
    for (uint64_t i = 0; i < kKeys; ++i) {
      EXPECT_EQ((*keys)[i], (client::KeyValue{KeyOf(reverse ? kKeys - 1 - i : i), ""}));
    }
    uint64_t seen = 0, pieces = 0;
    const auto passed = tree.ScanPieces({.reverse = reverse}, [&](Rows rows) {
      for (const auto& row : rows) {
        EXPECT_EQ(row.key, KeyOf(reverse ? kKeys - 1 - seen : seen));
        EXPECT_EQ(row.value.size(), 2'000u);
        ++seen;
      }
      ++pieces;
      return true;
    });
    EXPECT_EQ(*passed, kKeys);
    EXPECT_EQ(seen, kKeys);
    EXPECT_GE(pieces, 5u) << "of about 1 MiB";
  }
  // Whoever has enough gets no more, and may start operations on the way.
  uint64_t pieces = 0, gets = 0;
  const auto passed = tree.ScanPieces({}, [&](Rows rows) {
    for (const auto& row : rows) {
      tree.GetAsync(row.key,
                    [&](Result<Value> value) { gets += value.ok() && value->has_value(); });
    }
    return ++pieces < 2;
  });
  EXPECT_EQ(pieces, 2u);
  EXPECT_LT(*passed, kKeys);
  while (session->pending() > 0) session->Poll(1'000);
  EXPECT_EQ(gets, *passed);
}

}  // namespace
}  // namespace farleaf::server
