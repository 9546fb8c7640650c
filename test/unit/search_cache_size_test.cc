// What the search-layer cache takes: memory for a million keys, round trips when there is less, and bytes
// to keep it fresh while several compute servers load.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>

#include "dsm/base/random.h"
#include "index/blink/leaf_hints.h"
#include "index/blink/search_cache.h"
#include "test/support/interleaved_members.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

enum class Order { kRandom, kAscending };
const char* NameOf(Order order) { return order == Order::kRandom ? "random" : "ascending"; }

/// Key `i` of a load in that order: a number of the whole range, or of the sequence.
uint64_t KeyNumber(Order order, uint64_t i) { return order == Order::kRandom ? Mix64(i) : i; }

struct Loaded {
  Order order;
  LeafLayout leaves;
};
const char* NameOf(LeafLayout leaves) {
  return leaves == LeafLayout::kParted ? "Parted" : "Sorted";
}
void PrintTo(const Loaded& loaded, std::ostream* out) {
  *out << NameOf(loaded.order) << NameOf(loaded.leaves);
}

class CacheSizeTest : public testing::TestWithParam<Loaded> {};

TEST_P(CacheSizeTest, TwoMegabytesHoldAMillionKeys) {
  const uint64_t keys = test::Amount{.small = 50'000, .usual = 200'000, .large = 4'000'000};
  const auto [order, layout] = GetParam();
  LocalTree local({.geometry = Geometry::DefaultOf(Layout::kFixed8, layout),
                   .fabric = {.servers = 2, .region_bytes = uint64_t{16} << 20 | keys * 16 << 1}});
  for (uint64_t i = 0; i < keys; ++i) {
    ASSERT_TRUE(local.Insert(Fixed(KeyNumber(order, i)), Fixed(i)));
  }
  const SearchCache& cache = local.tree().cache();
  LeafHints hints(local.tree().info().geometry.leaf_bytes, local.pool().layouts());
  CachedLeaves leaves;
  dsm::EpochDomain::Participant reader(&local.pool().epochs());
  reader.GoOnline();
  cache.LeavesFrom(Fixed(0), std::nullopt, keys, &leaves);
  reader.GoOffline();
  for (const CachedLeaf& leaf : leaves) hints.Update(leaf.address, 0, 1);
  const uint64_t bytes = cache.bytes() + hints.bytes();
  std::printf(
      "%s, %s leaves: %lu keys, %zu leaves, %lu nodes; nodes and slots %lu, hints %lu: %.2f bytes "
      "a key\n",
      NameOf(order), NameOf(layout), keys, leaves.size(), cache.nodes(), cache.bytes(),
      hints.bytes(), static_cast<double>(bytes) / static_cast<double>(keys));
  EXPECT_LE(bytes, 2 * keys);
}
INSTANTIATE_TEST_SUITE_P(Orders, CacheSizeTest,
                         testing::Values(Loaded{Order::kRandom, LeafLayout::kSorted},
                                         Loaded{Order::kAscending, LeafLayout::kSorted},
                                         Loaded{Order::kRandom, LeafLayout::kParted},
                                         Loaded{Order::kAscending, LeafLayout::kParted}),
                         testing::PrintToStringParamName());

/// Gets of `view`, a compute server's view of the tree; the keys are numbered, and all are there.
class GetRun {
 public:
  GetRun(LocalTree* local, BlinkTree* view) : local_(local), view_(view) {}
  void Get(uint64_t number) {
    OpContext op{local_->worker(), counts_};
    std::string value;
    const auto found = local_->worker().Run(view_->Get(op, Fixed(Mix64(number)), &value));
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(*found) << number;
    ASSERT_EQ(value, Fixed(number));
    ++gets_;
  }
  double RoundTripsPerGet() const {
    return static_cast<double>(counts_.round_trips) / static_cast<double>(gets_);
  }
  void Restart() { counts_ = {}, gets_ = 0; }

 private:
  LocalTree* local_;
  BlinkTree* view_;
  dsm::FabricCounts counts_;
  uint64_t gets_ = 0;
};

/// 0 for the most wanted of n, after the paper that YCSB takes it from (theta 0.99), near enough.
uint64_t Zipfian(Random& random, uint64_t n) {
  const double u = static_cast<double>(random.Below(uint64_t{1} << 53)) * 0x1p-53;
  return static_cast<uint64_t>(std::pow(static_cast<double>(n), u)) - 1;
}

struct Level1 {
  uint64_t nodes = 0;
  uint64_t bytes = 0;  ///< that the cache takes less without them
};

/// What of `view`, which has cached everything, is evictable.
Level1 CountLevel1(LocalTree& local, const BlinkTree& view, uint64_t keys) {
  std::set<uint64_t> nodes;
  dsm::EpochDomain::Participant reader(&local.pool().epochs());
  reader.GoOnline();
  for (uint64_t i = 0; i < keys; ++i) {
    nodes.insert(view.cache().Find(Fixed(Mix64(i)), Side::kAt, 1).node.word());
  }
  reader.GoOffline();
  // With the smallest budget one of them is left when everything was installed.
  BlinkTree least(&local.pool(), local.tree().info(), {.cache_bytes = 1});
  dsm::FabricCounts counts;
  OpContext op{local.worker(), counts};
  for (uint64_t i = 0; i < keys; i += 7) {
    std::string value;
    EXPECT_TRUE(*local.worker().Run(least.Get(op, Fixed(Mix64(i)), &value)));
  }
  EXPECT_EQ(least.cache().nodes(), view.cache().nodes() - nodes.size() + 1);
  const uint64_t one = (view.cache().bytes() - least.cache().bytes()) / (nodes.size() - 1);
  return {nodes.size(), view.cache().bytes() - least.cache().bytes() + one};
}

struct Cached {
  const char* name;
  Geometry geometry;
  uint64_t
      keys;  ///< so many that a tenth of what all nodes take has room for six or more above the leaves
  uint64_t region_bytes;
};
void PrintTo(const Cached& cached, std::ostream* out) { *out << cached.name; }
class CacheBudgetTest : public testing::TestWithParam<Cached> {};

TEST_P(CacheBudgetTest, RoundTripsGrowAsArithmeticSays) {
  constexpr uint64_t kGets = 40'000, kSeed = 3;
  const uint64_t keys = GetParam().keys;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  LocalTree local({.geometry = GetParam().geometry,
                   .fabric = {.servers = 2,
                              .region_bytes = GetParam().region_bytes,
                              .chunk_bytes = dsm::kChunkBytesMin}});
  for (uint64_t i = 0; i < keys; ++i) ASSERT_TRUE(local.Insert(Fixed(Mix64(i)), Fixed(i)));
  BlinkTree whole(&local.pool(), local.tree().info(), {});
  dsm::FabricCounts counts;
  OpContext op{local.worker(), counts};
  ASSERT_TRUE(local.worker().Run(whole.WarmCache(op)).ok());
  const uint64_t full_bytes = whole.cache().bytes();
  const Level1 all = CountLevel1(local, whole, keys);
  for (const uint64_t percent : {100, 50, 25, 10}) {
    const uint64_t budget = full_bytes * percent / 100 + (percent == 100);
    BlinkTree view(&local.pool(), local.tree().info(), {.cache_bytes = budget});
    ASSERT_TRUE(local.worker().Run(view.WarmCache(op)).ok());
    EXPECT_LE(view.cache().bytes(), budget);
    GetRun run(&local, &view);
    Random random(kSeed + percent);
    for (uint64_t i = 0; i < kGets; ++i) {  // until what is above level 1 is there
      ASSERT_NO_FATAL_FAILURE(run.Get(random.Below(keys)));
    }
    run.Restart();
    for (uint64_t i = 0; i < kGets; ++i) ASSERT_NO_FATAL_FAILURE(run.Get(random.Below(keys)));
    const double uniform = run.RoundTripsPerGet();
    for (uint64_t i = 0; i < kGets; ++i) ASSERT_NO_FATAL_FAILURE(run.Get(Zipfian(random, keys)));
    run.Restart();
    for (uint64_t i = 0; i < kGets; ++i) ASSERT_NO_FATAL_FAILURE(run.Get(Zipfian(random, keys)));
    const double zipfian = run.RoundTripsPerGet();
    // What the budget leaves for level 1 is the share of gets that need no second round trip.
    const double fixed = static_cast<double>(full_bytes - all.bytes);
    const double share = std::clamp(
        (static_cast<double>(budget) - fixed) / static_cast<double>(all.bytes), 0.0, 1.0);
    // Of zipfian gets the k most wanted of n keys get ln k / ln n, nearly; no two of them in one node, at
    // worst. The others are as uniform ones. The clock is not clairvoyant: three quarters of that.
    const double kept = std::max(1.0, share * static_cast<double>(all.nodes));
    const double hot = std::log(kept) / std::log(static_cast<double>(keys));
    const double zipfian_hits = hot + (1 - hot) * share;
    std::printf(
        "%lu%% of %lu bytes: room for %.1f%% of level 1; round trips: uniform %.3f (%.3f by "
        "arithmetic), zipfian %.3f (%.3f); %lu evictions\n",
        percent, full_bytes, 100 * share, uniform, 2 - share, zipfian, 2 - zipfian_hits,
        view.cache().evictions());
    EXPECT_LE(view.cache().bytes(), budget);
    EXPECT_NEAR(uniform, 2 - share, 0.04);
    EXPECT_LE(zipfian, 2 - 0.75 * zipfian_hits);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Leaves, CacheBudgetTest,
    testing::Values(Cached{"sorted", Geometry::Fixed8(1024), 450'000, uint64_t{9} << 20},
                    Cached{"parted", Geometry::Parted(), 2'200'000, uint64_t{56} << 20}),
    [](const auto& each) { return each.param.name; });

/// A load of several compute servers at once, on one thread in random order.
struct Load {
  const char* name;
  Order order;
  size_t members;
  Geometry geometry = Geometry::Fixed8();
};
void PrintTo(const Load& load, std::ostream* out) { *out << load.name; }

struct LoadRun {
  uint64_t next = 0;
  uint64_t keys = 0;
  Order order = Order::kRandom;
  dsm::FabricCounts counts;
};

Task<void> InsertAll(LoadRun* run, BlinkTree* tree, dsm::Worker* worker) {
  while (run->next < run->keys) {
    const uint64_t number = KeyNumber(run->order, run->next++);
    dsm::FabricCounts counts;
    OpContext op{*worker, counts};
    auto inserted = co_await tree->Insert(op, Fixed(number), Fixed(number));
    EXPECT_TRUE(inserted.ok() && *inserted) << inserted.status();
    run->counts += counts;
  }
}

class RefreshTrafficTest : public testing::TestWithParam<Load> {};

/// Of the load's bytes, in percent, those that keep the caches fresh.
double RefreshShare(const Load& load, LearnSplits learn_splits = LearnSplits::kOn) {
  constexpr uint64_t kSeed = 11, kCoroutines = 2;
  LoadRun run{.keys = test::Amount{.small = 20'000, .usual = 60'000, .large = 1'000'000},
              .order = load.order};
  InterleavedMembers members({.seed = kSeed,
                              .geometry = load.geometry,
                              .tree = {.learn_splits = learn_splits},
                              .members = load.members,
                              .region_bytes = uint64_t{32} << 20 | run.keys * 32});
  for (Member& member : members.members()) {
    for (auto& worker : member.workers) {
      for (uint64_t i = 0; i < kCoroutines; ++i) {
        worker->Spawn(InsertAll(&run, member.tree.get(), worker.get()));
      }
    }
  }
  members.RunAll();
  const uint64_t bytes = run.counts.bytes_read + run.counts.bytes_written;
  const auto share = [&](uint64_t part) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(bytes);
  };
  uint64_t descents = 0, paths = 0, hops = 0, caches = 0, refreshes = 0, path_count = 0;
  for (Member& member : members.members()) {
    const TreeStats& stats = member.tree->stats();
    descents += stats.descent_bytes, paths += stats.path_refresh_bytes;
    hops += stats.hop_refresh_bytes, caches += stats.cache_refresh_bytes;
    refreshes += stats.cache_refreshes, path_count += stats.path_refreshes;
  }
  std::printf(
      "%s, %s: %lu keys, %.3f round trips and %.0f bytes an insert; percent of them: descents "
      "%.2f, "
      "path refreshes %.2f "
      "(%lu), beside "
      "hops %.2f, cache refreshes %.2f (%lu)\n",
      load.name, learn_splits == LearnSplits::kOn ? "learns splits" : "does not", run.keys,
      static_cast<double>(run.counts.round_trips) / static_cast<double>(run.keys),
      static_cast<double>(bytes) / static_cast<double>(run.keys), share(descents), share(paths),
      path_count, share(hops), share(caches), refreshes);
  return share(descents + paths + hops + caches);
}

TEST_P(RefreshTrafficTest, TakesASmallShareOfALoadsBytes) {
  EXPECT_LE(RefreshShare(GetParam()), 5.0);
}

TEST_P(RefreshTrafficTest, IsLessForParentsThatLearn) {
  EXPECT_LE(RefreshShare(GetParam()), RefreshShare(GetParam(), LearnSplits::kOff));
}

INSTANTIATE_TEST_SUITE_P(
    Loads, RefreshTrafficTest,
    testing::Values(Load{"Random2", Order::kRandom, 2}, Load{"Random4", Order::kRandom, 4},
                    Load{"Random8", Order::kRandom, 8}, Load{"Random16", Order::kRandom, 16},
                    Load{"Random16LargeNodes", Order::kRandom, 16, Geometry::Fixed8(1024, 4096)},
                    Load{"Parted4", Order::kRandom, 4, Geometry::Parted()},
                    Load{"Parted16", Order::kRandom, 16, Geometry::Parted()},
                    Load{"PartedAscending8", Order::kAscending, 8, Geometry::Parted()},
                    Load{"Ascending2", Order::kAscending, 2},
                    Load{"Ascending4", Order::kAscending, 4},
                    Load{"Ascending8", Order::kAscending, 8}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace farleaf::index
