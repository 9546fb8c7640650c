// What the verbs fabric makes of batches: doorbells, pieces, tiny queues, and sleep.
#include <gtest/gtest.h>
#include <time.h>

#include <list>
#include <numeric>

#include "dsm/base/random.h"
#include "test/support/test_scale.h"
#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {
namespace {

using test::Amount;

QueuePairCounts CountsOf(TestClient& client) {
  const auto& transport = dynamic_cast<const VerbsTransport&>(client.transport());
  return transport.lane().Find(0)->counts();
}

struct VerbsQueueTest : VerbsTest {};

TEST_F(VerbsQueueTest, AnOrdinaryBatchIsOneDoorbellAndOneSignalledRequest) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  std::vector<uint64_t> page(128, 7);
  uint64_t word = 1, old = 0, seen = 0;
  const QueuePairCounts before = CountsOf(client);
  constexpr uint64_t kTimes = 50;
  for (uint64_t i = 0; i < kTimes; ++i) {
    // As a tree takes a lock and reads a page, and writes back and unlocks.
    Batch lock(0), unlock(0);
    lock.CompareAndSwap(4096, 0, 1, &old);
    lock.Read(8192, std::as_writable_bytes(std::span(page)));
    ASSERT_TRUE(client.Run(lock).ok()) << lock.status();
    unlock.Write(8192, std::as_bytes(std::span(page)));
    unlock.WriteWord(16384, &word);
    unlock.WriteWord(4096, &seen);
    ASSERT_TRUE(client.Run(unlock).ok()) << unlock.status();
    ASSERT_EQ(old, 0u);
  }
  const QueuePairCounts after = CountsOf(client);
  EXPECT_EQ(after.doorbells - before.doorbells, 2 * kTimes);
  EXPECT_EQ(after.signalled - before.signalled, 2 * kTimes);
  EXPECT_EQ(after.work_requests - before.work_requests, 5 * kTimes);
}

TEST_F(VerbsQueueTest, ABatchLargerThanTheQueueGoesInPieces) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  std::vector<uint64_t> words(Batch::kVerbsMax), back(Batch::kVerbsMax);
  Batch writes(0), reads(0);
  for (uint64_t i = 0; i < words.size(); ++i) {
    words[i] = i * 3 + 1;
    writes.WriteWord(4096 + i * 8, &words[i]);
    reads.ReadWord(4096 + i * 8, &back[i]);
  }
  const QueuePairCounts before = CountsOf(client);
  ASSERT_TRUE(client.Run(writes).ok()) << writes.status();
  ASSERT_TRUE(client.Run(reads).ok()) << reads.status();
  EXPECT_EQ(back, words);
  const QueuePairCounts after = CountsOf(client);
  const uint64_t depth = VerbsOptions().queue_depth, pieces = after.doorbells - before.doorbells;
  EXPECT_EQ(after.work_requests - before.work_requests, 2 * Batch::kVerbsMax);
  EXPECT_GE(pieces, 2 * Batch::kVerbsMax / depth);
  EXPECT_LE(pieces, 2 * Batch::kVerbsMax / (depth / 8)) << "pieces are not small";
  EXPECT_EQ(after.signalled - before.signalled, pieces);
}

TEST_F(VerbsQueueTest, APayloadLargerThanTheRingGoesInPieces) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  std::vector<uint64_t> words((8 << 20) / 8), back(words.size());
  for (uint64_t i = 0; i < words.size(); ++i) words[i] = Mix64(i);
  Batch write(0), read(0);
  write.Write(4096, std::as_bytes(std::span(words)));
  read.Read(4096, std::as_writable_bytes(std::span(back)));
  RoundTripState state;
  client.Post(write, state);
  client.Post(read, state);  // behind the pieces of the WRITE
  client.Await(state);
  ASSERT_TRUE(write.status().ok() && read.status().ok()) << write.status() << read.status();
  EXPECT_TRUE(back == words);
}

// What finds no room waits its turn: a later batch never overtakes.
TEST_F(VerbsQueueTest, BatchesBeyondTheRoomTakeEffectInOrder) {
  VerbsPool pool;
  VerbsOptions options = VerbsPool::Patient();
  options.queue_depth = 32;
  options.landing_bytes = 16 << 10;
  const auto fabric = pool.Connect(options);
  TestClient client(*fabric, pool.clock());
  constexpr uint64_t kBatches = 200;
  std::list<Batch> batches;
  std::vector<std::vector<uint64_t>> payloads;
  std::vector<uint64_t> seen(kBatches);
  RoundTripState state;
  for (uint64_t i = 0; i < kBatches; ++i) {
    payloads.emplace_back(1 + i * 37 % 2'000, i);  // 8 bytes to a whole ring
    Batch& batch = batches.emplace_back(ServerId{0});
    batch.Write(4096, std::as_bytes(std::span(payloads.back())));
    batch.ReadWord(4096, &seen[i]);
    client.Post(batch, state);
  }
  client.Await(state);
  for (const Batch& batch : batches) ASSERT_TRUE(batch.status().ok()) << batch.status();
  for (uint64_t i = 0; i < kBatches; ++i) ASSERT_EQ(seen[i], i);
}

// ---- queues of every size

struct QueueShape {
  const char* name;
  uint32_t queue_depth;
  uint64_t landing_bytes;
  uint32_t inline_bytes;
};

struct VerbsShapeTest : VerbsTest, ::testing::WithParamInterface<QueueShape> {};

/// Random batches, several in flight on areas of their own, against plain memory.
class ModelRun {
 public:
  static constexpr uint64_t kAreaBytes = 64 << 10, kBase = 4096;
  ModelRun(TestClient& client, uint64_t seed) : client_(client), random_(seed) {}

  /// Posts `count` batches, one to an area, and checks them all.
  void Round(uint64_t count) {
    std::list<Batch> batches;
    RoundTripState state;
    reads_.clear();
    olds_.clear();
    buffers_.clear();
    for (uint64_t area = 0; area < count; ++area) {
      Batch& batch = batches.emplace_back(ServerId{0});
      Fill(batch, area);
      client_.Post(batch, state);
    }
    client_.Await(state);
    for (const Batch& batch : batches) ASSERT_TRUE(batch.status().ok()) << batch.status();
    for (const Expected& each : reads_) {
      ASSERT_EQ(std::memcmp(each.got->data(), each.want.data(), each.want.size() * 8), 0);
    }
    for (const auto& [got, want] : olds_) ASSERT_EQ(*got, want);
  }
  void ExpectMemory(std::span<const std::byte> region) const {
    EXPECT_EQ(std::memcmp(region.data() + kBase, model_.data(), model_.size() * 8), 0);
  }

 private:
  static constexpr uint64_t kAreas = 8, kAreaWords = kAreaBytes / 8;
  struct Expected {
    std::vector<uint64_t>* got;
    std::vector<uint64_t> want;
  };
  std::vector<uint64_t>& NewBuffer(uint64_t words) {
    auto& buffer = buffers_.emplace_back(words);
    std::iota(buffer.begin(), buffer.end(), random_.Next());
    return buffer;
  }
  void Fill(Batch& batch, uint64_t area) {
    const uint64_t writes = random_.Below(12), others = writes == 0 ? 1 : random_.Below(12);
    for (uint64_t i = 0; i < writes + others; ++i) {
      const uint64_t words = random_.OneIn(4) ? 1 + random_.Below(2'048) : 1 + random_.Below(40);
      const uint64_t first = area * kAreaWords + random_.Below(kAreaWords - words);
      const uint64_t offset = kBase + first * 8;
      uint64_t* const model = model_.data() + first;
      if (i < writes) {
        auto& buffer = NewBuffer(words);
        std::copy(buffer.begin(), buffer.end(), model);
        batch.Write(offset, std::as_bytes(std::span(buffer)));
      } else if (i + 1 < writes + others && random_.OneIn(3)) {
        // An atomic; what is read behind it sees it.
        auto& old = NewBuffer(1);
        olds_.emplace_back(&old[0], *model);
        const uint64_t operand = random_.OneIn(2) ? *model : random_.Next();
        if (random_.OneIn(2)) {
          batch.FetchAdd(offset, operand, &old[0]);
          *model += operand;
        } else {
          batch.CompareAndSwap(offset, operand, i, &old[0]);
          if (*model == operand) *model = i;
        }
      } else {
        auto& buffer = NewBuffer(words);
        reads_.push_back({&buffer, {model, model + words}});
        batch.Read(offset, std::as_writable_bytes(std::span(buffer)));
        return;  // an atomic may overtake a READ, which would be no fault
      }
    }
  }

  TestClient& client_;
  Random random_;
  std::vector<uint64_t> model_ = std::vector<uint64_t>(kAreas * kAreaWords);
  std::list<std::vector<uint64_t>> buffers_;
  std::vector<Expected> reads_;
  std::vector<std::pair<const uint64_t*, uint64_t>> olds_;
};

TEST_P(VerbsShapeTest, RandomBatchesDoWhatMemoryDoes) {
  VerbsPool pool;
  VerbsOptions options = VerbsPool::Patient();
  options.queue_depth = GetParam().queue_depth;
  options.landing_bytes = GetParam().landing_bytes;
  options.inline_bytes = GetParam().inline_bytes;
  const auto fabric = pool.Connect(options);
  TestClient client(*fabric, pool.clock());
  const uint64_t seed = 20'241;
  SCOPED_TRACE(seed);
  ModelRun model(client, seed);
  for (uint64_t round = 0; round < Amount{15, 40, 400}; ++round) {
    model.Round(1 + round % 8);
    if (HasFatalFailure()) return;
  }
  model.ExpectMemory(pool.bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, VerbsShapeTest,
    ::testing::Values(QueueShape{"usual", 256, 256 << 10, 220}, QueueShape{"tiny", 16, 4096, 0},
                      QueueShape{"depth_one", 1, 4096, 220},
                      QueueShape{"deep_on_a_tiny_ring", 4096, 4096, 0},
                      QueueShape{"shallow_on_a_large_ring", 16, 1 << 20, 64},
                      QueueShape{"more_inline_than_a_device_has", 64, 64 << 10, 1 << 20}),
    [](const auto& shape) { return shape.param.name; });

// ---- sleep

uint64_t ThreadCpuNs() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

TEST_F(VerbsQueueTest, WaitSleepsWhileThereIsNothing) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  client.WriteWord(0, 4096, 1);
  const uint64_t begin_ns = pool.clock().NowNs(), cpu_ns = ThreadCpuNs();
  int waits = 0;
  for (; pool.clock().NowNs() - begin_ns < kNsPerSecond; ++waits) {
    client.transport().Wait(client.wake_fd(), kNsPerSecond);
    client.transport().Poll();
  }
  EXPECT_LE(waits, 5) << "Wait returned for nothing";
  EXPECT_LT(ThreadCpuNs() - cpu_ns, kNsPerSecond / 4) << "it did not sleep";
}

TEST_F(VerbsQueueTest, ACompletionWakesWhoeverSleeps) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  // A wake-up that is lost costs a whole timeout.
  constexpr uint64_t kTimeoutNs = 20 * kNsPerSecond;
  const uint64_t times = Amount{100, 500, 5'000};
  uint64_t waits = 0;
  for (uint64_t i = 0; i < times; ++i) {
    uint64_t word = 0;
    Batch batch(0);
    batch.ReadWord(4096, &word);
    RoundTripState state;
    client.Post(batch, state);
    const uint64_t begin_ns = pool.clock().NowNs();
    while (!state.done()) {
      client.transport().Wait(client.wake_fd(), kTimeoutNs);
      client.transport().Poll();
      ++waits;
    }
    ASSERT_LT(pool.clock().NowNs() - begin_ns, kTimeoutNs / 2) << "batch " << i;
  }
  EXPECT_LE(waits, times * 3) << "Wait returned for nothing";
}

}  // namespace
}  // namespace farleaf::dsm
