// What the tree does when the pool is full, a lock's owner is dead, a page stays torn, a memory
// server is gone, or the caller asks for the impossible: a clear error in bounded time, and nothing
// else is touched.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "dsm/base/random.h"
#include "index/blink/check.h"
#include "test/support/options_off.h"
#include "test/support/pool_pages.h"
#include "test/support/shared_fabric.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kSoonMs = 150;       // the deadline of an operation that is to end at it
constexpr uint64_t kPlentyMs = 60'000;  // of one that is to end otherwise
constexpr dsm::LockWord kDeadOwner{dsm::LockWord::State::kLocked, 77, 5, 3, 9};

bool Says(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string_view::npos;
}

/// A tree and operations with deadlines, whose failures are looked at.
class TreeFaultTest : public testing::TestWithParam<test::OptionsCase> {
 protected:
  void Open(LocalTree::Options options) {
    GetParam().off.TurnOff(&options.tree);
    tree_ = std::make_unique<LocalTree>(options);
    pages_ = std::make_unique<PoolPages>(&tree_->fabric(), tree_->tree().info());
  }
  void OpenFixed8(uint64_t keys) {
    Open({.geometry = Geometry::Fixed8(256)});
    for (uint64_t i = 0; i < keys; ++i) tree_->Insert(Fixed(i), Fixed(i * 3));
  }
  static bool caching() { return !GetParam().off.Has(test::TreeOption::kCache); }
  OpContext Op(uint64_t deadline_ms) {
    return {tree_->worker(), counts_, tree_->clock().NowNs() + deadline_ms * kNsPerMs};
  }
  Result<bool> Put(std::string_view key, std::string_view value, uint64_t deadline_ms) {
    OpContext op = Op(deadline_ms);
    return tree_->worker().Run(tree_->tree().Put(op, key, value));
  }
  Result<bool> Delete(std::string_view key, uint64_t deadline_ms) {
    OpContext op = Op(deadline_ms);
    return tree_->worker().Run(tree_->tree().Delete(op, key));
  }
  Result<bool> Get(std::string_view key, std::string* value, uint64_t deadline_ms) {
    OpContext op = Op(deadline_ms);
    return tree_->worker().Run(tree_->tree().Get(op, key, value));
  }
  Status Scan(uint64_t deadline_ms, std::vector<KeyValue>* rows) {
    OpContext op = Op(deadline_ms);
    return tree_->worker().Run(tree_->tree().Scan(op, {}, rows));
  }
  CheckReport Check() {
    OpContext op = Op(kPlentyMs);
    auto report = tree_->worker().Run(CheckPool(op, tree_->pool(), {.looks_max = 3}));
    FARLEAF_CHECK(report.ok(), report.status());
    return std::move(*report);
  }
  static std::string Describe(const CheckReport& report) {
    std::string text = std::to_string(report.findings.count()) + " findings";
    for (const Finding& finding : report.findings.described()) text += "\n  " + finding.text;
    return text;
  }
  void ExpectContent(const std::map<std::string, std::string>& model) {
    const std::vector<KeyValue> rows = tree_->Scan({});
    ASSERT_EQ(rows.size(), model.size());
    size_t i = 0;
    for (const auto& [key, value] : model) ASSERT_EQ(rows[i++], (KeyValue{key, value}));
    for (const auto& [key, value] : model) ASSERT_EQ(tree_->Get(key), value);
  }
  /// Inserts random keys until many in a row find no room.
  void FillUntilFull(uint64_t seed, size_t value_bytes, std::map<std::string, std::string>* model) {
    const bool fixed8 = tree_->tree().info().geometry.layout == Layout::kFixed8;
    Random random(seed);
    int refused = 0;
    for (int i = 0; i < 500'000 && refused < 100; ++i) {
      const std::string key = fixed8 ? Fixed(random.Next()) : "key" + std::to_string(random.Next());
      const std::string value = fixed8 ? Fixed(random.Next()) : std::string(value_bytes, 'v');
      const Result<bool> put = Put(key, value, kPlentyMs);
      if (put.ok()) {
        (*model)[key] = value;
        refused = 0;
        continue;
      }
      ++refused;
      ASSERT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
      ASSERT_TRUE(Says(put.status(), "memory server 0") && Says(put.status(), "memory server 1"))
          << put.status();
    }
    ASSERT_EQ(refused, 100) << "the pool did not fill up";
    ASSERT_GT(model->size(), 100u);
  }
  void TestFullPool(Geometry geometry, size_t value_bytes) {
    const uint64_t seed = 20'011;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Open({.geometry = geometry,
          .fabric = {.servers = 2,
                     .region_bytes = test::Amount{1 << 20, 1536 << 10},
                     .chunk_bytes = 64 << 10}});
    std::map<std::string, std::string> model;
    ASSERT_NO_FATAL_FAILURE(FillUntilFull(seed, value_bytes, &model));
    CheckReport report = Check();
    ASSERT_TRUE(report.ok()) << Describe(report);
    ASSERT_EQ(report.keys(), model.size());
    ASSERT_NO_FATAL_FAILURE(ExpectContent(model));

    // Room again after deletes, as often as one likes.
    const uint64_t rounds = test::Amount{.small = 1, .usual = 3};
    for (uint64_t round = 0; round < rounds; ++round) {
      const size_t full = model.size();
      while (model.size() > full / 4) {
        const Result<bool> deleted = Delete(model.begin()->first, kPlentyMs);
        ASSERT_TRUE(deleted.ok() && *deleted) << deleted.status();
        model.erase(model.begin());
      }
      const size_t left = model.size();
      ASSERT_NO_FATAL_FAILURE(FillUntilFull(seed + 1 + round, value_bytes, &model));
      EXPECT_GT(model.size(), left + (full - left) / 2);
      report = Check();
      ASSERT_TRUE(report.ok()) << Describe(report);
      ASSERT_NO_FATAL_FAILURE(ExpectContent(model));
    }
  }

  std::unique_ptr<LocalTree> tree_;
  std::unique_ptr<PoolPages> pages_;
  dsm::FabricCounts counts_;
};

TEST_P(TreeFaultTest, FullPoolOfFixed8RefusesInsertsAndKeepsAll) {
  TestFullPool(Geometry::Fixed8(256), 8);
}

TEST_P(TreeFaultTest, FullPoolOfPartedLeavesRefusesInsertsAndKeepsAll) {
  TestFullPool(Geometry::Parted(4, 256), 8);
}

TEST_P(TreeFaultTest, FullPoolOfByteStringsRefusesInsertsAndKeepsAll) {
  TestFullPool({Layout::kBytes, 1024, 1024, 200, 100}, 60);
}

TEST_P(TreeFaultTest, FullPoolOfValueBlocksRefusesInsertsAndKeepsAll) {
  TestFullPool({Layout::kBytes, 1024, 1024, 200, 100}, 1'000);
}

TEST_P(TreeFaultTest, ValueTooLargeIsRefusedAndNamesTheLimit) {
  Open({.geometry = Geometry::Bytes()});
  const Result<bool> put = Put("key", std::string((16 << 20) + 1, 'x'), kPlentyMs);
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(put.status(), "16777216") && Says(put.status(), "16777217")) << put.status();
  EXPECT_EQ(tree_->Get("key"), std::nullopt);
  EXPECT_TRUE(Check().ok());
}

TEST_P(TreeFaultTest, KeysAndValuesOfAWrongSizeAreRefused) {
  OpenFixed8(10);
  for (const std::string& key : {std::string(), std::string("short"), std::string(9, 'k')}) {
    std::string value;
    EXPECT_EQ(Put(key, Fixed(1), kPlentyMs).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Get(key, &value, kPlentyMs).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Delete(key, kPlentyMs).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Put(Fixed(1), "v", kPlentyMs).status().code(), StatusCode::kInvalidArgument);
  Open({.geometry = Geometry::Bytes()});
  const Result<bool> put = Put(std::string(1'025, 'k'), "v", kPlentyMs);
  EXPECT_EQ(put.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(put.status(), "1024") && Says(put.status(), "1025")) << put.status();
  EXPECT_EQ(Put("", "v", kPlentyMs).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(*Put(std::string(1'024, 'k'), "", kPlentyMs));
}

TEST_P(TreeFaultTest, LockOfADeadOwnerStopsWritersOfThatLeafOnly) {
  OpenFixed8(1'000);
  const GlobalAddress leaf = pages_->LeafOf(Fixed(500));
  pages_->SetWord(pages_->LockOf(leaf), kDeadOwner.Encode());

  std::string value;
  const Result<bool> found = Get(Fixed(500), &value, kPlentyMs);
  ASSERT_TRUE(found.ok() && *found) << found.status();
  EXPECT_EQ(value, Fixed(1'500));
  for (int i = 0; i < 2; ++i) {  // the second waits behind no one
    const Result<bool> put = Put(Fixed(500), Fixed(0), kSoonMs);
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(Says(put.status(), "compute server 77") && Says(put.status(), leaf.ToString()))
        << put.status();
  }
  std::vector<KeyValue> rows;
  ASSERT_TRUE(Scan(kPlentyMs, &rows).ok());
  EXPECT_EQ(rows.size(), 1'000u);
  uint64_t others = 0;
  for (uint64_t i = 0; i < 1'000; i += 7) {
    if (pages_->At(leaf).Covers(Fixed(i))) continue;
    const Result<bool> put = Put(Fixed(i), Fixed(1), kPlentyMs);
    ASSERT_TRUE(put.ok()) << put.status();
    ++others;
  }
  EXPECT_GT(others, 130u);

  pages_->SetWord(pages_->LockOf(leaf), dsm::kUnlockedWord);
  EXPECT_TRUE(Put(Fixed(500), Fixed(0), kPlentyMs).ok());
  const CheckReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
}

TEST_P(TreeFaultTest, LockOfADeadOwnerStopsMergesButNoDeletes) {
  OpenFixed8(1'000);
  const std::vector<GlobalAddress> leaves = pages_->Level(0);
  pages_->SetWord(pages_->LockOf(leaves[11]), kDeadOwner.Encode());
  std::vector<std::string> victims;
  for (size_t i = 0; i < pages_->At(leaves[10]).count(); ++i) {
    victims.push_back(pages_->At(leaves[10]).Key(i));
  }
  for (const std::string& key : victims) {
    const Result<bool> deleted = Delete(key, kSoonMs);
    ASSERT_TRUE(deleted.ok() && *deleted) << deleted.status();
    ASSERT_EQ(tree_->Get(key), std::nullopt);
  }
  pages_->SetWord(pages_->LockOf(leaves[11]), dsm::kUnlockedWord);
  const CheckReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  EXPECT_EQ(report.keys(), 1'000 - victims.size());
}

TEST_P(TreeFaultTest, LockOfADeadOwnerOnAParentDefersSeparators) {
  OpenFixed8(1'000);
  std::vector<GlobalAddress> parents = pages_->Level(1);
  for (GlobalAddress parent : parents) {
    pages_->SetWord(pages_->LockOf(parent), kDeadOwner.Encode());
  }
  for (uint64_t i = 1'000; i < 1'020; ++i) {  // some of these split the last leaf
    const Result<bool> put = Put(Fixed(i), Fixed(i * 3), kSoonMs);
    ASSERT_TRUE(put.ok()) << put.status();
  }
  EXPECT_GT(tree_->tree().stats().separators_deferred.load(), 0u);
  for (GlobalAddress parent : parents) {
    pages_->SetWord(pages_->LockOf(parent), dsm::kUnlockedWord);
  }
  CheckReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  EXPECT_GT(report.trees[0].missing_separators(), 0u);
  for (uint64_t i = 0; i < 1'020; ++i) ASSERT_EQ(tree_->Get(Fixed(i)), Fixed(i * 3)) << i;
  report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  if (caching()) {  // without, nobody can tell a missing separator from one that is on its way
    EXPECT_EQ(report.trees[0].missing_separators(), 0u) << "whoever moved right completed none";
  }
}

TEST_P(TreeFaultTest, PageThatStaysTornEndsAtTheDeadlineAndNamesWhoHoldsIt) {
  OpenFixed8(1'000);
  const GlobalAddress leaf = pages_->LeafOf(Fixed(500));
  pages_->SetWord(pages_->LockOf(leaf), kDeadOwner.Encode());
  pages_->Bytes(leaf, 256)[60] ^= std::byte{1};  // half of somebody's write-back

  std::string value;
  std::vector<KeyValue> rows;
  const Status failures[] = {Get(Fixed(500), &value, kSoonMs).status(), Scan(kSoonMs, &rows),
                             Put(Fixed(500), Fixed(1), kSoonMs).status()};
  for (const Status& failure : failures) {
    EXPECT_EQ(failure.code(), StatusCode::kDeadlineExceeded) << failure;
    EXPECT_TRUE(Says(failure, "compute server 77") && Says(failure, leaf.ToString())) << failure;
  }
  EXPECT_EQ(tree_->Get(Fixed(100)), Fixed(300));
}

TEST_P(TreeFaultTest, PageThatIsDamagedIsCorruptionAndNamed) {
  OpenFixed8(1'000);
  const GlobalAddress leaf = pages_->LeafOf(Fixed(500));
  pages_->Bytes(leaf, 256)[60] ^= std::byte{1};
  std::string value;
  for (const Status& failure :
       {Get(Fixed(500), &value, kSoonMs).status(), Put(Fixed(500), Fixed(1), kSoonMs).status()}) {
    EXPECT_EQ(failure.code(), StatusCode::kCorruption) << failure;
    EXPECT_TRUE(Says(failure, leaf.ToString())) << failure;
  }
  EXPECT_EQ(pages_->Word(pages_->LockOf(leaf)), dsm::kUnlockedWord);
}

TEST_P(TreeFaultTest, LostMemoryServerIsNamedAndTheOthersServe) {
  OpenFixed8(2'000);
  dsm::FabricCounts counts;
  OpContext warm{tree_->worker(), counts};
  ASSERT_TRUE(tree_->worker().Run(tree_->tree().WarmCache(warm)).ok());
  std::map<uint64_t, dsm::ServerId> homes;
  for (GlobalAddress leaf : pages_->Level(0)) {
    const ConstNode node = pages_->At(leaf);
    for (size_t i = 0; i < node.count(); ++i) {
      homes[LoadBig64(node.Key(i).data())] = leaf.server();
    }
  }
  ASSERT_EQ(homes.size(), 2'000u);
  tree_->fabric().KillServer(1);
  uint64_t served = 0, lost = 0;
  for (const auto& [key, server] : homes) {
    std::string value;
    const Result<bool> found = Get(Fixed(key), &value, kPlentyMs);
    const Result<bool> put = Put(Fixed(key), Fixed(key), kPlentyMs);
    // Without a cache the way to a leaf may be what is lost.
    if (server == 0 && (caching() || found.ok())) {
      ASSERT_TRUE(found.ok() && *found) << key << ": " << found.status();
      ASSERT_EQ(value, Fixed(key * 3));
      ASSERT_TRUE(put.ok()) << key << ": " << put.status();
      ++served;
      continue;
    }
    for (const Status& failure : {found.status(), put.status()}) {
      ASSERT_EQ(failure.code(), StatusCode::kUnavailable) << key << ": " << failure;
      ASSERT_TRUE(Says(failure, "memory server 1")) << failure;
    }
    ++lost;
  }
  if (caching()) {
    EXPECT_GT(served, 500u);
  }
  EXPECT_GT(lost, 500u);
  std::vector<KeyValue> rows;
  const Status scanned = Scan(kPlentyMs, &rows);
  EXPECT_EQ(scanned.code(), StatusCode::kUnavailable) << scanned;
  EXPECT_TRUE(Says(scanned, "memory server 1")) << scanned;
}

/// What one thread of the next test saw.
struct Witness {
  uint64_t done = 0, refused = 0;
  std::string wrong;                 ///< the first answer that may not be
  std::atomic<uint64_t> answers{0};  ///< so far; the largest number when it has ended
};

/// Random operations on keys number % 2 == parity, some before the server dies and some after it.
void OperateThroughLoss(LocalTree& tree, uint64_t parity, const std::atomic<bool>& killed,
                        Witness& seen) {
  auto worker = tree.NewWorker();
  Random random(900 + parity);
  dsm::FabricCounts counts;
  std::map<uint64_t, std::optional<uint64_t>> mine;  // nullopt: it may have any value
  for (uint64_t i = 0; i < 2'000; ++i) mine[2 * i + parity] = (2 * i + parity) * 3;
  for (uint64_t after = 0; after < 3'000 && seen.wrong.empty(); after += killed.load()) {
    const uint64_t key = 2 * random.Below(2'000) + parity, value = random.Next();
    OpContext op{*worker, counts, worker->clock().NowNs() + kPlentyMs * kNsPerMs};
    std::string got;
    const bool write = random.OneIn(2);
    const Result<bool> answer = write ? worker->Run(tree.tree().Put(op, Fixed(key), Fixed(value)))
                                      : worker->Run(tree.tree().Get(op, Fixed(key), &got));
    seen.answers.fetch_add(1);
    if (!answer.ok()) {
      ++seen.refused;
      const StatusCode code = answer.status().code();
      if ((code != StatusCode::kUnavailable && !(write && code == StatusCode::kUnknown)) ||
          !Says(answer.status(), "memory server 1") || !killed.load()) {
        seen.wrong = "key " + std::to_string(key) + ": " + answer.status().ToString();
      }
      if (code == StatusCode::kUnknown) mine[key] = std::nullopt;
      continue;
    }
    ++seen.done;
    if (write) {
      mine[key] = value;
    } else if (!*answer) {
      seen.wrong = "key " + std::to_string(key) + " is said to be absent";
    } else if (mine[key] && got != Fixed(*mine[key])) {
      seen.wrong = "key " + std::to_string(key) + " has a wrong value";
    }
  }
  seen.answers.store(UINT64_MAX);
}

TEST_P(TreeFaultTest, MemoryServerLostDuringARunGivesErrorsAndNoWrongAnswer) {
  OpenFixed8(4'000);
  std::atomic<bool> killed{false};
  Witness seen[2];
  std::vector<std::thread> threads;
  for (uint64_t parity = 0; parity < 2; ++parity) {
    threads.emplace_back([&, parity] { OperateThroughLoss(*tree_, parity, killed, seen[parity]); });
  }
  for (const Witness& witness : seen) {
    while (witness.answers.load() < 2'000) std::this_thread::yield();
  }
  killed.store(true);
  tree_->fabric().KillServer(1);
  for (std::thread& thread : threads) thread.join();
  for (const Witness& witness : seen) {
    EXPECT_EQ(witness.wrong, "");
    EXPECT_GT(witness.done, 1'000u);
    EXPECT_GT(witness.refused, 100u);
  }
}

TEST_P(TreeFaultTest, LostCatalogServerIsNamed) {
  OpenFixed8(100);
  tree_->fabric().KillServer(0);
  OpContext op = Op(kPlentyMs);
  const auto opened = tree_->worker().Run(OpenTree(op, tree_->pool(), "test"));
  EXPECT_EQ(opened.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Says(opened.status(), "memory server 0")) << opened.status();
}

TEST_P(TreeFaultTest, CatalogLockOfADeadOwnerStopsCreationOnly) {
  OpenFixed8(100);
  pages_->SetWord({dsm::kCatalogServer, dsm::kCatalogOffset}, kDeadOwner.Encode());
  OpContext soon = Op(kSoonMs);
  const auto created =
      tree_->worker().Run(CreateTree(soon, tree_->pool(), "second", Geometry::Bytes()));
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Says(created.status(), "compute server 77")) << created.status();
  OpContext op = Op(kPlentyMs);
  EXPECT_TRUE(tree_->worker().Run(OpenTree(op, tree_->pool(), "test")).ok());
  EXPECT_TRUE(Put(Fixed(1), Fixed(2), kPlentyMs).ok());
}

TEST_P(TreeFaultTest, ObserverReadsAndIsToldThatItCannotWrite) {
  OpenFixed8(500);
  auto joined = dsm::Pool::Join(std::make_unique<dsm::SharedFabric>(&tree_->fabric()),
                                {.role = dsm::PoolOptions::Role::kObserver}, &tree_->clock());
  ASSERT_TRUE(joined.ok()) << joined.status();
  auto worker = (*joined)->OpenWorker();
  ASSERT_TRUE(worker.ok()) << worker.status();
  dsm::FabricCounts counts;
  OpContext op{**worker, counts};
  auto info = (*worker)->Run(OpenTree(op, **joined, "test"));
  ASSERT_TRUE(info.ok()) << info.status();
  {
    BlinkTree tree(joined->get(), *info, {});
    std::string value;
    const Result<bool> found = (*worker)->Run(tree.Get(op, Fixed(7), &value));
    ASSERT_TRUE(found.ok() && *found) << found.status();
    EXPECT_EQ(value, Fixed(21));
    std::vector<KeyValue> rows;
    ASSERT_TRUE((*worker)->Run(tree.Scan(op, {}, &rows)).ok());
    EXPECT_EQ(rows.size(), 500u);
    const Status refusals[] = {(*worker)->Run(tree.Put(op, Fixed(7), Fixed(1))).status(),
                               (*worker)->Run(tree.Delete(op, Fixed(7))).status(),
                               (*worker)->Run(CreateTree(op, **joined, "second", {})).status()};
    for (const Status& refusal : refusals) {
      EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument) << refusal;
      EXPECT_TRUE(Says(refusal, "observer")) << refusal;
    }
  }
  auto report = (*worker)->Run(CheckPool(op, **joined, {}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << Describe(*report);
}

INSTANTIATE_TEST_SUITE_P(Options, TreeFaultTest, testing::ValuesIn(test::AllOnAndAllOff()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace farleaf::index
