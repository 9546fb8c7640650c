// Who leads which round, and in which order rounds end. (lsm_mirror_test.cc: what a LogMirror makes of rounds that overtake one another or fail.)
#include "index/lsm/mirror_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/null_transport.h"
#include "test/support/test_scale.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;

struct MirrorRoundsTest : ::testing::Test {
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  MirrorRounds rounds;
  std::atomic<uint64_t> appended{0}, reached{0};
  std::atomic<int> leading{0}, on_their_way{0}, most{0};
  std::atomic<const Worker*> sends{nullptr};
  std::vector<uint64_t> ended;  // `planned` of rounds
  std::vector<uint64_t> gone_on;

  std::unique_ptr<Worker> NewWorker() {
    return std::make_unique<Worker>(
        Worker::Deps{std::make_unique<dsm::NullTransport>(), &epochs, &clock});
  }
  static LogPositions At(uint64_t position) { return {position, 0}; }
  MirrorRounds::Reached Has() {
    return [this](const LogPositions& want) { return want[0] <= reached.load(); };
  }

  /// Appends one, and waits until it is mirrored; who leads posts a round that takes `takes_ns`.
  Task<void> Put(Worker& worker, uint64_t takes_ns) {
    const uint64_t want = ++appended;
    MirrorRounds::Waiter waiter{At(want), &worker};
    co_await rounds.Take(&waiter);
    EXPECT_TRUE(waiter.leads || want <= reached.load());
    if (waiter.leads) co_await Lead(worker, takes_ns);
    EXPECT_LE(want, reached.load());
    gone_on.push_back(want);
  }
  Task<void> Lead(Worker& worker, uint64_t takes_ns) {
    EXPECT_EQ(leading.fetch_add(1), 0) << "two lead";
    const uint64_t planned = appended.load();
    const Worker* none = nullptr;
    EXPECT_TRUE(sends.compare_exchange_strong(none, &worker) || none == &worker)
        << "rounds of two workers are on their way";
    most = std::max(most.load(), ++on_their_way);
    MirrorRounds::Round round{&worker};
    leading.fetch_sub(1);
    rounds.Begun(&round, At(planned));
    co_await worker.Sleep(takes_ns);
    co_await rounds.Arrive(&round);
    EXPECT_LE(reached.load(), planned) << "a round has ended ahead of one that began earlier";
    reached = planned;
    ended.push_back(planned);
    if (--on_their_way == 0) sends = nullptr;
    rounds.EndRound(&round, Has());
  }
  Task<void> Alone(Worker& worker, uint64_t* saw_on_their_way) {
    MirrorRounds::Waiter waiter{std::nullopt, &worker};
    co_await rounds.Take(&waiter);
    EXPECT_TRUE(waiter.leads);
    EXPECT_EQ(leading.fetch_add(1), 0);
    *saw_on_their_way = on_their_way.load();
    co_await worker.Sleep(kNsPerMs);
    EXPECT_EQ(on_their_way.load(), 0);
    leading.fetch_sub(1);
    rounds.EndLead(Has());
  }
};

TEST_F(MirrorRoundsTest, ASecondRoundBeginsWhileTheFirstIsOnItsWayAndAThirdDoesNot) {
  const auto worker = NewWorker();
  for (int i = 0; i < 5; ++i) worker->Spawn(Put(*worker, kNsPerMs));
  // The first two led at once; what came behind them is in the third.
  EXPECT_EQ(on_their_way.load(), 2);
  worker->RunUntilIdle();
  EXPECT_EQ(most.load(), 2);
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2, 5}));
  EXPECT_EQ(gone_on.size(), 5u);
}

TEST_F(MirrorRoundsTest, OneThatArrivesFirstWaitsForThoseThatBeganBeforeIt) {
  const auto worker = NewWorker();
  worker->Spawn(Put(*worker, 20 * kNsPerMs));
  worker->Spawn(Put(*worker, 0));
  worker->RunUntilIdle();
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(gone_on, (std::vector<uint64_t>{1, 2}));
}

TEST_F(MirrorRoundsTest, WhoIsOfAnotherWorkerBeginsNoneUntilAllHaveEnded) {
  const auto one = NewWorker(), other = NewWorker();
  one->Spawn(Put(*one, kNsPerMs));
  other->Spawn(Put(*other, 0));
  EXPECT_EQ(on_their_way.load(), 1);
  one->RunUntilIdle();
  EXPECT_EQ(ended, (std::vector<uint64_t>{1}));
  other->RunUntilIdle();
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2}));
}

TEST_F(MirrorRoundsTest, WhoWantsToBeAloneWaitsForAllAndHoldsUpThoseBehindIt) {
  const auto worker = NewWorker();
  uint64_t saw = 99;
  worker->Spawn(Put(*worker, kNsPerMs));
  worker->Spawn(Alone(*worker, &saw));
  worker->Spawn(Put(*worker, 0));  // it would be the second on its way
  EXPECT_EQ(on_their_way.load(), 1);
  worker->RunUntilIdle();
  EXPECT_EQ(saw, 0u);
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2}));
}

// Lead, post, end: nobody is forgotten, whoever comes when, on whichever worker.
TEST_F(MirrorRoundsTest, ThreadsLeadOneAtATimeAndNobodyIsForgotten) {
  constexpr uint64_t kThreads = 3, kCoroutines = 8;
  const uint64_t each = test::Amount{50, 200, 5'000};
  std::atomic<uint64_t> done{0};
  std::atomic<bool> overlapped{false};
  const auto run = [&](Worker& worker, uint64_t number) -> Task<void> {
    for (uint64_t i = 0; i < each; ++i) {
      if (number == 0 && i % 16 == 0) {
        uint64_t saw = 99;
        co_await Alone(worker, &saw);
        EXPECT_EQ(saw, 0u);
        continue;
      }
      const uint64_t want = ++appended;
      MirrorRounds::Waiter waiter{At(want), &worker};
      co_await rounds.Take(&waiter);
      EXPECT_TRUE(waiter.leads || want <= reached.load());
      if (!waiter.leads) continue;
      EXPECT_EQ(leading.fetch_add(1), 0);
      const uint64_t planned = appended.load();
      const Worker* none = nullptr;
      EXPECT_TRUE(sends.compare_exchange_strong(none, &worker) || none == &worker)
          << "rounds of two workers are on their way";
      if (++on_their_way == 2) overlapped = true;
      MirrorRounds::Round round{&worker};
      leading.fetch_sub(1);
      rounds.Begun(&round, At(planned));
      co_await worker.Sleep(worker.random().Below(20) * kNsPerUs);
      co_await rounds.Arrive(&round);
      EXPECT_LE(reached.load(), planned);
      reached = planned;
      if (--on_their_way == 0) sends = nullptr;
      rounds.EndRound(&round, Has());
    }
    ++done;
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto worker = NewWorker();
      for (uint64_t j = 0; j < kCoroutines; ++j) worker->Spawn(run(*worker, j));
      worker->RunUntilIdle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), kThreads * kCoroutines);
  EXPECT_EQ(reached.load(), appended.load());
  EXPECT_TRUE(overlapped.load());
}

}  // namespace
}  // namespace farleaf::index::lsm
