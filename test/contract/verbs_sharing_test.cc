// Transports of one process that share queue pairs: everybody gets what is theirs, and nobody stalls.
#include <gtest/gtest.h>

#include <atomic>
#include <list>

#include "test/support/test_scale.h"
#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {
namespace {

using test::Amount;

/// Whoever is waiting for something that is there, and is not woken, sleeps so long.
constexpr uint64_t kStallNs = 20 * kNsPerSecond;

/// Never polls but when woken, as an idle worker.
class Sleeper {
 public:
  Sleeper(Fabric& fabric, const Clock& clock) : client_(fabric, clock), clock_(clock) {}

  Status Run(Batch& batch) {
    RoundTripState state;
    client_.Post(batch, state);
    while (!state.done()) {
      const uint64_t begin_ns = clock_.NowNs();
      client_.transport().Wait(client_.wake_fd(), kStallNs);
      stalls_ += clock_.NowNs() - begin_ns >= kStallNs;
      client_.transport().Poll();
    }
    return batch.status();
  }
  /// Leaves the bed as it is.
  void WaitOnce(uint64_t timeout_ns) { client_.transport().Wait(client_.wake_fd(), timeout_ns); }
  int stalls() const { return stalls_; }

 private:
  TestClient client_;
  const Clock& clock_;
  int stalls_ = 0;
};

struct VerbsSharingTest : VerbsTest, ::testing::WithParamInterface<uint32_t> {
  static VerbsOptions Shared(uint32_t queue_pairs_max) {
    VerbsOptions options = VerbsPool::Patient();
    options.queue_pairs_max = queue_pairs_max;
    return options;
  }
  /// One thread's work: its own page and everybody's counter. Returns what went wrong.
  static std::string Work(Sleeper& sleeper, uint64_t thread, uint64_t times) {
    constexpr uint64_t kCounter = 4096;
    const uint64_t own = 8192 + thread * 4096;
    std::vector<uint64_t> page(256), back(256);
    for (uint64_t i = 1; i <= times; ++i) {
      std::fill(page.begin(), page.end(), thread << 32 | i);
      uint64_t old = 0;
      Batch batch(static_cast<ServerId>(i % 2));
      batch.Write(own, std::as_bytes(std::span(page)));
      batch.FetchAdd(kCounter, 1, &old);
      batch.Read(own, std::as_writable_bytes(std::span(back)));
      if (Status status = sleeper.Run(batch); !status.ok()) return status.ToString();
      if (back != page) return "thread " + std::to_string(thread) + " read another's page";
    }
    return "";
  }
};

TEST_P(VerbsSharingTest, ManySleepersGetWhatIsTheirsAndNobodyStalls) {
  VerbsPool pool({.servers = 2});
  const auto fabric = pool.Connect(Shared(GetParam()));
  constexpr uint64_t kThreads = 12;
  const uint64_t times = Amount{50, 200, 2'000} * 2;
  std::atomic<int> stalls{0};
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Sleeper sleeper(*fabric, pool.clock());
      failures[t] = Work(sleeper, t, times);
      stalls += sleeper.stalls();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, std::vector<std::string>(kThreads));
  EXPECT_EQ(stalls, 0);
  EXPECT_EQ(pool.WordAt(4096, 0), kThreads * times / 2);
  EXPECT_EQ(pool.WordAt(4096, 1), kThreads * times / 2);
}

TEST_P(VerbsSharingTest, ConnectionsStayWithinTheLimit) {
  VerbsPool pool;
  const auto fabric = pool.Connect(Shared(GetParam()));
  std::list<Sleeper> sleepers;
  for (uint64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(Work(sleepers.emplace_back(*fabric, pool.clock()), i, 0), "");
  }
  EXPECT_TRUE(Eventually([&] { return pool.agent().connections() == GetParam(); }))
      << pool.agent().connections();
  sleepers.clear();
  EXPECT_TRUE(Eventually([&] { return pool.agent().connections() == 0; }))
      << pool.agent().connections();
}

// Who leaves takes no wake-up of others along, however it leaves.
TEST_P(VerbsSharingTest, TransportsComeAndGoWhileOthersSleep) {
  VerbsPool pool({.servers = 2});
  const auto fabric = pool.Connect(Shared(GetParam()));
  // As many as have queue pairs of their own: the rest shares.
  std::list<Sleeper> owners;
  for (uint32_t i = 1; i < GetParam(); ++i) owners.emplace_back(*fabric, pool.clock());
  std::atomic<bool> stop{false};
  std::atomic<int> stalls{0};
  std::vector<std::string> failures(3);
  std::vector<std::thread> stayers, comers;
  const uint64_t times = Amount{100, 400, 4'000} * 2;
  for (uint64_t t = 0; t < failures.size(); ++t) {
    stayers.emplace_back([&, t] {
      Sleeper sleeper(*fabric, pool.clock());
      failures[t] = Work(sleeper, t, times);
      stalls += sleeper.stalls();
    });
  }
  for (int t = 0; t < 3; ++t) {
    comers.emplace_back([&] {
      while (!stop) {
        Sleeper guest(*fabric, pool.clock());
        guest.WaitOnce(kNsPerMs);  // takes whatever event there is, and looks no further
      }
    });
  }
  for (std::thread& thread : stayers) thread.join();
  stop = true;
  for (std::thread& thread : comers) thread.join();
  EXPECT_EQ(failures, std::vector<std::string>(failures.size()));
  EXPECT_EQ(stalls, 0);
}

TEST_P(VerbsSharingTest, ABrokenConnectionEndsTheBatchesOfAll) {
  VerbsPool pool;
  const auto fabric = pool.Connect(Shared(GetParam()));
  constexpr uint64_t kThreads = 8;
  std::atomic<uint64_t> at_work{0};
  std::vector<Status> ends(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Sleeper sleeper(*fabric, pool.clock());
      uint64_t old = 0;
      for (bool first = true; ends[t].ok(); first = false) {
        Batch batch(0);
        batch.FetchAdd(4096, 1, &old);
        ends[t] = sleeper.Run(batch);
        at_work += first;
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return at_work == kThreads; }));
  pool.StopAgent(0);
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end;
    EXPECT_TRUE(end.message().starts_with("memory server 0")) << end;
  }
}

// A queue pair that was shared before this process had a name is nameless: no cut would reach it.
TEST_P(VerbsSharingTest, WhoeverIdentifiesItselfSharesNoOlderQueuePair) {
  VerbsPool pool;
  const auto fabric = pool.Connect(Shared(GetParam()));
  std::list<Sleeper> anonymous;
  for (uint32_t i = 0; i < GetParam(); ++i) anonymous.emplace_back(*fabric, pool.clock());
  Status known = fabric->Identify({5, 3});
  ASSERT_TRUE(known.ok()) << known;
  Sleeper named(*fabric, pool.clock());
  Status cut = pool.agent().CutOff({5, 3});
  ASSERT_TRUE(cut.ok()) << cut;
  uint64_t word = 1;
  Batch batch(0);
  batch.WriteWord(4096, &word);
  EXPECT_EQ(named.Run(batch).code(), StatusCode::kFenced) << batch.status();
  EXPECT_EQ(pool.WordAt(4096), 0u);
}

INSTANTIATE_TEST_SUITE_P(QueuePairs, VerbsSharingTest, ::testing::Values(1, 4),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace farleaf::dsm
