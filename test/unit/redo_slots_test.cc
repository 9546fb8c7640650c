// RedoSlots: who waits for a slot, in which order, and what he keeps meanwhile (the turn for his page).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/local_lock.h"
#include "dsm/remote_lock.h"
#include "dsm/shm/local_fabric.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kNever = UINT64_MAX;
constexpr uint32_t kAlwaysFree = kLockClasses - 1;  // of class 0
constexpr std::atomic<bool> kKept = false;
constexpr uint64_t kPatience = RedoSlots::kPatienceNs;

struct RedoSlotsTest : ::testing::Test {
  ManualClock clock;
  EpochDomain epochs;
  std::unique_ptr<LocalFabric> fabric =
      std::move(*LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
  RedoSlots slots{{.id = 7, .incarnation = 1}, kAlwaysFree + 2};
  std::string log;

  std::unique_ptr<Worker> NewWorker(const Clock* of) {
    return std::make_unique<Worker>(
        Worker::Deps{std::move(*fabric->OpenTransport()), &epochs, of, 1});
  }
  std::unique_ptr<Worker> worker = NewWorker(&clock);

  /// Waits once; logs the name with "+" if it got a slot, and with "-" if not.
  Task<void> Wait(LockClass lock_class, std::string name, uint64_t* word = nullptr,
                  uint64_t give_up_ns = kNever, const std::atomic<bool>* lost = &kKept) {
    auto taken = co_await slots.TakeInTurn(*worker, lock_class, give_up_ns, *lost);
    log += name + (taken ? "+" : "-");
    if (taken && word != nullptr) *word = *taken;
  }
  /// What happens in so many ns, and has nothing further to wait for then.
  void RunFor(uint64_t ns) {
    worker->GoOnline();
    for (const uint64_t until = clock.NowNs() + ns;;) {
      while (worker->RunOnce(Worker::Idle::kReturn)) {
      }
      if (clock.NowNs() >= until) break;
      clock.AdvanceNs(std::min(until - clock.NowNs(), kNsPerUs));
    }
    worker->GoOffline();
  }
  /// Who has ended, in order of their names: who is resumed first is not told.
  std::string Ended() {
    std::vector<std::string> ends;
    for (size_t i = 0; i < log.size(); i += 2) ends.push_back(log.substr(i, 2));
    std::sort(ends.begin(), ends.end());
    std::string text;
    for (const std::string& end : ends) text += end;
    return text;
  }
  std::vector<uint64_t> TakeAll(LockClass lock_class = 0) {
    std::vector<uint64_t> words;
    while (auto word = slots.Take(lock_class)) words.push_back(*word);
    return words;
  }
};

TEST_F(RedoSlotsTest, WaitersAreServedByClassAndThenByArrival) {
  const auto words = TakeAll();
  ASSERT_EQ(words.size(), 2u);
  const auto high = TakeAll(kLockClasses - 1);
  ASSERT_EQ(high.size(), kAlwaysFree);
  uint64_t got[5] = {};
  worker->Spawn(Wait(0, "a", &got[0]));
  worker->Spawn(Wait(0, "b", &got[1]));
  worker->Spawn(Wait(9, "C", &got[2]));
  worker->Spawn(Wait(0, "d", &got[3]));
  worker->Spawn(Wait(9, "E", &got[4]));
  RunFor(20 * kNsPerUs);
  EXPECT_EQ(Ended(), "");
  for (const uint64_t word : high) slots.Give(word);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "C+E+") << "what is kept free of class 0 is free";
  slots.Give(words[0]);
  slots.Give(got[2]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "C+E+");
  slots.Give(got[4]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "C+E+a+");
  slots.Give(words[1]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "C+E+a+b+");
  slots.Give(got[0]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "C+E+a+b+d+");
}

TEST_F(RedoSlotsTest, SlotsThatComeFreeTogetherAreGivenAtOnce) {
  const auto words = TakeAll();
  worker->Spawn(Wait(0, "a"));
  worker->Spawn(Wait(0, "b"));
  for (const uint64_t word : words) slots.Give(word);
  EXPECT_FALSE(slots.Take(0)) << "they are a's and b's, who have not looked yet";
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "a+b+");
}

TEST_F(RedoSlotsTest, NobodyOfHisClassOvertakesWhoWaits) {
  const auto high = TakeAll(kLockClasses - 1);
  worker->Spawn(Wait(4, "a"));
  // Enough for class 5, not for 4.
  for (uint32_t i = 0; i < kAlwaysFree - 4; ++i) slots.Give(high[i]);
  EXPECT_FALSE(slots.Take(4));
  EXPECT_FALSE(slots.Take(3));
  const auto higher = slots.Take(5);
  ASSERT_TRUE(higher) << "who has locks already does not wait for who has fewer";
  slots.Give(*higher);
  slots.Give(high[kAlwaysFree]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "a+");
}

TEST_F(RedoSlotsTest, WhoseTimeIsUpGoesWhereverHeStands) {
  TakeAll();
  const uint64_t soon = clock.NowNs() + 100 * kNsPerUs;
  worker->Spawn(Wait(0, "a"));
  worker->Spawn(Wait(0, "b", nullptr, soon));
  worker->Spawn(Wait(0, "c"));
  worker->Spawn(Wait(0, "d", nullptr, soon));
  RunFor(RedoSlots::kPatienceNs - 10 * kNsPerUs);
  EXPECT_EQ(Ended(), "");
  RunFor(20 * kNsPerUs);
  EXPECT_EQ(Ended(), "a-b-d-") << "c is first now";
  RunFor(RedoSlots::kPatienceNs + 20 * kNsPerUs);
  EXPECT_EQ(Ended(), "a-b-c-d-");
}

TEST_F(RedoSlotsTest, TheFirstGoesWhenHisTimeIsUp) {
  TakeAll();
  worker->Spawn(Wait(0, "a", nullptr, clock.NowNs() + 100 * kNsPerUs));
  RunFor(98 * kNsPerUs);
  EXPECT_EQ(Ended(), "");
  RunFor(4 * kNsPerUs);
  EXPECT_EQ(Ended(), "a-");
}

TEST_F(RedoSlotsTest, WithAFirstWhoMayNotSeeToItOneOfClassZeroGoes) {
  TakeAll(kLockClasses - 1);
  worker->Spawn(Wait(0, "a"));
  worker->Spawn(Wait(0, "b"));
  worker->Spawn(Wait(7, "H"));
  RunFor(RedoSlots::kPatienceNs + 10 * kNsPerUs);
  EXPECT_EQ(Ended(), "H-a-");
  RunFor(RedoSlots::kPatienceNs + 10 * kNsPerUs);
  EXPECT_EQ(Ended(), "H-a-b-");
}

TEST_F(RedoSlotsTest, WhoHasLostHisTurnGoesAsSoonAsHeIsFirst) {
  const auto words = TakeAll();
  std::atomic<bool> lost = false;
  worker->Spawn(Wait(0, "a"));
  worker->Spawn(Wait(0, "b", nullptr, kNever, &lost));
  lost = true;
  RunFor(20 * kNsPerUs);
  EXPECT_EQ(Ended(), "");
  slots.Give(words[0]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "a+b-");
}

TEST_F(RedoSlotsTest, NoSlotIsGivenToWhoHasLostHisTurn) {
  const auto words = TakeAll();
  std::atomic<bool> lost = false;
  worker->Spawn(Wait(0, "a", nullptr, kNever, &lost));
  worker->Spawn(Wait(0, "b", nullptr, kNever, &lost));
  worker->Spawn(Wait(0, "c"));
  lost = true;
  slots.Give(words[0]);
  RunFor(2 * kNsPerUs);
  EXPECT_EQ(Ended(), "a-b-c+");
}

TEST_F(RedoSlotsTest, WhoseTimeIsUpGoesFromALineThatMoves) {
  auto words = TakeAll();
  const uint64_t soon = clock.NowNs() + kPatience / 2;
  for (const char* name : {"a", "b", "c"}) worker->Spawn(Wait(0, name));
  worker->Spawn(Wait(0, "d", nullptr, soon));
  worker->Spawn(Wait(0, "e"));
  RunFor(kPatience * 9 / 10);
  slots.Give(words[0]);
  RunFor(kPatience * 2 / 10);
  EXPECT_EQ(Ended(), "a+d-") << "b is first, and has patience";
  RunFor(4 * kPatience);
  EXPECT_EQ(Ended(), "a+b-c-d-e-");
}

/// Two slots go from thread to thread, and each waiter gets one as often as he asks, though the time of some is up now and then.
TEST_F(RedoSlotsTest, ThreadsShareSlotsAndNoWordIsUsedTwice) {
  constexpr int kThreads = 4, kWaiters = 8, kEach = 200;
  std::vector<std::vector<uint64_t>> words(kThreads);
  std::atomic<int> up = 0;
  const auto use = [](RedoSlots& s, Worker& w, bool hurries, std::atomic<int>* late,
                      std::vector<uint64_t>* used) -> Task<void> {
    for (int i = 0; i < kEach; ++i) {
      std::optional<uint64_t> word;
      while (!word) {
        const uint64_t until = hurries ? w.clock().NowNs() + w.random().Below(20'000) : kNever;
        word = co_await s.TakeInTurn(w, static_cast<LockClass>(i % 2), until, kKept);
        late->fetch_add(hurries && !word);
      }
      used->push_back(*word);
      co_await w.Sleep(1'000);
      s.Give(*word);
    }
  };
  const MonotonicClock real;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto own = NewWorker(&real);
      for (int i = 0; i < kWaiters; ++i) {
        own->Spawn(use(slots, *own, i % 2 == 0, &up, &words[static_cast<size_t>(t)]));
      }
      own->RunUntilIdle();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(up, 0);
  std::vector<uint64_t> all;
  for (const auto& some : words) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), size_t{kThreads} * kWaiters * kEach);
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

struct ParkedTurnTest : RedoSlotsTest {
  LocalLockTable locks;
  const GlobalAddress page{0, 64};
  LocalLockTable::Parked parked{3};

  Task<void> Acquire(LockClass lock_class, std::string name) {
    std::byte image[8] = {};
    [[maybe_unused]] auto turn = co_await locks.Acquire(*worker, page, lock_class, image);
    log += name;
    locks.Release(page);
  }
  Task<void> Keep(LockClass lock_class, std::string name) {
    std::byte image[8] = {};
    [[maybe_unused]] auto turn = co_await locks.Acquire(*worker, page, lock_class, image);
    log += name;
  }
};

TEST_F(ParkedTurnTest, ItIsKeptAgainstThoseOfItsClassAndLowerOnes) {
  ASSERT_TRUE(locks.TryAcquire(page, 3));
  ASSERT_TRUE(locks.Park(page, &parked));
  EXPECT_FALSE(locks.TryAcquire(page, 3));
  EXPECT_FALSE(locks.TryAcquire(page, 0));
  worker->Spawn(Acquire(3, "a"));
  worker->Spawn(Acquire(2, "b"));
  RunFor(10);
  EXPECT_EQ(log, "");
  EXPECT_TRUE(locks.Unpark(page, &parked));
  locks.Release(page);
  worker->RunUntilIdle();
  EXPECT_EQ(log, "ab");
}

TEST_F(ParkedTurnTest, AHigherClassTakesItAtOnce) {
  ASSERT_TRUE(locks.TryAcquire(page, 3));
  ASSERT_TRUE(locks.Park(page, &parked));
  worker->Spawn(Acquire(3, "behind"));
  EXPECT_TRUE(locks.TryAcquire(page, 4));
  EXPECT_TRUE(parked.lost);
  EXPECT_FALSE(locks.Unpark(page, &parked));
  EXPECT_FALSE(locks.TryAcquire(page, 5)) << "it is parked no more";
  LocalLockTable::Parked next{4};
  EXPECT_TRUE(locks.Park(page, &next));
  worker->Spawn(Acquire(5, "higher "));  // by waiting, as by trying
  EXPECT_EQ(log, "higher ");
  EXPECT_TRUE(next.lost);
  worker->RunUntilIdle();
  EXPECT_EQ(log, "higher behind") << "who took the turn passes it on";
}

TEST_F(ParkedTurnTest, ItIsNotKeptWhereAHigherClassWaitsAlready) {
  ASSERT_TRUE(locks.TryAcquire(page, 3));
  worker->Spawn(Acquire(4, "a"));
  worker->Spawn(Keep(3, "b"));
  worker->Spawn(Acquire(3, "c"));
  EXPECT_FALSE(locks.Park(page, &parked));
  EXPECT_FALSE(parked.lost) << "to be released";
  locks.Release(page);
  RunFor(10);
  EXPECT_EQ(log, "ab");
  EXPECT_TRUE(locks.Park(page, &parked))
      << "by b, behind whom nobody of a higher class waits any more";
  EXPECT_TRUE(locks.Unpark(page, &parked));
  locks.Release(page);
  worker->RunUntilIdle();
  EXPECT_EQ(log, "abc");
}

TEST_F(ParkedTurnTest, WhoIsRefusedBehindALowClassTakesAParkedTurnOfIt) {
  const auto take = [](LocalLockTable& l, Worker& w, GlobalAddress p,
                       std::string* ends) -> Task<void> {
    std::byte image[8] = {};
    auto turn = co_await l.Acquire(w, p, 6, image, nullptr, 6);
    *ends += turn.refused ? "refused " : "taken ";
  };
  ASSERT_TRUE(locks.TryAcquire(page, 3));
  worker->Spawn(take(locks, *worker, page, &log));
  ASSERT_TRUE(locks.Park(page, &parked));
  worker->Spawn(take(locks, *worker, page, &log));
  worker->Spawn(take(locks, *worker, page, &log));  // behind 6 he waits
  EXPECT_EQ(log, "refused taken ");
  locks.Release(page);
  worker->RunUntilIdle();
  EXPECT_EQ(log, "refused taken taken ");
  locks.Release(page);
}

}  // namespace
}  // namespace farleaf::dsm
