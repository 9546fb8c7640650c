// Back-pressure: a backup whose disk takes nothing holds up who writes to its primary, once its log buffers are full;
// it stays a backup, and has all that was acknowledged.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "test/support/simulated_cluster.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::cluster {
namespace {

constexpr size_t kWriters = 8;
constexpr uint64_t kValueBytes = 32 << 10;   // kept apart: it is the value log that fills up
constexpr uint64_t kPauseNs = 5 * kNsPerMs;  // of a writer, between writes: 50 MiB a second of all

SimulatedCluster::Options TwoNodes(uint64_t seed) {
  SimulatedCluster::Options options{.seed = seed, .nodes = 2, .replicas = 2};
  options.min_in_sync = 2;
  options.store = test::TinyStore();
  options.store.durability = index::lsm::Durability::kReplicated;
  return options;
}

class SlowBackupTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  using Node = SimulatedCluster::Node;
  SlowBackupTest() : cluster_(TwoNodes(GetParam())) {}
  void SetUp() override {
    for (int i = 0; i < 2'000 && !cluster_.IsWhole(); ++i) cluster_.RunFor(20 * kNsPerMs);
    ASSERT_TRUE(cluster_.IsWhole()) << cluster_.Describe();
    cluster_.RunFor(100 * kNsPerMs);  // who is written to is in the view as well by then
    region_ = cluster_.map().front().id;
    primary_ = cluster_.PrimaryOf(region_);
    backup_ = &cluster_.node(primary_->id == 1 ? 2 : 1);
    for (size_t i = 0; i < kWriters; ++i) {
      dsm::Worker& worker = primary_->sim->background();
      worker.Spawn(Write(worker, *primary_));
    }
  }
  static std::string KeyOf(uint64_t i) { return "t1-" + std::to_string(i); }
  static std::string ValueOf(uint64_t i) {
    std::string value = std::to_string(i) + " ";
    value.resize(kValueBytes, 'v');
    return value;
  }
  dsm::Task<void> Write(dsm::Worker& worker, Node& on) {
    for (;;) {
      const StoreUse use = on.regions->Use(region_);
      if (use.served() == nullptr) co_return;
      const uint64_t i = begun_++;
      dsm::FabricCounts counts;
      index::OpContext op{worker, counts};
      const uint64_t begun_ns = cluster_.now_ns();
      Status put = co_await use.served()->store->BlindPut(op, KeyOf(i), ValueOf(i));
      longest_ns_ = std::max(longest_ns_, cluster_.now_ns() - begun_ns);
      EXPECT_TRUE(put.ok()) << put;
      if (put.ok()) acknowledged_.insert(i);
      co_await worker.Sleep(kPauseNs);
    }
  }
  dsm::Task<void> Read(dsm::Worker& worker, Node& on) {
    const StoreUse use = on.regions->Use(region_);
    for (const uint64_t i : acknowledged_) {
      dsm::FabricCounts counts;
      index::OpContext op{worker, counts};
      std::string value;
      auto found = co_await use.served()->store->Get(op, KeyOf(i), &value);
      EXPECT_TRUE(found.ok() && *found && value == ValueOf(i))
          << KeyOf(i) << ": " << found.status();
      if (HasFailure()) co_return;
      ++read_;
    }
  }
  /// So many writes are acknowledged meanwhile.
  uint64_t WrittenWithin(uint64_t ms) {
    const uint64_t before = acknowledged_.size();
    cluster_.RunFor(ms * kNsPerMs);
    return acknowledged_.size() - before;
  }
  uint64_t Excluded() {
    uint64_t excluded = 0;
    primary_->regions->ForEach([&excluded](const RegionNode& each) {
      if (each.primary()) excluded += each.primary()->replicas().counts().excluded;
    });
    return excluded;
  }
  index::storage::SimStorage& BackupDisk() {
    return backup_->sim->storage(static_cast<uint32_t>(region_));
  }

  SimulatedCluster cluster_;
  RegionId region_ = RegionId::kNone;
  Node *primary_ = nullptr, *backup_ = nullptr;
  uint64_t begun_ = 0, longest_ns_ = 0, read_ = 0;
  std::set<uint64_t> acknowledged_;
};
INSTANTIATE_TEST_SUITE_P(Seeds, SlowBackupTest, ::testing::Range<uint64_t>(1, 4));

TEST_P(SlowBackupTest, ItHoldsUpWritersOnceItsBuffersAreFullAndStaysABackup) {
  ASSERT_GT(WrittenWithin(300), 100u);
  BackupDisk().SetStuck(true);
  const uint64_t ahead = WrittenWithin(2'000);
  EXPECT_EQ(WrittenWithin(2'000), 0u) << "nobody waits for the backup";
  EXPECT_LE(ahead * kValueBytes,
            uint64_t{SimulatedCluster::kLogBuffers} * index::storage::kSegmentBytes);
  EXPECT_GT(ahead * kValueBytes, 2 * index::storage::kSegmentBytes) << "it takes none ahead";
  BackupDisk().SetStuck(false);
  EXPECT_GT(WrittenWithin(300), 100u);
  EXPECT_EQ(Excluded(), 0u);
  EXPECT_EQ(cluster_.BackupsOf(region_), 1u);
  EXPECT_GE(longest_ns_, 2'000 * kNsPerMs);

  // Whoever comes behind the primary has it all, though its disk was slow to the end.
  BackupDisk().SetSlowness(1'000);
  EXPECT_GT(WrittenWithin(1'000), 10u);
  EXPECT_EQ(Excluded(), 0u);
  cluster_.Crash(*primary_);
  for (int i = 0; i < 2'000 && cluster_.PrimaryOf(region_) != backup_; ++i) {
    cluster_.RunFor(20 * kNsPerMs);
  }
  ASSERT_EQ(cluster_.PrimaryOf(region_), backup_) << cluster_.Describe();
  BackupDisk().SetSlowness(1);
  dsm::Worker& worker = backup_->sim->background();
  worker.Spawn(Read(worker, *backup_));
  cluster_.RunFor(20 * kNsPerSecond);
  EXPECT_EQ(read_, acknowledged_.size());
}

}  // namespace
}  // namespace farleaf::server::cluster
