// Single cases of the tree's protocol that need an exact order of events: each is a fault that was
// there once, or a claim of index/blink/README.md that no statistics would refute.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test/support/interleaved_members.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

/// A member with a tree of its own, and the calls that a test makes of it; verbs complete at once.
class Caller {
 public:
  Caller(InterleavedMembers* run, const TreeInfo& info) : run_(run), member_(run->Join()) {
    member_.tree = std::make_unique<BlinkTree>(member_.pool.get(), info, TreeOptions{});
  }
  Caller(InterleavedMembers* run, Member* member) : run_(run), shared_(member) {}

  BlinkTree& tree() { return *member().tree; }
  dsm::Pool& pool() { return *member().pool; }
  void Put(std::string_view key, std::string_view value) {
    OpContext op{worker(), counts_};
    auto result = run_->RunOn(worker(), tree().Put(op, key, value));
    EXPECT_TRUE(result.ok()) << result.status();
  }
  void Delete(std::string_view key) {
    OpContext op{worker(), counts_};
    auto result = run_->RunOn(worker(), tree().Delete(op, key));
    EXPECT_TRUE(result.ok()) << result.status();
  }
  std::optional<std::string> Get(std::string_view key) {
    OpContext op{worker(), counts_};
    std::string value;
    auto found = run_->RunOn(worker(), tree().Get(op, key, &value));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && *found ? std::optional(value) : std::nullopt;
  }
  /// Whether the key is there; nullopt if that takes longer than a moment.
  std::optional<bool> SeesAtOnce(std::string_view key) {
    OpContext op{worker(), counts_, run_->clock().NowNs() + 100 * kNsPerUs};
    std::string value;
    auto found = run_->RunOn(worker(), tree().Get(op, key, &value));
    if (found.ok()) return *found;
    EXPECT_EQ(found.status().code(), StatusCode::kDeadlineExceeded) << found.status();
    return std::nullopt;
  }
  std::vector<KeyValue> Scan(ScanDirection direction) {
    OpContext op{worker(), counts_};
    std::vector<KeyValue> rows;
    ScanRange range;
    range.direction = direction;
    Status status = run_->RunOn(worker(), tree().Scan(op, range, &rows));
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }

 private:
  Member& member() { return shared_ ? *shared_ : member_; }
  dsm::Worker& worker() { return *member().workers[0]; }
  InterleavedMembers* run_;
  Member member_;
  Member* shared_ = nullptr;
  dsm::FabricCounts counts_;
};

Task<void> PutOn(BlinkTree* tree, dsm::Worker* worker, std::string key, std::string value) {
  dsm::FabricCounts counts;
  OpContext op{*worker, counts};
  auto result = co_await tree->Put(op, key, value);
  EXPECT_TRUE(result.ok()) << result.status();
}

/// One split that reuses the page of a leaf which a stale cache still names, stopped after `turns`
/// turns of its worker. Returns whether it had ended.
bool SplitIntoAReusedPage(uint32_t servers, uint64_t seed, int turns) {
  InterleavedMembers run({.seed = seed, .members = 0, .servers = servers});
  Caller writer(&run, &run.setup());
  // A leaf of 0 to 11, split by the insert of 12: the right leaf begins at 6.
  for (uint64_t i = 0; i <= 12; ++i) writer.Put(Fixed(i * 100), Fixed(i));
  Caller stale(&run, run.info());
  for (uint64_t i = 0; i <= 12; ++i) EXPECT_EQ(stale.Get(Fixed(i * 100)), Fixed(i));
  // They merge, the right page is free, and is taken again by the next split.
  for (uint64_t i = 1; i <= 12; ++i) writer.Delete(Fixed(i * 100));
  EXPECT_GT(writer.tree().stats().merges, 0u);
  for (uint64_t i = 1; i <= 11; ++i) writer.Put(Fixed(i * 100), Fixed(i));

  const std::string key = Fixed(1250);
  auto slow = run.NewSlowWorker(writer.pool());
  slow->GoOnline();
  slow->Spawn(PutOn(&writer.tree(), slow.get(), key, Fixed(7)));
  const auto turn = [&] {
    slow->RunOnce(dsm::Worker::Idle::kReturn);
    run.clock().AdvanceNs(500);
  };
  for (int i = 0; i < turns && slow->spawned() > 0; ++i) turn();
  const bool ended = slow->spawned() == 0;
  Caller fresh(&run, run.info());
  // A page whose WRITE stopped half-way gives no answer.
  const bool seen_before = stale.SeesAtOnce(key).value_or(false);
  const bool seen_after = fresh.SeesAtOnce(key).value_or(true);
  EXPECT_TRUE(seen_after || !seen_before) << "seen, and then not, after " << turns << " turns";
  EXPECT_TRUE(seen_after || !ended);
  while (slow->spawned() > 0) turn();
  slow->GoOffline();
  for (uint64_t i = 0; i <= 11; ++i) EXPECT_EQ(fresh.Get(Fixed(i * 100)), Fixed(i));
  EXPECT_EQ(fresh.Get(key), Fixed(7));
  return ended;
}

TEST(TreeProtocolTest, AStaleCacheSeesAnEntryOfASplitNoEarlierThanOthers) {
  for (uint64_t seed = 1; seed <= 20 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    int turns = 0;
    while (!SplitIntoAReusedPage(1 + seed % 2, seed, turns)) ++turns;
    EXPECT_GT(turns, 3);
  }
}

TEST(TreeProtocolTest, ALeafReusedByATreeOfAnotherLayoutIsLeftAlone) {
  const Geometry bytes{Layout::kBytes, 256, 256, 36, 24};
  InterleavedMembers run({.geometry = bytes, .members = 0, .servers = 1});
  Caller writer(&run, &run.setup());
  const auto key = [](uint64_t i) { return "key" + std::to_string(100 + i); };
  for (uint64_t i = 0; i < 60; ++i) writer.Put(key(i), "value");
  Caller reader(&run, run.info()), locker(&run, run.info());
  for (uint64_t i = 0; i < 60; ++i) {
    EXPECT_EQ(reader.Get(key(i)), "value");
    EXPECT_EQ(locker.Get(key(i)), "value");
  }
  for (uint64_t i = 0; i < 60; ++i) writer.Delete(key(i));
  EXPECT_GT(writer.tree().stats().merges, 0u);

  dsm::FabricCounts counts;
  OpContext op{*run.setup().workers[0], counts};
  auto info = run.RunSetup(CreateTree(op, *run.setup().pool, "numbers", Geometry::Fixed8(256)));
  ASSERT_TRUE(info.ok()) << info.status();
  BlinkTree numbers(run.setup().pool.get(), *info, TreeOptions{});
  for (uint64_t i = 0; i < 100; ++i) {
    auto put = run.RunSetup(numbers.Put(op, Fixed(i << 32), Fixed(i)));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(reader.Get(key(i)), std::nullopt);
  for (uint64_t i = 0; i < 60; ++i) locker.Put(key(i), "again");
  for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(reader.Get(key(i)), "again");
  for (uint64_t i = 0; i < 100; ++i) {
    std::string value;
    auto found = run.RunSetup(numbers.Get(op, Fixed(i << 32), &value));
    ASSERT_TRUE(found.ok() && *found) << i << " " << found.status();
    EXPECT_EQ(value, Fixed(i));
  }
}

TEST(TreeProtocolTest, ATreeWithoutRoomForItsSearchLayerStillServes) {
  InterleavedMembers run({.members = 0, .servers = 1, .region_bytes = uint64_t{2} << 20});
  Caller writer(&run, &run.setup());
  // Another tree takes all chunks that are left, and gives its leaves back.
  dsm::FabricCounts counts;
  OpContext op{*run.setup().workers[0], counts};
  auto info = run.RunSetup(CreateTree(op, *run.setup().pool, "greedy", Geometry::Fixed8(256)));
  ASSERT_TRUE(info.ok()) << info.status();
  BlinkTree greedy(run.setup().pool.get(), *info, TreeOptions{});
  uint64_t filled = 0;
  for (;; ++filled) {
    auto put = run.RunSetup(greedy.Put(op, Fixed(filled), Fixed(1)));
    if (!put.ok()) {
      ASSERT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
      break;
    }
  }
  for (uint64_t i = 0; i < filled; ++i) {
    auto erased = run.RunSetup(greedy.Delete(op, Fixed(i)));
    ASSERT_TRUE(erased.ok()) << erased.status();
  }
  constexpr uint64_t kKeys = 200;
  for (uint64_t i = 0; i < kKeys; ++i) writer.Put(Fixed(i * 7919 % kKeys), Fixed(i));
  EXPECT_GT(writer.tree().stats().separators_deferred, 0u);
  EXPECT_EQ(writer.tree().stats().roots_grown, 0u);
  Caller fresh(&run, run.info());
  for (uint64_t i = 0; i < kKeys; ++i) EXPECT_EQ(fresh.Get(Fixed(i * 7919 % kKeys)), Fixed(i));
  EXPECT_EQ(fresh.Scan(ScanDirection::kForward).size(), kKeys);
  EXPECT_EQ(fresh.Scan(ScanDirection::kReverse).size(), kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) writer.Delete(Fixed(i));
  EXPECT_TRUE(fresh.Scan(ScanDirection::kReverse).empty());
}

TEST(TreeProtocolTest, CachedSiblingsThatNameEachOtherAreNotFollowedForEver) {
  const Geometry geometry = Geometry::Fixed8(256);
  auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = 8 << 20});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  MonotonicClock clock;
  auto pool = dsm::Pool::Join(std::move(*fabric), {}, &clock);
  ASSERT_TRUE(pool.ok()) << pool.status();
  SearchCache cache(geometry, 1, (*pool)->layouts(), &(*pool)->epochs());
  const uint64_t chunk = (*pool)->layouts()[0].first_chunk;
  const GlobalAddress a(0, chunk + 4096), b(0, chunk + 8192), leaf(0, chunk + (1 << 20));
  // b is from the life before the page became a's right sibling.
  const auto install = [&](GlobalAddress at, std::optional<std::string> low, std::string high,
                           GlobalAddress right) {
    PageBuffer page;
    Node node(geometry, page.image(geometry, 1));
    Node::Header header{1, 1, std::nullopt, high, right};
    if (low) header.low = *low;
    node.Init(header);
    ASSERT_TRUE(node.InsertChild(0, node.low(), leaf));
    node.Seal(1);
    cache.Install(at, node.image());
  };
  install(a, Fixed(50), Fixed(90), b);
  install(b, std::nullopt, Fixed(50), a);
  cache.set_root({a, 1});
  CachedLeaves leaves;
  cache.LeavesBefore(std::nullopt, "", 10, &leaves);
  EXPECT_TRUE(leaves.empty());
}

}  // namespace
}  // namespace farleaf::index
