// The trees of an LSM store: apart from one another, there again when the store is opened again, and nobody else's.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "server/lsm/catalog_entry.h"
#include "server/records/record_walk.h"
#include "test/support/lsm_trees.h"

namespace farleaf::server {
namespace {

using index::KeyValue;
using index::ScanRange;

struct LsmTreeHostTest : ::testing::Test {
  test::LsmTrees trees;

  template <typename Call>
  auto Run(Call call) {
    auto worker = trees.host().OpenWorker();
    FARLEAF_CHECK(worker.ok(), worker.status());
    dsm::FabricCounts counts;
    dsm::OpContext op{**worker, counts};
    return (*worker)->Run(call(op));
  }
  Result<HostedTree> Create(const std::string& name,
                            protocol::TreeLayout layout = protocol::TreeLayout::kBytes,
                            uint32_t key_bytes_max = 0) {
    NewTree tree{.name = name, .layout = layout};
    tree.geometry.key_bytes_max = key_bytes_max;
    return Run([&](dsm::OpContext& op) { return trees.host().Create(op, tree); });
  }
  Result<HostedTree> Open(const std::string& name) {
    return Run([&](dsm::OpContext& op) { return trees.host().Open(op, name); });
  }
  Status Put(const HostedTree& tree, std::string_view key, std::string_view value) {
    return Run([&](dsm::OpContext& op) { return tree.index->Put(op, key, value); }).status();
  }
  std::vector<KeyValue> Scan(const HostedTree& tree, ScanRange range = {}) {
    std::vector<KeyValue> rows;
    const Status scanned =
        Run([&](dsm::OpContext& op) { return tree.index->Scan(op, range, &rows); });
    EXPECT_TRUE(scanned.ok()) << scanned;
    return rows;
  }
};

TEST_F(LsmTreeHostTest, TreesAreApartAndThereWhenTheStoreIsOpenedAgain) {
  const std::string highest(1024, '\xff');
  for (const char* name : {"a", "b", "c"}) {
    const auto tree = Create(name);
    ASSERT_TRUE(tree.ok()) << tree.status();
    ASSERT_TRUE(Put(*tree, std::string(1, '\0'), name).ok());
    ASSERT_TRUE(Put(*tree, highest, name).ok());
  }
  for (int round = 0; round < 2; ++round) {
    for (const std::string name : {"a", "b", "c"}) {
      const auto tree = Open(name);
      ASSERT_TRUE(tree.ok()) << tree.status();
      std::vector<KeyValue> all = {{std::string(1, '\0'), name}, {highest, name}};
      EXPECT_EQ(Scan(*tree), all);
      std::reverse(all.begin(), all.end());
      EXPECT_EQ(Scan(*tree, {.direction = index::ScanDirection::kReverse}), all);
      EXPECT_EQ(trees.host().Find(tree->info.id).info, tree->info);
    }
    EXPECT_EQ(Open("d").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(Create("b").status().code(), StatusCode::kAlreadyExists);
    const auto list = Run([&](dsm::OpContext& op) { return trees.host().List(op); });
    ASSERT_TRUE(list.ok());
    ASSERT_EQ(list->size(), 3u);
    EXPECT_EQ((*list)[2].name, "c");
    trees.OpenAgain();
  }
}

TEST_F(LsmTreeHostTest, KeysAndValuesThatDoNotFitAreRefused) {
  const auto numbers = Create("numbers", protocol::TreeLayout::kFixed8);
  const auto bytes = Create("bytes"), wide = Create("wide", protocol::TreeLayout::kBytes, 4094);
  ASSERT_TRUE(numbers.ok() && bytes.ok() && wide.ok());
  EXPECT_TRUE(Put(*numbers, "12345678", "12345678").ok());
  EXPECT_EQ(Put(*numbers, "12345678", "1234567").ToString(),
            "invalid argument: a value of 7 bytes; a fixed8 tree takes 8");
  EXPECT_EQ(Put(*numbers, "1234567", "12345678").ToString(),
            "invalid argument: a key of 7 bytes; a fixed8 tree takes 8");
  EXPECT_EQ(Scan(*numbers), (std::vector<KeyValue>{{"12345678", "12345678"}}));
  EXPECT_TRUE(Put(*bytes, std::string(1024, 'k'), "v").ok());
  EXPECT_EQ(Put(*bytes, std::string(1025, 'k'), "v").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(*bytes, "", "v").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(*bytes, "k", std::string((1 << 20) + 1, 'v')).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Put(*wide, std::string(4094, 'k'), "v").ok());
  EXPECT_EQ(Create("wider", protocol::TreeLayout::kBytes, 4095).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(LsmTreeHostTest, OfThreadsThatCreateATreeOneDoes) {
  constexpr int kThreads = 4, kNames = 20;
  std::array<std::vector<Result<HostedTree>>, kThreads> created;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kNames; ++i) {
          created[static_cast<size_t>(thread)].push_back(Create("tree " + std::to_string(i)));
        }
      });
    }
  }
  std::set<uint32_t> ids;
  for (size_t i = 0; i < kNames; ++i) {
    size_t makers = 0;
    for (const auto& each : created) {
      makers += each[i].ok();
      if (each[i].ok()) {
        ids.insert(each[i]->info.id);
      } else {
        EXPECT_EQ(each[i].status().code(), StatusCode::kAlreadyExists) << each[i].status();
      }
    }
    EXPECT_EQ(makers, 1u) << i;
  }
  EXPECT_EQ(ids.size(), size_t{kNames});
}

TEST_F(LsmTreeHostTest, ACatalogThatIsDamagedOrContradictsItselfIsRefused) {
  ASSERT_TRUE(Create("a").ok() && Create("b").ok());
  index::PrefixedIndex catalog(&trees.store().store(), 0, {});
  const auto load = [&] {
    return LsmTreeHost::Load({&trees.store().store(), &trees.store().storage(), "memory",
                              [&] { return trees.host().OpenWorker(); }})
        .status();
  };
  // What a row is made, what is said of it then, and what it was.
  const std::string nothing(7, '\0'), last = EncodeLastNumber(2);
  const struct {
    std::string key, damaged, said, sound;
  } cases[] = {
      {"I", EncodeLastNumber(1), "number 2, and the last that was given is 1", last},
      {"I", EncodeLastNumber(0), "number of trees is damaged", last},
      {"I", "2", "number of trees is damaged", last},
      {"Na", EncodeCatalogEntry({2, protocol::TreeLayout::kBytes, 10}), "number 2 for two trees",
       EncodeCatalogEntry({1, protocol::TreeLayout::kBytes, 1024})},
      {"Nb", nothing, "entry of tree \"b\" is damaged",
       EncodeCatalogEntry({2, protocol::TreeLayout::kBytes, 1024})},
      {"F", "farleaf trees 2", "a form that this program does not know", "farleaf trees 1"},
  };
  for (const auto& row : cases) {
    SCOPED_TRACE(row.key + " " + row.said);
    const auto put = [&](const std::string& value) {
      return Run([&](dsm::OpContext& op) { return catalog.Put(op, row.key, value); }).ok();
    };
    ASSERT_TRUE(put(row.damaged));
    const Status refused = load();
    EXPECT_NE(refused.message().find(row.said), std::string::npos) << refused;
    // A host that has the trees open already makes none of what it cannot read.
    if (row.damaged.size() != 8 && row.key == "I") {
      EXPECT_EQ(Create("c").status().code(), StatusCode::kCorruption);
    }
    ASSERT_TRUE(put(row.sound));
    EXPECT_TRUE(load().ok()) << load();
  }
}

TEST_F(LsmTreeHostTest, StatisticsTellOfTheStore) {
  const auto tree = Create("t");
  ASSERT_TRUE(tree.ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(*tree, std::to_string(i), "v").ok());
  const auto value = [](const std::string& of, const std::string& name) {
    const size_t at = of.find(name + " ");
    return at == std::string::npos ? 0 : std::stoull(of.substr(at + name.size() + 1));
  };
  const auto stats = [this] {
    std::string text;
    trees.host().AppendStats(&text);
    return text;
  };
  // Of values one is in the value log; again, if a flush made its put begin again (store_modify.cc).
  for (bool flushed = true; flushed;) {
    const std::string before = stats();
    ASSERT_TRUE(Put(*tree, "large", std::string(3000, 'v')).ok());
    const std::string after = stats();
    const uint64_t written =
        value(after, "lsm.value_log_bytes") - value(before, "lsm.value_log_bytes");
    flushed = value(after, "lsm.flushes") != value(before, "lsm.flushes");
    EXPECT_GT(written, 3000u) << after;
    EXPECT_TRUE(flushed || written < 2 * 3000) << after;
  }
  std::string text;
  const MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + 60 * kNsPerSecond;
  do {  // what was put is flushed, soon
    ASSERT_LT(clock.NowNs(), end_ns) << text;
    text = stats();
  } while (text.find("lsm.level1_tables ") == std::string::npos);
  for (const char* line : {"engine lsm\n", "lsm.data_dir memory\n", "lsm.durability local\n",
                           "lsm.writing ok\n", "lsm.trees 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
  const auto told = [&text](int level) {
    return text.find("lsm.level" + std::to_string(level) + "_tables ") != std::string::npos;
  };
  for (int level = 2; level <= static_cast<int>(index::lsm::kLevelsMax); ++level) {
    EXPECT_TRUE(!told(level) || told(level - 1)) << "a level is left out\n" << text;
  }
  // Each change has a record in the recovery log, of its head and its key at least.
  EXPECT_GT(value(text, "lsm.recovery_log_bytes"), 101 * 16u) << text;
  MetricsText metrics;
  trees.host().AppendMetrics(&metrics);
  const std::string samples = metrics.ToString();
  EXPECT_GE(value(samples, "farleaf_lsm_work_bytes_total{work=\"recovery_log\"}"), 101 * 16u)
      << samples;
  EXPECT_GE(value(samples, "farleaf_lsm_work_bytes_total{work=\"value_log\"}"), 3000u) << samples;
  EXPECT_NE(samples.find("farleaf_lsm_writing 1\n"), std::string::npos);
  EXPECT_TRUE(trees.host().Health().ok());
}

TEST(LsmTreesOfAFullDiskTest, TheReasonIsALineOfItsOwn) {
  const auto full = std::make_shared<std::atomic<bool>>(false);  // the trees outlive the test
  test::LsmTrees trees;
  trees.store().storage().fail = [full](const index::storage::Io& io) {
    const bool fails = *full && io.kind == index::storage::IoKind::kWrite;
    return fails ? Status::ResourceExhausted("no space left on device") : Status::Ok();
  };
  auto worker = trees.host().OpenWorker();
  ASSERT_TRUE(worker.ok());
  dsm::FabricCounts counts;
  dsm::OpContext op{**worker, counts};
  const auto tree = (*worker)->Run(trees.host().Create(op, {.name = "t"}));
  ASSERT_TRUE(tree.ok()) << tree.status();
  *full = true;
  ASSERT_TRUE((*worker)->Run(tree->index->Put(op, "k", "v")).ok());
  std::string text;
  while (trees.host().Health().ok()) std::this_thread::yield();  // the test's timeout bounds it
  trees.host().AppendStats(&text);
  EXPECT_NE(text.find("\nlsm.writing failed\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlsm.writing_failure resource exhausted: no space left"), std::string::npos)
      << text;
  *full = false;
  while (!trees.host().Health().ok()) std::this_thread::yield();
  *worker = nullptr;
}

TEST(LsmRecordsTest, AFlushIsOneChangeWhateverTheNumberOfKeysAndLeavesOtherSpaces) {
  index::lsm::LsmOptions options = test::LsmHost::SmallStore();
  options.durability = index::lsm::Durability::kSynced;
  test::LsmHost store{{.store = options, .io_delay_ns = 100 * kNsPerUs}};
  auto worker = store.OpenWorker();
  const WallClock wall;
  const RecordStore records(&store.index(0), &wall);
  constexpr uint64_t kRecords = 300;
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  std::string value;
  AppendRecord(Record{.cas = 1}, "", &value);
  for (uint64_t i = 0; i < kRecords; ++i) {
    const std::string key = std::string(1, kUserKeySpace) + std::to_string(i);
    ASSERT_TRUE(worker->Run(store.index(0).Put(op, key, value)).ok());
  }
  const std::string other = std::string(1, kUserKeySpace + 1) + "other";
  ASSERT_TRUE(worker->Run(store.index(0).Put(op, other, value)).ok());
  const uint64_t syncs = store.storage().counts().syncs;
  const index::lsm::Sequence before = store.store().TakeSnapshot().sequence();
  const WalkContext walk{*worker, counts, 60'000, [] { return false; }};
  const Status deleted = worker->Run(DeleteAll(walk, records, kUserKeySpace));
  EXPECT_TRUE(deleted.ok()) << deleted;
  EXPECT_EQ(store.store().TakeSnapshot().sequence(), before + 1);
  EXPECT_GT(store.storage().counts().syncs, syncs);
  EXPECT_LT(store.storage().counts().syncs, syncs + 10);
  std::vector<KeyValue> rows;
  EXPECT_TRUE(worker->Run(store.index(0).Scan(op, {}, &rows)).ok());
  EXPECT_EQ(rows, (std::vector<KeyValue>{{other, value}}));
  const WalkContext cancelled{*worker, counts, 60'000, [] { return true; }};
  const Status stopped = worker->Run(DeleteAll(cancelled, records, kUserKeySpace));
  EXPECT_EQ(stopped.code(), StatusCode::kUnavailable) << stopped;
  worker = nullptr;
}

TEST(LsmStoreOfOthersTest, IsRefused) {
  test::LsmHost store{{.store = test::LsmHost::SmallStore()}};
  auto worker = store.OpenWorker();
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  ASSERT_TRUE(worker->Run(store.index(0).Put(op, "user1", "value")).ok());
  const auto host = LsmTreeHost::Load(
      {&store.store(), &store.storage(), "memory",
       [&]() -> Result<std::unique_ptr<dsm::Worker>> { return store.OpenWorker(); }});
  EXPECT_EQ(host.status().code(), StatusCode::kInvalidArgument);
  worker = nullptr;
}

}  // namespace
}  // namespace farleaf::server
