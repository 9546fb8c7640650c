// The transport contract (dsm/transport.h), on every fabric.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "dsm/worker.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kA = 4096, kB = 8192, kBig = uint64_t{1} << 20;

class TransportContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  FabricUnderTest cluster{GetParam()};
  TestClient NewClient() { return TestClient(cluster.fabric(), cluster.clock()); }
  TestClient client = NewClient();

  template <typename Body>
  void OnThreads(int count, Body body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([this, t, &body] {
        TestClient mine = NewClient();
        body(mine, t);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_P(TransportContract, RegionsAreToldInAscendingOrder) {
  auto regions = cluster.fabric().regions();
  ASSERT_EQ(regions.size(), 2u);
  for (size_t i = 0; i < regions.size(); ++i) {
    EXPECT_EQ(regions[i].server, i);
    EXPECT_EQ(regions[i].region_bytes, FabricUnderTest::kRegionBytes);
    EXPECT_NE(regions[i].incarnation, 0u);
  }
}

TEST_P(TransportContract, WhatIsWrittenIsRead) {
  client.WriteWord(0, kA, 17);
  client.WriteWord(1, kA, 18);
  EXPECT_EQ(client.ReadWord(0, kA), 17u);
  EXPECT_EQ(client.ReadWord(1, kA), 18u);
  EXPECT_EQ(client.ReadWord(0, kB), 0u);
}

TEST_P(TransportContract, CompareAndSwapSwapsOnlyWhatItExpects) {
  EXPECT_EQ(client.CompareAndSwap(0, kA, 1, 2), 0u);
  EXPECT_EQ(client.ReadWord(0, kA), 0u);
  EXPECT_EQ(client.CompareAndSwap(0, kA, 0, 2), 0u);
  EXPECT_EQ(client.ReadWord(0, kA), 2u);
}

TEST_P(TransportContract, FetchAddTellsTheOldWord) {
  EXPECT_EQ(client.FetchAdd(0, kA, 5), 0u);
  EXPECT_EQ(client.FetchAdd(0, kA, UINT64_MAX), 5u);  // minus one
  EXPECT_EQ(client.ReadWord(0, kA), 4u);
}

// Rule 1: halves of a word never mix.
TEST_P(TransportContract, AnAlignedWordIsNeverTorn) {
  std::atomic<int> torn{0};
  OnThreads(4, [&](TestClient& mine, int t) {
    for (uint64_t i = 0; i < 500; ++i) {
      if (t < 2) {
        mine.WriteWord(0, kA, (i * 2 + static_cast<uint64_t>(t)) * 0x1'0000'0001);
      } else {
        const uint64_t word = mine.ReadWord(0, kA);
        torn += (word >> 32) != (word & 0xffffffff);
      }
    }
  });
  EXPECT_EQ(torn, 0);
}

// Rules 1 and 4: a large READ may mix two WRITEs, but only at boundaries of words.
TEST_P(TransportContract, AWordInsideALargeCopyIsNeverTorn) {
  std::atomic<int> torn{0};
  OnThreads(4, [&](TestClient& mine, int t) {
    std::vector<uint64_t> words(259);  // no multiple of a cache line, of a vector or of a page
    for (uint64_t i = 0; i < 500; ++i) {
      Batch batch(0);
      if (t < 2) {
        for (uint64_t j = 0; j < words.size(); ++j) {
          words[j] = ((i << 8 | j) & 0xffffffff) * 0x1'0000'0001;
        }
        batch.Write(kA + 8, std::as_bytes(std::span(words)));
      } else {
        batch.Read(kA + 8, std::as_writable_bytes(std::span(words)));
      }
      Status status = mine.Run(batch);
      EXPECT_TRUE(status.ok()) << status;
      for (const uint64_t word : words) torn += (word >> 32) != (word & 0xffffffff);
    }
  });
  EXPECT_EQ(torn, 0);
}

// Rule 1: every increment counts, whichever atomic made it.
TEST_P(TransportContract, CompareAndSwapAndFetchAddAreAtomicWithEachOther) {
  constexpr uint64_t kTimes = 200;
  OnThreads(4, [&](TestClient& mine, int t) {
    for (uint64_t i = 0; i < kTimes; ++i) {
      if (t % 2 == 0) {
        mine.FetchAdd(0, kA, 1);
        continue;
      }
      uint64_t seen = mine.ReadWord(0, kA);
      while (true) {
        const uint64_t old = mine.CompareAndSwap(0, kA, seen, seen + 1);
        if (old == seen) break;
        seen = old;
      }
    }
  });
  EXPECT_EQ(client.ReadWord(0, kA), 4 * kTimes);
}

// Rule 1: who holds a lock lets it go by ReplaceWord, whatever others try meanwhile.
TEST_P(TransportContract, AWordThatItsHolderReplacesStaysReplacedBesideSwapsThatFail) {
  constexpr uint64_t kTimes = 300;
  constexpr uint64_t kUnlocked = 0;
  std::atomic<int> holders{3};
  std::atomic<int> lost{0};
  OnThreads(4, [&](TestClient& mine, int t) {
    if (t == 3) {  // never gets it
      while (holders > 0) mine.CompareAndSwap(0, kA, UINT64_MAX, 1);
      return;
    }
    for (uint64_t i = 0; i < kTimes && lost == 0; ++i) {
      const uint64_t own = (i << 8) + static_cast<uint64_t>(t) + 1;
      while (mine.CompareAndSwap(0, kA, kUnlocked, own) != kUnlocked && lost == 0) {
      }
      Batch batch(0);
      batch.WriteWord(kB, &own);
      batch.ReplaceWord(kA, own, &kUnlocked);
      Status status = mine.Run(batch);
      EXPECT_TRUE(status.ok()) << status;
      lost += mine.ReadWord(0, kA) == own;
    }
    --holders;
  });
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(client.ReadWord(0, kA), kUnlocked);
}

// Rule 2, within a batch: whoever sees the flag sees the data that was written before it.
TEST_P(TransportContract, AFlagAnnouncesTheDataBeforeIt) {
  std::atomic<int> wrong{0};
  constexpr uint64_t kRounds = 300;
  OnThreads(2, [&](TestClient& mine, int t) {
    if (t == 0) {
      for (uint64_t round = 1; round <= kRounds; ++round) {
        std::vector<uint64_t> data(64, round);
        Batch batch(0);
        batch.Write(kB, std::as_bytes(std::span(data)));
        batch.WriteWord(kA, &round);
        Status status = mine.Run(batch);
        EXPECT_TRUE(status.ok()) << status;
      }
    } else {
      uint64_t flag = 0;
      while (flag < kRounds) {
        flag = mine.ReadWord(0, kA);
        std::vector<uint64_t> data(64);
        Batch batch(0);
        batch.Read(kB, std::as_writable_bytes(std::span(data)));
        Status status = mine.Run(batch);
        EXPECT_TRUE(status.ok()) << status;
        for (const uint64_t word : data) wrong += word < flag;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Rule 2: between batches of one transport to one server, without waiting in between. A READ sees what
// was written before it, and perhaps what was written behind it.
TEST_P(TransportContract, AReadSeesTheWritesOfEarlierBatches) {
  std::list<Batch> batches;
  std::vector<uint64_t> words(200), seen(200);
  RoundTripState state;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i + 1;
    client.Post((batches.emplace_back(0).WriteWord(kA, &words[i]), batches.back()), state);
    client.Post((batches.emplace_back(0).ReadWord(kA, &seen[i]), batches.back()), state);
  }
  client.Await(state);
  for (size_t i = 0; i < words.size(); ++i) EXPECT_GE(seen[i], words[i]);
  EXPECT_EQ(client.ReadWord(0, kA), words.back());
}

TEST_P(TransportContract, ALaterVerbSeesAnEarlierWriteOfItsBatch) {
  const uint64_t word = 7;
  for (uint64_t round = 0; round < 20; ++round) {
    uint64_t old = 0, seen = 0;
    Batch swap(0);
    swap.WriteWord(kA, &word);
    swap.CompareAndSwap(kA, 7, 8, &old);
    swap.ReadWord(kA, &seen);
    Status status = client.Run(swap);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(old, 7u);
    EXPECT_EQ(seen, 8u);
    Batch add(0);
    add.WriteWord(kA, &word);
    add.FetchAdd(kA, 2, &old);
    add.ReadWord(kA, &seen);
    status = client.Run(add);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(old, 7u);
    EXPECT_EQ(seen, 9u);
  }
}

TEST_P(TransportContract, AWriteBehindAReadIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  uint64_t word = 0;
  Batch read(0);
  read.ReadWord(kA, &word);
  EXPECT_DEATH(read.WriteWord(kA, &word), "not ordered");
  Batch swap(0);
  swap.CompareAndSwap(kA, 0, 1, &word);
  EXPECT_DEATH(swap.WriteWord(kA, &word), "not ordered");
}

// Whoever sends a long reply meets a full socket again and again, at any moment of its own.
TEST_P(TransportContract, EachOfManyLongReadsEnds) {
  const uint64_t reads = test::Amount{10, 60, 3'000};
  std::vector<std::byte> into(size_t{16} << 20);  // sockets hold less
  for (uint64_t i = 0; i < reads; ++i) {
    Batch batch(1);
    batch.Read(kBig, into);
    const Status read = client.Run(batch);
    ASSERT_TRUE(read.ok()) << i << ": " << read;
  }
}

TEST_P(TransportContract, BytesOfEverySizeRoundTrip) {
  Random random(42);
  for (const size_t bytes :
       {size_t{8}, size_t{64}, size_t{1024}, size_t{4096}, size_t{4104}, size_t{65536},
        size_t{262152}, size_t{1} << 20, (size_t{16} << 20) - 8, size_t{16} << 20}) {
    std::vector<uint64_t> sent(bytes / 8), received(bytes / 8);
    for (uint64_t& word : sent) word = random.Next();
    Batch write(1);
    write.Write(kBig, std::as_bytes(std::span(sent)));
    Status written = client.Run(write);
    ASSERT_TRUE(written.ok()) << written;
    Batch read(1);
    read.Read(kBig, std::as_writable_bytes(std::span(received)));
    Status status = client.Run(read);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(sent == received) << bytes;
  }
}

TEST_P(TransportContract, LargeAndSmallBatchesMix) {
  constexpr size_t kWords = (size_t{3} << 20) / 8;
  std::vector<std::vector<uint64_t>> sent, received;
  std::list<Batch> batches;
  RoundTripState state;
  for (uint64_t i = 0; i < 4; ++i) {
    sent.emplace_back(kWords, i * 3 + 1);
    received.emplace_back(kWords);
  }
  std::vector<uint64_t> old(40);
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t offset = kBig + i * (4 << 20);
    Batch& write = batches.emplace_back(0);
    write.Write(offset, std::as_bytes(std::span(sent[i])));
    write.FetchAdd(kA, 1, &old[i * 10]);
    write.Read(offset, std::as_writable_bytes(std::span(received[i])));
    client.Post(write, state);
    for (size_t j = 1; j < 10; ++j) {
      Batch& add = batches.emplace_back(0);
      add.FetchAdd(kA, 1, &old[i * 10 + j]);
      client.Post(add, state);
    }
  }
  client.Await(state);
  EXPECT_TRUE(sent == received);
  std::sort(old.begin(), old.end());  // nothing orders an atomic behind another
  for (size_t i = 0; i < old.size(); ++i) EXPECT_EQ(old[i], i);
}

TEST_P(TransportContract, BatchesToDifferentServersRunTogether) {
  std::list<Batch> batches;
  std::vector<uint64_t> old(400);
  RoundTripState state;
  for (size_t i = 0; i < old.size(); ++i) {
    batches.emplace_back(static_cast<ServerId>(i % 2)).FetchAdd(kA, 1, &old[i]);
    client.Post(batches.back(), state);
  }
  client.Await(state);
  std::sort(old.begin(), old.end());
  for (size_t i = 0; i < old.size(); ++i) EXPECT_EQ(old[i], i / 2);
}

TEST_P(TransportContract, ThousandsInFlightComplete) {
  constexpr size_t kBatches = 5'000;
  std::list<Batch> batches;
  std::vector<std::array<uint64_t, 16>> out(kBatches), in(kBatches);
  RoundTripState state;
  for (size_t i = 0; i < kBatches; ++i) {
    out[i].fill(i);
    Batch& batch = batches.emplace_back(static_cast<ServerId>(i % 2));
    batch.Write(kBig + i * 128, std::as_bytes(std::span(out[i])));
    batch.Read(kBig + i * 128, std::as_writable_bytes(std::span(in[i])));
    client.Post(batch, state);
  }
  client.Await(state);
  for (const Batch& batch : batches) ASSERT_TRUE(batch.status().ok()) << batch.status();
  EXPECT_TRUE(in == out);
}

TEST_P(TransportContract, OutOfBoundsIsRefusedWithoutEffect) {
  const uint64_t end = FabricUnderTest::kRegionBytes;
  uint64_t word = 99, old = 1234;
  for (const uint64_t offset : {end, end + 8, uint64_t{1} << 47, UINT64_MAX - 7}) {
    Batch write(1);
    write.WriteWord(offset, &word);
    EXPECT_EQ(client.Run(write).code(), StatusCode::kInvalidArgument) << offset;
    EXPECT_NE(write.status().message().find("memory server 1"), std::string::npos)
        << write.status();
    Batch swap(1);
    swap.CompareAndSwap(offset, 0, 1, &old);
    EXPECT_EQ(client.Run(swap).code(), StatusCode::kInvalidArgument) << offset;
  }
  std::vector<uint64_t> two(2, 99);
  Batch across(1);
  across.Write(end - 8, std::as_bytes(std::span(two)));
  EXPECT_EQ(client.Run(across).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client.ReadWord(1, end - 8), 0u);
  EXPECT_EQ(old, 1234u);
}

TEST_P(TransportContract, AnUnknownServerIsUnavailable) {
  for (const ServerId server : {ServerId{2}, ServerId{65535}}) {
    uint64_t word = 0;
    Batch batch(server);
    batch.ReadWord(0, &word);
    EXPECT_EQ(client.Run(batch).ToString(),
              "unavailable: memory server " + std::to_string(server) + " is not in this pool");
  }
}

TEST_P(TransportContract, AKilledServerIsNamedByEveryBatch) {
  std::list<Batch> batches;
  std::vector<uint64_t> words(1'000);
  RoundTripState state;
  client.WriteWord(1, kA, 5);
  for (uint64_t& word : words) {
    batches.emplace_back(1).ReadWord(kA, &word);
    client.Post(batches.back(), state);
  }
  cluster.KillServer(1);
  client.Await(state);
  for (const Batch& batch : batches) {  // some may have been answered before
    if (batch.status().ok()) continue;
    ASSERT_EQ(batch.status().code(), StatusCode::kUnavailable) << batch.status();
    ASSERT_TRUE(batch.status().message().starts_with("memory server 1 lost")) << batch.status();
  }
  // On shm the loss is noticed by another thread.
  const uint64_t deadline_ns = cluster.clock().NowNs() + TestClient::kDeadlineNs;
  Status status;
  while (status.ok() && cluster.clock().NowNs() < deadline_ns) {
    uint64_t word = 0;
    Batch batch(1);
    batch.ReadWord(kA, &word);
    status = client.Run(batch);
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("memory server 1 lost")) << status;
  client.WriteWord(0, kA, 6);  // the other one serves
  EXPECT_EQ(client.ReadWord(0, kA), 6u);
}

TEST_P(TransportContract, ATransportOpensBesideALostServer) {
  cluster.KillServer(1);
  TestClient late = NewClient();
  late.WriteWord(0, kA, 6);
  EXPECT_EQ(late.ReadWord(0, kA), 6u);
}

TEST_P(TransportContract, WaitEndsWhenTheWakeDescriptorIsReadable) {
  if (GetParam() == FabricKind::kSim) GTEST_SKIP() << "virtual time passes at once";
  std::atomic<bool> waiting{false};
  const uint64_t started_ns = cluster.clock().NowNs();
  std::thread waker([&] {
    while (!waiting) std::this_thread::yield();
    const uint64_t one = 1;
    EXPECT_EQ(::write(client.wake_fd(), &one, sizeof one), ssize_t{sizeof one});
  });
  waiting = true;
  client.transport().Wait(client.wake_fd(), 600 * kNsPerSecond);
  waker.join();
  EXPECT_LT(cluster.clock().NowNs() - started_ns, 600 * kNsPerSecond);
}

TEST_P(TransportContract, WaitEndsAtItsTimeout) {
  client.transport().Wait(client.wake_fd(), kNsPerMs);
}

// The counts are those of the batches, not of the fabric.
TEST_P(TransportContract, CountsAreExact) {
  EpochDomain epochs;
  Worker worker({std::move(*cluster.fabric().OpenTransport()), &epochs, &cluster.clock(), 1});
  FabricCounts counts;
  auto task = [](Worker& w, FabricCounts& c) -> Task<Status> {
    std::vector<std::byte> bytes(1024);
    uint64_t word = 3, old = 0;
    std::vector<Batch> batches;
    batches.emplace_back(ServerId{0});
    batches.emplace_back(ServerId{1});
    batches[0].Write(kA, bytes);
    batches[0].WriteWord(kB, &word);
    batches[1].CompareAndSwap(kA, 0, 1, &old);
    batches[1].Read(kB, bytes);
    Status first = co_await w.RoundTrip(std::span(batches), c);
    if (!first.ok()) co_return first;
    Batch add(0);
    add.FetchAdd(kB, 1, &old);
    Status second = co_await w.RoundTrip(add, c);
    EXPECT_EQ(old, 3u);
    co_return second;
  };
  Status status = worker.Run(task(worker, counts));
  EXPECT_TRUE(status.ok()) << status;
  const FabricCounts expected{.round_trips = 2,
                              .reads = 1,
                              .writes = 2,
                              .atomics = 2,
                              .bytes_read = 1024 + 16,
                              .bytes_written = 1032 + 16};
  EXPECT_EQ(counts, expected);
}

TEST_P(TransportContract, CoroutinesOfManyWorkersRunBesideEachOther) {
  constexpr int kWorkers = 3, kCoroutines = 32, kTimes = 30;
  OnThreads(kWorkers, [&](TestClient&, int) {
    EpochDomain epochs;
    Worker worker({std::move(*cluster.fabric().OpenTransport()), &epochs, &cluster.clock(), 1});
    FabricCounts counts;
    auto task = [](Worker& w, FabricCounts& c, ServerId server) -> Task<void> {
      for (int i = 0; i < kTimes; ++i) {
        uint64_t old = 0;
        Batch batch(server);
        batch.FetchAdd(kA, 1, &old);
        Status status = co_await w.RoundTrip(batch, c);
        EXPECT_TRUE(status.ok()) << status;
      }
    };
    for (int i = 0; i < kCoroutines; ++i) {
      worker.Spawn(task(worker, counts, static_cast<ServerId>(i % 2)));
    }
    worker.RunUntilIdle();
  });
  EXPECT_EQ(client.ReadWord(0, kA) + client.ReadWord(1, kA),
            uint64_t{kWorkers * kCoroutines * kTimes});
}

INSTANTIATE_TEST_SUITE_P(Fabrics, TransportContract, ::testing::ValuesIn(AllFabrics()),
                         [](const auto& kind) { return FabricKindName(kind.param); });

}  // namespace
}  // namespace farleaf::dsm
