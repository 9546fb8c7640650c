// One test for each fault that published indexes on pooled memory have.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/index_host.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::BlinkTree;
using index::Geometry;
using index::KeyValue;
using index::OpContext;

std::string Big(uint64_t number) {
  std::string bytes(8, '\0');
  StoreBig64(bytes.data(), number);
  return bytes;
}

/// A value that tells whose key it is: a torn or foreign one is noticed.
std::string TaggedValue(uint64_t key, uint64_t round) {
  return Big(key << 32 | round % (1u << 31));
}
bool IsTagged(std::string_view value, uint64_t key) {
  return value.size() == 8 && LoadBig64(value.data()) >> 32 == key;
}

/// One thread's access to one member's tree; every call checks that the operation succeeded.
class Session {
 public:
  Session(TreeMembers* members, size_t member)
      : tree_(members->tree(member)), worker_(members->OpenWorker(member)) {}

  bool Insert(uint64_t key, std::string_view value) {
    OpContext op{*worker_, counts_};
    const std::string bytes = Big(key);
    return Checked(worker_->Run(tree_.Insert(op, bytes, value)));
  }
  bool Put(uint64_t key, std::string_view value) {
    OpContext op{*worker_, counts_};
    const std::string bytes = Big(key);
    return Checked(worker_->Run(tree_.Put(op, bytes, value)));
  }
  bool Delete(uint64_t key) {
    OpContext op{*worker_, counts_};
    const std::string bytes = Big(key);
    return Checked(worker_->Run(tree_.Delete(op, bytes)));
  }
  std::optional<std::string> Get(uint64_t key) {
    OpContext op{*worker_, counts_};
    const std::string bytes = Big(key);
    std::string value;
    const bool found = Checked(worker_->Run(tree_.Get(op, bytes, &value)));
    return found ? std::optional(value) : std::nullopt;
  }
  std::vector<KeyValue> Scan(index::ScanRange range) {
    OpContext op{*worker_, counts_};
    std::vector<KeyValue> rows;
    const Status status = worker_->Run(tree_.Scan(op, range, &rows));
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }
  std::vector<KeyValue> ScanAll(index::ScanDirection direction) {
    return Scan({.start = "", .end = std::nullopt, .direction = direction});
  }
  dsm::Worker& worker() { return *worker_; }
  BlinkTree& tree() { return tree_; }
  dsm::FabricCounts& counts() { return counts_; }

 private:
  static bool Checked(Result<bool> result) {
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && *result;
  }
  BlinkTree& tree_;
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
};

void RunThreads(size_t count, const std::function<void(size_t)>& body) {
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

constexpr auto kForward = index::ScanDirection::kForward;
constexpr auto kReverse = index::ScanDirection::kReverse;

TEST(KnownFaultsTest, TornEntryIsNeverAnsweredAsNotFound) {
  constexpr uint64_t kKeys = 40;  // in one leaf of 1 KiB, which is always being written
  TreeMembers members({.geometry = Geometry::Fixed8()});
  Session loader(&members, 0);
  for (uint64_t key = 0; key < kKeys; ++key) loader.Put(key, TaggedValue(key, 0));
  std::atomic<int> readers_left{2};
  std::atomic<uint64_t> misses{0}, foreign{0}, writes{0};
  RunThreads(4, [&](size_t t) {
    Session session(&members, t % 2);
    Random random(t + 1);
    if (t < 2) {
      for (int i = 0; i < 30'000; ++i) {
        const uint64_t key = random.Below(kKeys);
        const auto value = session.Get(key);
        misses += !value;
        foreign += value && !IsTagged(*value, key);
      }
      --readers_left;
      return;
    }
    for (uint64_t round = 1; readers_left > 0; ++round, ++writes) {
      const uint64_t key = random.Below(kKeys);
      session.Put(key, TaggedValue(key, round));
    }
  });
  EXPECT_EQ(misses, 0u);
  EXPECT_EQ(foreign, 0u);
  EXPECT_GT(writes, 0u);
}

index::Task<void> InsertSome(dsm::Worker& worker, BlinkTree& tree, uint64_t client, uint64_t count,
                             std::atomic<uint64_t>& failures) {
  dsm::FabricCounts counts;
  for (uint64_t i = 0; i < count; ++i) {
    OpContext op{worker, counts};
    const std::string key = Big(i * 64 + client);
    auto inserted = co_await tree.Insert(op, key, key);
    if (!inserted.ok() || !*inserted) ++failures;
  }
}

void InsertConcurrentlyAndCheck(TreeMembers::Options options) {
  constexpr uint64_t kClients = 64, kThreads = 4, kEach = 6;
  TreeMembers members(options);
  std::atomic<uint64_t> failures{0};
  RunThreads(kThreads, [&](size_t t) {
    Session session(&members, t % 2);
    for (uint64_t client = t; client < kClients; client += kThreads) {
      session.worker().Spawn(InsertSome(session.worker(), session.tree(), client, kEach, failures));
    }
    session.worker().RunUntilIdle();
  });
  ASSERT_EQ(failures, 0u);
  for (size_t member = 0; member < 2; ++member) {
    Session session(&members, member);
    for (uint64_t key = 0; key < kClients * kEach; ++key) {
      ASSERT_EQ(session.Get(key), Big(key)) << key;
    }
    const auto rows = session.ScanAll(member == 0 ? kForward : kReverse);
    ASSERT_EQ(rows.size(), kClients * kEach);
  }
}

TEST(KnownFaultsTest, ManyInsertersIntoEmptyTreeLoseNothing) {
  for (uint64_t round = 1; round <= 40 && !::testing::Test::HasFatalFailure(); ++round) {
    SCOPED_TRACE(round);
    InsertConcurrentlyAndCheck({.region_bytes = 8 << 20});
  }
}

TEST(KnownFaultsTest, ManyInsertersIntoEmptyTreeLoseNothingWhenVerbsAreLate) {
  for (uint64_t round = 1; round <= 40 && !::testing::Test::HasFatalFailure(); ++round) {
    SCOPED_TRACE(round);
    InsertConcurrentlyAndCheck({.defer_seed = round, .region_bytes = 8 << 20});
  }
}

TEST(KnownFaultsTest, QuietTreeScansLoseNoRows) {
  TreeMembers members({.geometry = Geometry::Fixed8(256)});
  Session writer(&members, 0), reader(&members, 1);
  Random random(1);
  std::map<std::string, std::string> model;
  for (int phase = 0; phase < 8; ++phase) {
    // The reader's cache is filled, then the writer splits and merges behind its back.
    for (int i = 0; i < 800; ++i) {
      const uint64_t key = random.Below(5000);
      if (phase % 2 == 1) {
        EXPECT_EQ(writer.Delete(key), model.erase(Big(key)) > 0);
      } else {
        writer.Put(key, TaggedValue(key, 1));
        model[Big(key)] = TaggedValue(key, 1);
      }
    }
    for (int i = 0; i < 150; ++i) {
      const std::string start = Big(random.Below(5000)), end = Big(random.Below(5000));
      const index::ScanRange range{
          .start = start,
          .end = random.OneIn(3) ? std::nullopt : std::optional<std::string_view>(end),
          .limit = random.OneIn(2) ? UINT64_MAX : 1 + random.Below(120),
          .direction = random.OneIn(2) ? kForward : kReverse};
      std::vector<KeyValue> expected;
      for (auto it = model.lower_bound(start); it != model.end(); ++it) {
        if (!range.end || it->first < *range.end) expected.push_back({it->first, it->second});
      }
      if (range.direction == kReverse) std::reverse(expected.begin(), expected.end());
      if (expected.size() > range.limit) expected.resize(range.limit);
      ASSERT_TRUE((random.OneIn(2) ? writer : reader).Scan(range) == expected)
          << "phase " << phase << " scan " << i;
    }
  }
}

TEST(KnownFaultsTest, ScanOfTinyTreeIsComplete) {
  TreeMembers members({.geometry = Geometry::Fixed8(256)});
  Session a(&members, 0), b(&members, 1);
  for (uint64_t keys = 0; keys <= 150; ++keys) {
    for (Session* session : {&a, &b}) {
      for (auto direction : {kForward, kReverse}) {
        const auto rows = session->ScanAll(direction);
        ASSERT_EQ(rows.size(), keys);
        for (uint64_t i = 0; i < keys; ++i) {
          ASSERT_EQ(rows[i].key, Big(direction == kForward ? i : keys - 1 - i));
        }
      }
    }
    a.Insert(keys, TaggedValue(keys, 0));
  }
}

TEST(KnownFaultsTest, ScanDoesNotProbeIntegersBetweenBounds) {
  TreeMembers members({.geometry = Geometry::Fixed8()});
  Session session(&members, 0);
  constexpr uint64_t kKeys = 2000, kApart = uint64_t{1} << 40;
  for (uint64_t key = 0; key < kKeys; ++key) session.Insert(key * kApart, TaggedValue(key, 0));
  session.ScanAll(kForward);  // warms the cache
  for (auto direction : {kForward, kReverse}) {
    session.counts() = {};
    ASSERT_EQ(session.ScanAll(direction).size(), kKeys);
    // A leaf of 60 is at least half full but for the last: 67 leaves, each read once, and some again.
    EXPECT_LE(session.counts().reads, 2 * kKeys / 30);
  }
}

/// A bound on the 64 KiB chunks (256 pages) that two members need on two servers for at most 4000 live
/// keys: 600 live leaves in 3 to 4 chunks; in each member's free list 512 leaves a server, 8 chunks; a
/// chunk a member and server for internal nodes and a begun one for leaves, 8; and 4 for pages in their
/// grace period. Never freed, the pages of these tests would take 80 and more.
constexpr size_t kChunksMax = 24;

TEST(KnownFaultsTest, DeletedPagesAreFreedAndReused) {
  TreeMembers members({.geometry = Geometry::Fixed8(256), .region_bytes = 16 << 20});
  Session a(&members, 0), b(&members, 1);
  constexpr uint64_t kKeys = 4000;
  const int cycles = static_cast<int>(test::Amount{8, 60});
  for (int cycle = 0; cycle < cycles; ++cycle) {
    for (uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(a.Insert(key, TaggedValue(key, 0)));
    for (uint64_t key = 0; key < kKeys; ++key)
      ASSERT_TRUE(b.Delete(cycle % 2 ? key : kKeys - 1 - key));
    ASSERT_TRUE(a.ScanAll(kForward).empty());
    ASSERT_LE(members.ChunksInUse(), kChunksMax) << cycle;
  }
}

TEST(KnownFaultsTest, MovingWindowOfKeysUsesABoundedPool) {
  TreeMembers members({.geometry = Geometry::Fixed8(256), .region_bytes = 16 << 20});
  Session a(&members, 0), b(&members, 1);
  constexpr uint64_t kWindow = 1000;
  const uint64_t end = test::Amount{20'000, 150'000};
  for (uint64_t key = 0; key < end; ++key) {
    ASSERT_TRUE(a.Insert(key, TaggedValue(key, 0)));
    if (key >= kWindow) {
      ASSERT_TRUE((key % 3 ? a : b).Delete(key - kWindow));
    }
  }
  EXPECT_EQ(a.ScanAll(kForward).size(), kWindow);
  EXPECT_LE(members.ChunksInUse(), kChunksMax);
}

TEST(KnownFaultsTest, DeadClientsLockIsWaitedForInBoundedTimeAndItsOwnerNamed) {
  TreeMembers members({.geometry = Geometry::Fixed8(256), .tree = {.lock_wait_ms = 50}});
  Session session(&members, 0);
  session.Insert(1, TaggedValue(1, 0));
  // As compute server 77 would leave it that dies with the lock of the only leaf.
  const uint64_t root_word = LoadLittle<uint64_t>(members.servers().region_bytes(0).data() +
                                                  session.tree().info().root_word_offset());
  const index::RootWord root = index::RootWord::Decode(root_word);
  ASSERT_EQ(root.level, 0);
  const dsm::LockWord dead{dsm::LockWord::State::kLocked, 77, 1, 0, 5};
  StoreLittle(members.servers().region_bytes(root.address.server()).data() + root.address.offset() +
                  256 - 8,
              dead.Encode());
  OpContext op{session.worker(), session.counts()};
  const std::string key = Big(2);
  const auto inserted = session.worker().Run(session.tree().Insert(op, key, key));
  EXPECT_EQ(inserted.status().code(), StatusCode::kDeadlineExceeded) << inserted.status();
  EXPECT_NE(inserted.status().message().find("77"), std::string::npos) << inserted.status();
  // Readers do not wait for locks.
  EXPECT_EQ(session.Get(1), TaggedValue(1, 0));
}

TEST(KnownFaultsTest, MoreThreadsThanAnyConstantWork) {
  constexpr size_t kThreads = 200;
  constexpr uint64_t kEach = 10;
  TreeMembers members({.geometry = Geometry::Fixed8(256)});
  std::atomic<uint64_t> failures{0};
  RunThreads(kThreads, [&](size_t t) {
    Session session(&members, t % 2);
    for (uint64_t i = 0; i < kEach; ++i) {
      const uint64_t key = i * kThreads + t;
      failures += !session.Insert(key, TaggedValue(key, 0));
      failures += session.Get(key) != TaggedValue(key, 0);
    }
  });
  EXPECT_EQ(failures, 0u);
  Session session(&members, 0);
  EXPECT_EQ(session.ScanAll(kForward).size(), kThreads * kEach);
}

}  // namespace
}  // namespace farleaf::test
