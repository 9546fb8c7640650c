#include "dsm/unresolved_locks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/shared_fabric.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kFirst = 1, kSecond = 2;  // workers
constexpr uint16_t kTree = 7, kOtherTree = 8;

GlobalAddress At(ServerId server, uint64_t offset) { return {server, offset}; }

TEST(UnresolvedLocksTest, ALockThatIsBoundIsForItsWorkerOnly) {
  UnresolvedLocks locks;
  locks.Add({.address = At(0, 4096), .word = 11, .tree = kTree, .worker = kFirst});
  EXPECT_TRUE(locks.Has(At(0, 4096), 11, kFirst));
  EXPECT_FALSE(locks.Has(At(0, 4096), 11, kSecond));
  EXPECT_TRUE(locks.IsBoundElsewhere(At(0, 4096), 11, kSecond));
  EXPECT_FALSE(locks.IsBoundElsewhere(At(0, 4096), 11, kFirst));
  EXPECT_EQ(locks.CountFor(kTree, kSecond), 0u);
  EXPECT_TRUE(locks.TakeDue(kTree, kSecond, 1).empty());
  EXPECT_EQ(locks.TakeDue(kTree, kFirst, 1).size(), 1u);
  EXPECT_EQ(locks.size(), 1u);
}

TEST(UnresolvedLocksTest, ALockThatIsNotBoundIsForAnyWorkerThatHasItsTree) {
  UnresolvedLocks locks;
  locks.Add({.address = At(0, 4096), .word = 11, .tree = kTree});
  for (const uint64_t worker : {kFirst, kSecond}) {
    EXPECT_TRUE(locks.Has(At(0, 4096), 11, worker));
    EXPECT_EQ(locks.CountFor(kTree, worker), 1u);
    EXPECT_EQ(locks.CountFor(kOtherTree, worker), 0u);
    EXPECT_EQ(locks.TreesFor(worker), std::set<uint16_t>{kTree});
  }
  EXPECT_TRUE(locks.TakeDue(kOtherTree, kFirst, 1).empty());
}

TEST(UnresolvedLocksTest, AWordIsALocksOnOneServerOnly) {
  UnresolvedLocks locks;
  locks.Add({.address = At(0, 4096), .word = 11, .tree = kTree});
  locks.Add({.address = At(1, 8192), .word = 11, .tree = kTree, .keeps_slot = true});
  EXPECT_EQ(locks.size(), 2u);
  EXPECT_FALSE(locks.Has(At(1, 4096), 11, kFirst));
  EXPECT_FALSE(locks.Remove(At(1, 4096), 11));
  const auto removed = locks.Remove(At(1, 8192), 11);
  ASSERT_TRUE(removed);
  EXPECT_TRUE(removed->keeps_slot);
  EXPECT_TRUE(locks.Has(At(0, 4096), 11, kFirst));
  EXPECT_EQ(locks.Describe(), "1 lock on memory server 0");
}

TEST(UnresolvedLocksTest, TurnsComeEverLessOftenUpToABound) {
  UnresolvedLocks locks;
  locks.Add({.address = At(0, 4096), .word = 11, .tree = kTree});
  uint64_t turns = 0, last_ns = 0, longest_ns = 0;
  for (uint64_t now_ns = kNsPerMs; turns < 20; now_ns += kNsPerMs) {
    if (locks.TakeDue(kTree, kFirst, now_ns).empty()) continue;
    longest_ns = std::max(longest_ns, now_ns - last_ns);
    last_ns = now_ns;
    ++turns;
  }
  EXPECT_EQ(longest_ns, UnresolvedLocks::kWaitNsMax);
}

TEST(UnresolvedLocksTest, WhatIsTooMuchToRememberStillCounts) {
  UnresolvedLocks locks;
  for (uint64_t i = 0; i < UnresolvedLocks::kLocksMax + 2; ++i) {
    locks.Add({.address = At(2, 4096 * (i + 1)), .word = 4 * i + 1, .tree = kTree});
  }
  EXPECT_EQ(locks.size(), UnresolvedLocks::kLocksMax + 2);
  for (uint64_t i = 0; i < UnresolvedLocks::kLocksMax; ++i) {
    ASSERT_TRUE(locks.Remove(At(2, 4096 * (i + 1)), 4 * i + 1));
  }
  EXPECT_EQ(locks.size(), 2u);
  EXPECT_FALSE(locks.empty());
}

TEST(UnresolvedLocksTest, AMemberDoesNotLeaveBeforeAllAreResolved) {
  MonotonicClock clock;
  auto servers = std::move(*LocalFabric::Create({.servers = 2,
                                                 .region_bytes = 1 << 20,
                                                 .chunk_bytes = kChunkBytesMin,
                                                 .hugepages = Hugepages::kNever}));
  auto pool =
      std::move(*Pool::Join(std::make_unique<SharedFabric>(servers.get()), PoolOptions(), &clock));
  const auto is_member = [&] {
    const std::byte* table = servers->region_bytes(kCatalogServer).data() + kMembersOffset;
    return MemberWord::Decode(LoadLittle<uint64_t>(table + 8 * pool->self().id)).live;
  };
  // Neither a redo slot nor a worker or tree that is still there is needed for it to count.
  pool->unresolved_locks().Add(
      {.address = At(1, 65536), .word = 5, .tree = kTree, .worker = 99, .keeps_slot = false});
  for (int time = 0; time < 2; ++time) {
    const Status refused = pool->Leave();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.message(),
              pool->self().ToString() +
                  " does not leave: 1 lock on memory server 1 may still be in its name, since "
                  "connections broke while they were taken or let go; others take them over when "
                  "its process has ended and its lease has run out, or after 'farleafctl cut-off " +
                  std::to_string(pool->self().id) + "'");
    EXPECT_TRUE(is_member());
  }
  ASSERT_TRUE(pool->unresolved_locks().Remove(At(1, 65536), 5));
  const Status left = pool->Leave();
  EXPECT_TRUE(left.ok()) << left;
  EXPECT_FALSE(is_member());
}

/// Completes each batch at once with the next of some outcomes.
class Scripted final : public Transport {
 public:
  explicit Scripted(std::deque<Status>* outcomes) : outcomes_(outcomes) {}
  void Post(Batch& batch) override {
    batch.CompleteWith(std::exchange(outcomes_->front(), Status::Ok()));
    outcomes_->pop_front();
  }
  size_t Poll() override { return 0; }
  void Wait(int, uint64_t) override {}

 private:
  std::deque<Status>* outcomes_;
};

struct DoubtTest : ::testing::Test {
  MonotonicClock clock;
  EpochDomain epochs;
  std::deque<Status> outcomes;
  Worker worker{Worker::Deps{std::make_unique<Scripted>(&outcomes), &epochs, &clock, 1}};
  FabricCounts counts;
  uint64_t words[2] = {};

  static Task<void> PostAll(Worker& worker, std::vector<Batch>& batches, FabricCounts& counts) {
    if (batches.size() == 1) {
      [[maybe_unused]] Status status = co_await worker.RoundTrip(batches[0], counts);
    } else {
      [[maybe_unused]] Status status = co_await worker.RoundTrip(batches, counts);
    }
  }
  /// A batch to each server, that ends so.
  void Post(std::vector<std::pair<ServerId, Status>> posted) {
    std::vector<Batch> batches;
    for (auto& [server, outcome] : posted) {
      batches.emplace_back(server);
      batches.back().ReadWord(0, &words[server]);
      outcomes.push_back(std::move(outcome));
    }
    worker.Run(PostAll(worker, batches, counts));
  }
};

TEST_F(DoubtTest, AWorkerIsInDoubtFromAnUnknownOutcomeToTheNextSuccessAtThatServer) {
  Post({{1, Status::Unavailable("restored")}});
  EXPECT_FALSE(worker.in_doubt()) << "nothing of it can land";
  Post({{1, Status::Unknown("no answer")}});
  EXPECT_TRUE(worker.in_doubt());
  Post({{1, Status::Unavailable("not connected")}});
  EXPECT_TRUE(worker.in_doubt()) << "it was not posted";
  Post({{0, Status::Ok()}});
  EXPECT_TRUE(worker.in_doubt()) << "another server";
  Post({{1, Status::Ok()}});
  EXPECT_FALSE(worker.in_doubt());
}

TEST_F(DoubtTest, ASuccessThatWaitedForOthersProvesNothing) {
  Post({{0, Status::Unknown("no answer")}, {1, Status::Unknown("no answer")}});
  EXPECT_TRUE(worker.in_doubt());
  Post({{0, Status::Ok()}, {1, Status::Ok()}});
  EXPECT_TRUE(worker.in_doubt());
  Post({{0, Status::Ok()}});
  Post({{1, Status::Ok()}});
  EXPECT_FALSE(worker.in_doubt());
}

}  // namespace
}  // namespace farleaf::dsm
