#include "index/lsm/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/null_transport.h"

namespace farleaf::index::lsm {
namespace {

using NumberTurns = Turns<uint64_t>;

struct LsmTurnsTest : ::testing::Test {
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  NumberTurns turns;
  std::atomic<uint64_t> reached{0};
  std::vector<uint64_t> order;  // of those who have gone on

  std::unique_ptr<dsm::Worker> NewWorker() {
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::make_unique<dsm::NullTransport>(), &epochs, &clock});
  }
  bool Has(uint64_t want) const { return want <= reached.load(); }

  struct Outcome {
    bool led = false;
    Status status;
  };
  /// Who leads sees all who wait, and reaches `reach`, or fails.
  dsm::Task<void> Want(dsm::Worker& worker, uint64_t want, uint64_t reach, Status round,
                       Outcome* outcome) {
    NumberTurns::Waiter waiter{want, &worker};
    co_await turns.Take(&waiter);
    outcome->led = waiter.leads;
    outcome->status = waiter.status;
    if (waiter.leads && !Has(want)) {
      co_await worker.Sleep(kNsPerMs);
      turns.ForEachWaiting([](NumberTurns::Waiter& each) { each.seen = true; });
      co_await worker.Sleep(kNsPerMs);
      if (round.ok()) reached = reach;
      outcome->status = round;
    }
    if (waiter.leads) turns.End([this](uint64_t each) { return Has(each); }, round);
    order.push_back(want);
  }
};

TEST_F(LsmTurnsTest, AllWhoHaveWhatTheyWantGoOnAndTheFirstOfTheOthersLeads) {
  const auto worker = NewWorker();
  std::vector<Outcome> outcomes(6);
  for (uint64_t want = 1; want <= 6; ++want) {
    worker->Spawn(Want(*worker, want, want < 5 ? 4 : 6, Status::Ok(), &outcomes[want - 1]));
  }
  worker->RunUntilIdle();
  for (uint64_t want = 1; want <= 6; ++want) {
    EXPECT_EQ(outcomes[want - 1].led, want == 1 || want == 5) << want;
    EXPECT_TRUE(outcomes[want - 1].status.ok());
  }
  EXPECT_EQ(order.size(), 6u);
}

TEST_F(LsmTurnsTest, ARoundThatFailsEndsThoseThatItHasSeenAndNoOther) {
  const auto worker = NewWorker();
  std::vector<Outcome> outcomes(4);
  const Status failure = Status::IoError("full");
  for (uint64_t i = 0; i < 3; ++i) worker->Spawn(Want(*worker, i + 1, 9, failure, &outcomes[i]));
  const auto later = [&]() -> dsm::Task<void> {
    co_await worker->Sleep(3 * kNsPerMs / 2);  // behind the look
    co_await Want(*worker, 4, 9, Status::Ok(), &outcomes[3]);
  };
  worker->Spawn(later());
  worker->RunUntilIdle();
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes[i].led, i == 0);
    EXPECT_EQ(outcomes[i].status.code(), failure.code());
  }
  EXPECT_TRUE(outcomes[3].led);
  EXPECT_TRUE(outcomes[3].status.ok());
  EXPECT_EQ(reached.load(), 9u);
}

// Each takes a number, and leads until it is reached: nobody is forgotten, and nobody leads beside another one.
TEST_F(LsmTurnsTest, ThreadsTakeTurns) {
  constexpr uint64_t kThreads = 4, kCoroutines = 8, kEach = 200;
  std::atomic<uint64_t> taken{0}, rounds{0};
  std::atomic<int> leading{0};
  const auto run = [&](dsm::Worker& worker) -> dsm::Task<void> {
    for (uint64_t i = 0; i < kEach; ++i) {
      const uint64_t want = ++taken;
      NumberTurns::Waiter waiter{want, &worker};
      co_await turns.Take(&waiter);
      EXPECT_TRUE(waiter.leads || Has(want));
      if (!waiter.leads) continue;
      EXPECT_EQ(leading.fetch_add(1), 0);
      if (!Has(want)) {
        const uint64_t upto = taken.load();
        co_await worker.Sleep(0);
        reached = upto;
        ++rounds;
      }
      leading.fetch_sub(1);
      turns.End([&](uint64_t each) { return Has(each); }, Status::Ok());
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto worker = NewWorker();
      for (uint64_t j = 0; j < kCoroutines; ++j) worker->Spawn(run(*worker));
      worker->RunUntilIdle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reached.load(), kThreads * kCoroutines * kEach);
  EXPECT_LT(rounds.load(), reached.load());  // some were for more than one
}

}  // namespace
}  // namespace farleaf::index::lsm
