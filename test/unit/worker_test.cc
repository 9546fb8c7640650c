#include "dsm/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "dsm/base/clock.h"
#include "dsm/local_lock.h"
#include "dsm/shm/local_fabric.h"

namespace farleaf::dsm {
namespace {

struct WorkerTest : ::testing::Test {
  MonotonicClock clock;
  EpochDomain epochs;
  std::unique_ptr<LocalFabric> fabric =
      std::move(*LocalFabric::Create({.servers = 2, .region_bytes = 4 << 20}));
  std::unique_ptr<Worker> NewWorker() {
    return std::make_unique<Worker>(
        Worker::Deps{std::move(*fabric->OpenTransport()), &epochs, &clock, 1});
  }
};

Task<uint64_t> ReadBack(Worker& worker, FabricCounts& counts) {
  uint64_t word = 42, old = 0, seen = 0;
  Batch write(1);
  write.WriteWord(1 << 20, &word);
  Status written = co_await worker.RoundTrip(write, counts);
  EXPECT_TRUE(written.ok()) << written;
  Batch swap(1);
  swap.CompareAndSwap(1 << 20, 42, 43, &old);
  swap.ReadWord(1 << 20, &seen);
  Status swapped = co_await worker.RoundTrip(swap, counts);
  EXPECT_TRUE(swapped.ok()) << swapped;
  EXPECT_EQ(old, 42u);
  co_return seen;
}

Task<const void*> OwnFrame(Worker& /*worker*/) {
  const char here = 0;
  co_return static_cast<const void*>(&here);  // an address, to be compared
}

Task<bool> CallsTwice(Worker& worker) {
  const void* const first = co_await OwnFrame(worker);
  const void* const second = co_await OwnFrame(worker);
  co_return first == second;
}

TEST_F(WorkerTest, AFrameIsUsedAgainByTheNextCallOfItsSize) {
  if (!kFramesArePooled) GTEST_SKIP() << "sanitizers want every frame allocated";
  auto worker = NewWorker();
  EXPECT_TRUE(worker->Run(CallsTwice(*worker)));
}

TEST_F(WorkerTest, FramesThatNobodyUsesAreGivenBackAboveABound) {
  FramePool pool;
  constexpr size_t kBytes = 20'000;
  std::vector<void*> frames;
  for (size_t i = 0; i * kBytes < 2 * FramePool::kKeptBytesMax; ++i) {
    frames.push_back(FramePool::Allocate(kBytes, &pool));
  }
  for (void* frame : frames) FramePool::Free(frame);
  void* const last = FramePool::Allocate(kBytes, &pool);
  EXPECT_NE(last, nullptr);
  EXPECT_LE(pool.kept_bytes(), FramePool::kKeptBytesMax);
  EXPECT_GE(pool.kept_bytes(), FramePool::kKeptBytesMax / 2);
  FramePool::Free(last);
}

struct Parking {
  std::coroutine_handle<>* handle;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> parked) { *handle = parked; }
  void await_resume() const noexcept {}
};

TEST_F(WorkerTest, WhoYieldsGoesOnBehindAllThatCan) {
  auto worker = NewWorker();
  std::string order;
  std::coroutine_handle<> parked;
  const auto parks = [&]() -> Task<void> {
    co_await Parking{&parked};
    order += 'p';
  };
  const auto yields = [&](char name, bool resumes, bool again) -> Task<void> {
    co_await worker->Yield();  // all are ready in the next turn
    if (resumes) worker->ResumeSoon(parked);
    if (again) {
      EXPECT_TRUE(worker->others_are_ready());
      co_await worker->Yield();
    }
    order += name;
  };
  worker->Spawn(parks());
  worker->Spawn(yields('a', false, true));
  worker->Spawn(yields('b', false, false));
  worker->Spawn(yields('c', true, true));
  worker->RunUntilIdle();
  EXPECT_EQ(order, "bapc");
  EXPECT_FALSE(worker->others_are_ready());
}

TEST_F(WorkerTest, RoundTripsAreCountedExactly) {
  auto worker = NewWorker();
  FabricCounts counts;
  EXPECT_EQ(worker->Run(ReadBack(*worker, counts)), 43u);
  EXPECT_EQ(counts, (FabricCounts{2, 1, 1, 1, 16, 16}));
}

TEST_F(WorkerTest, LostServerIsNamed) {
  auto worker = NewWorker();
  fabric->KillServer(1);
  FabricCounts counts;
  auto task = [](Worker& w, FabricCounts& c) -> Task<Status> {
    uint64_t word = 0;
    Batch batch(1);
    batch.ReadWord(0, &word);
    Status status = co_await w.RoundTrip(batch, c);
    co_return status;
  };
  EXPECT_EQ(worker->Run(task(*worker, counts)).ToString(), "unavailable: memory server 1 lost");
}

TEST_F(WorkerTest, WriteBehindReadIsRefused) {
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(0, &word);
  EXPECT_DEATH(batch.WriteWord(8, &word), "not ordered");
}

Task<void> AddMany(LocalLockTable& locks, Worker& worker, GlobalAddress page, int times, int* sum) {
  std::byte image[8] = {};
  for (int i = 0; i < times; ++i) {
    auto turn = co_await locks.Acquire(worker, page, 0, image);
    *sum += 1;
    if (turn.lock_word == 0) turn.lock_word = 99;
    if (locks.ShouldHandOver(page, turn)) {
      locks.HandOver(page, turn, image);
    } else {
      locks.Release(page);
    }
  }
}

TEST_F(WorkerTest, LocalLockExcludesAcrossThreads) {
  LocalLockTable locks;
  int sum = 0;  // guarded by the lock under test
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto worker = NewWorker();
      for (int c = 0; c < 8; ++c) worker->Spawn(AddMany(locks, *worker, {0, 64}, 200, &sum));
      worker->RunUntilIdle();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 4 * 8 * 200);
}

struct AddOne : LocalLockTable::Work {
  int* sum = nullptr;
  int done = 0;
};

/// Adds with the help of whoever holds the turn, who serves every other one of those that it takes.
Task<void> AddTogether(LocalLockTable& locks, Worker& worker, GlobalAddress page, int times,
                       int* sum, std::atomic<int>* served) {
  std::byte image[8] = {};
  for (int i = 0; i < times; ++i) {
    AddOne mine;
    mine.sum = sum;
    auto turn = co_await locks.Acquire(worker, page, 0, image, &mine);
    if (turn.served) {
      served->fetch_add(1);
      EXPECT_EQ(mine.done, 1);
      continue;
    }
    EXPECT_EQ(mine.done, 0);
    *sum += 1;
    size_t seen = 0;
    locks.ForEachWork(page, 5, [&](LocalLockTable::Work&) { ++seen; });
    LocalLockTable::TakenWork taken, serve, leave;
    locks.TakeWork(page, 5, &taken);
    EXPECT_LE(seen, taken.size());
    for (size_t w = 0; w < taken.size(); ++w) (w % 2 == 0 ? serve : leave).push_back(taken[w]);
    for (auto* waiter : serve) {
      auto& work = static_cast<AddOne&>(LocalLockTable::WorkOf(waiter));
      *work.sum += 1;
      ++work.done;
    }
    co_await worker.Sleep(1);
    locks.PutBack(page, leave);
    LocalLockTable::Serve(serve);
    if (turn.lock_word == 0) turn.lock_word = 99;
    if (locks.ShouldHandOver(page, turn)) {
      locks.HandOver(page, turn, image);
    } else {
      locks.Release(page);
    }
  }
}

TEST_F(WorkerTest, TheHolderOfATurnDoesOthersWork) {
  LocalLockTable locks;
  int sum = 0;  // guarded by the lock under test
  std::atomic<int> served = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto worker = NewWorker();
      for (int c = 0; c < 8; ++c) {
        worker->Spawn(AddTogether(locks, *worker, {0, 64}, 200, &sum, &served));
      }
      worker->RunUntilIdle();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 4 * 8 * 200);
  EXPECT_GT(served.load(), 0);
}

TEST_F(WorkerTest, BehindTooLowAClassNobodyWaits) {
  LocalLockTable locks;
  const GlobalAddress page(0, 64);
  auto worker = NewWorker();
  const auto take = [](LocalLockTable& l, Worker& w, GlobalAddress p, LockClass c, LockClass min,
                       std::string* log) -> Task<void> {
    std::byte image[8] = {};
    auto turn = co_await l.Acquire(w, p, c, image, nullptr, min);
    *log += std::to_string(c) + (turn.refused ? "r" : " ");
  };
  std::string log;
  worker->Spawn(take(locks, *worker, page, 3, 3, &log));
  worker->Spawn(take(locks, *worker, page, 6, 6, &log));  // behind 3
  worker->Spawn(take(locks, *worker, page, 4, 3, &log));  // waits
  worker->Spawn(take(locks, *worker, page, 9, 0, &log));  // waits
  worker->Spawn(take(locks, *worker, page, 6, 6, &log));  // behind 9: waits
  EXPECT_EQ(log, "3 6r");
  for (int i = 0; i < 3; ++i) {
    locks.Release(page);
    worker->GoOnline();
    worker->RunOnce(Worker::Idle::kReturn);
    worker->GoOffline();
  }
  EXPECT_EQ(log, "3 6r4 9 6 ");
  worker->Spawn(take(locks, *worker, page, 9, 9, &log));  // the holder counts, where nobody waits
  EXPECT_EQ(log, "3 6r4 9 6 9r");
  locks.Release(page);
}

Task<void> WaitForTurn(LocalLockTable& locks, Worker& worker, GlobalAddress page, LockClass mine,
                       size_t image_bytes) {
  std::byte image[8] = {};
  [[maybe_unused]] auto turn =
      co_await locks.Acquire(worker, page, mine, std::span(image).first(image_bytes));
  locks.Release(page);
}

/// Whether a lock taken by an acquisition of class `taken`, with a page of 8 bytes, is handed to one of class
/// `waiting`, which expects so much of the page.
bool IsHandedOver(Worker& worker, LockClass taken, LockClass waiting, size_t expected_bytes = 8) {
  LocalLockTable locks;
  const GlobalAddress page(0, 64);
  auto holder = [](LocalLockTable& l, Worker& w, GlobalAddress p, LockClass c) -> Task<void> {
    std::byte image[8] = {};
    [[maybe_unused]] auto turn = co_await l.Acquire(w, p, c, image);
  };
  worker.Spawn(holder(locks, worker, page, taken));
  worker.Spawn(WaitForTurn(locks, worker, page, waiting, expected_bytes));
  const bool handed_over =
      locks.ShouldHandOver(page, {.lock_word = 99, .slot_class = taken, .image_bytes = 8});
  locks.Release(page);
  worker.RunUntilIdle();
  return handed_over;
}

TEST_F(WorkerTest, ALockIsNotHandedDownToALowerClass) {
  auto worker = NewWorker();
  EXPECT_TRUE(IsHandedOver(*worker, 0, 0));
  EXPECT_TRUE(IsHandedOver(*worker, 0, 1));
  EXPECT_FALSE(IsHandedOver(*worker, 1, 0)) << "its redo slot would count for a lower class";
}

TEST_F(WorkerTest, ALockIsNotHandedToWhoExpectsAnotherPage) {
  auto worker = NewWorker();
  EXPECT_FALSE(IsHandedOver(*worker, 0, 0, 0)) << "he reads what he needs of it";
  EXPECT_TRUE(IsHandedOver(*worker, 0, 0, 8));
}

TEST_F(WorkerTest, SleepEndsInOrder) {
  ManualClock time;  // no time passes between their beginnings
  Worker worker({std::move(*fabric->OpenTransport()), &epochs, &time, 1});
  std::vector<int> order;
  auto sleeper = [](Worker& w, std::vector<int>& out, int i) -> Task<void> {
    co_await w.Sleep(static_cast<uint64_t>(i) * kNsPerMs);
    out.push_back(i);
  };
  for (int i : {3, 1, 2}) worker.Spawn(sleeper(worker, order, i));
  time.AdvanceNs(3 * kNsPerMs);
  worker.RunUntilIdle();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

}  // namespace
}  // namespace farleaf::dsm
