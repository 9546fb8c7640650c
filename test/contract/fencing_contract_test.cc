// Fencing (Fabric::CutOff), on every fabric that can cut a compute server off without killing the
// test: whoever was cut off changes nothing any more, and nobody else notices. What is special to shm
// is tested with processes (test/fault/process_fencing_test.cc).
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "dsm/base/log.h"
#include "dsm/pool.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kA = 4096, kB = uint64_t{1} << 20;
constexpr uint64_t kWaitNs = 60 * kNsPerSecond;

class FencingContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  FabricUnderTest cluster{GetParam()};

  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::warn); }  // or a line a cut
  static void TearDownTestSuite() { spdlog::set_level(spdlog::level::info); }

  std::unique_ptr<Fabric> NewMember(MemberIdentity member) {
    auto fabric = cluster.Connect();
    Status known = fabric->Identify(member);
    EXPECT_TRUE(known.ok()) << known;
    return fabric;
  }
  TestClient NewClient(Fabric& fabric) { return TestClient(fabric, cluster.clock()); }
  /// An anonymous process, as farleafctl is one.
  void CutOff(ServerId server, MemberIdentity member) {
    Status status = cluster.fabric().CutOff(server, member);
    EXPECT_TRUE(status.ok()) << status;
  }
  static Status TryWrite(TestClient& client, ServerId server, uint64_t word = 1) {
    Batch batch(server);
    batch.WriteWord(kA, &word);
    return client.Run(batch);
  }
  static std::string RefusalOf(ServerId server, MemberIdentity member) {
    return "fenced: " + member.ToString() + " was cut off by memory server " +
           std::to_string(server) + "; it has to join the pool again, with a new incarnation";
  }
};

TEST_P(FencingContract, WhoeverIsCutOffFailsWithFencedAndNobodyElseDoes) {
  auto cut = NewMember({5, 3}), other = NewMember({6, 3});
  TestClient cut_client = NewClient(*cut), other_client = NewClient(*other);
  TestClient anonymous = NewClient(cluster.fabric());
  cut_client.WriteWord(0, kA, 1);
  cut_client.WriteWord(1, kA, 1);
  CutOff(0, {5, 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(TryWrite(cut_client, 0, 2).ToString(), RefusalOf(0, {5, 3}));
  }
  TestClient opened_later = NewClient(*cut);
  EXPECT_EQ(TryWrite(opened_later, 0, 2).ToString(), RefusalOf(0, {5, 3}));
  EXPECT_EQ(anonymous.ReadWord(0, kA), 1u);
  // Another memory server has cut nobody off.
  cut_client.WriteWord(1, kA, 2);
  opened_later.WriteWord(1, kA, 3);
  other_client.WriteWord(0, kA, 4);
  EXPECT_EQ(anonymous.ReadWord(0, kA), 4u);
  EXPECT_EQ(anonymous.ReadWord(1, kA), 3u);
}

TEST_P(FencingContract, OlderIncarnationsAreCutOffTooAndNewerOnesAreNot) {
  auto oldest = NewMember({5, 1}), cut = NewMember({5, 3}), newer = NewMember({5, 4});
  TestClient oldest_client = NewClient(*oldest), newer_client = NewClient(*newer);
  oldest_client.WriteWord(0, kA, 1);
  CutOff(0, {5, 3});
  EXPECT_EQ(TryWrite(oldest_client, 0).code(), StatusCode::kFenced);
  EXPECT_TRUE(TryWrite(newer_client, 0).ok());
  CutOff(0, {5, 2});  // which was done already, and undoes nothing
  TestClient cut_client = NewClient(*cut);
  EXPECT_EQ(TryWrite(cut_client, 0).code(), StatusCode::kFenced);
  EXPECT_TRUE(TryWrite(newer_client, 0).ok());
  auto newest = NewMember({5, 9});
  TestClient newest_client = NewClient(*newest);
  EXPECT_TRUE(TryWrite(newest_client, 0).ok());
}

// What one-sided readers learn without asking.
TEST_P(FencingContract, TheFenceWordNamesWhoIsCutOffUntilASuccessorIsLetIn) {
  TestClient observer = NewClient(cluster.fabric());
  const auto fence_word = [&](ServerId server) {
    return observer.ReadWord(server, FenceWordOffset(5));
  };
  auto cut = NewMember({5, 3});
  TestClient client = NewClient(*cut);
  client.WriteWord(0, kA, 1);
  EXPECT_EQ(fence_word(0), 0u);
  CutOff(0, {5, 3});
  EXPECT_EQ(fence_word(0), 3u);
  EXPECT_EQ(fence_word(1), 0u) << "it has cut nobody off";
  CutOff(0, {5, 2});
  EXPECT_FALSE(TryWrite(client, 0).ok());
  EXPECT_EQ(fence_word(0), 3u);
  auto successor = NewMember({5, 4});
  TestClient successor_client = NewClient(*successor);
  successor_client.WriteWord(0, kA, 2);
  EXPECT_EQ(fence_word(0), 0u);
  CutOff(0, {5, 4});
  EXPECT_EQ(fence_word(0), 4u);
}

TEST_P(FencingContract, WhoeverWasNeverThereIsRefusedLater) {
  CutOff(0, {77, 12});
  CutOff(0, {77, 12});
  auto late = NewMember({77, 12});
  TestClient client = NewClient(*late);
  EXPECT_EQ(TryWrite(client, 0).ToString(), RefusalOf(0, {77, 12}));
  EXPECT_TRUE(TryWrite(client, 1).ok());
}

TEST_P(FencingContract, WhoeverIsCutOffCutsNobodyOff) {
  auto cut = NewMember({5, 3}), other = NewMember({6, 3});
  TestClient client = NewClient(*other);
  CutOff(0, {5, 3});
  EXPECT_EQ(cut->CutOff(0, {6, 3}).ToString(), RefusalOf(0, {5, 3}));
  EXPECT_TRUE(TryWrite(client, 0).ok());
}

TEST_P(FencingContract, ACutThatMakesNoSenseIsRefused) {
  Fabric& fabric = cluster.fabric();
  EXPECT_EQ(fabric.CutOff(0, {0, 1}).ToString(),
            "invalid argument: memory server 0 cannot cut off compute server 0: ids are 1 to 4095");
  EXPECT_EQ(fabric.CutOff(1, {4096, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fabric.CutOff(9, {5, 1}).ToString(),
            "unavailable: memory server 9 is not in this pool");
  cluster.KillServer(1);
  Status lost = fabric.CutOff(1, {5, 1});
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable) << lost;
  EXPECT_TRUE(lost.message().starts_with("memory server 1 lost")) << lost;
}

/// A thread that posts without end, whatever becomes of it: to every one of `kBatches` in flight a
/// WRITE of 64 words of its own and a FETCH-ADD on a word that all share.
class Hammer {
 public:
  static constexpr size_t kBatches = 8, kWords = 8192;

  Hammer(Fabric& fabric, const Clock& clock, uint64_t own_offset)
      : client_(fabric, clock), own_offset_(own_offset), thread_([this] { Run(); }) {}
  ~Hammer() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t done() const { return done_; }
  uint64_t fenced() const { return fenced_; }
  /// Failures other than with Fenced.
  uint64_t failed_otherwise() const { return failed_otherwise_; }
  /// Batches that were done although they were posted when others had ended with Fenced.
  uint64_t done_after_a_fence() const { return done_after_a_fence_; }

 private:
  struct Posted {
    Batch batch{0};
    RoundTripState state;
    std::vector<uint64_t> words;
    uint64_t old = 0;
  };

  void Run() {
    std::deque<Posted> posted(kBatches);
    for (uint64_t number = 1; !stop_; ++number) {
      const bool posted_after_a_fence = fenced_ > 0;
      for (Posted& one : posted) {
        one.batch.Clear();
        one.state = RoundTripState();
        one.words.assign(kWords, number);
        one.batch.Write(own_offset_, std::as_bytes(std::span(one.words)));
        one.batch.FetchAdd(kA, 1, &one.old);
        client_.Post(one.batch, one.state);
      }
      for (Posted& one : posted) {
        client_.Await(one.state);
        Count(one.batch.status(), posted_after_a_fence);
      }
    }
  }
  void Count(const Status& status, bool posted_after_a_fence) {
    const bool is_fenced = status.code() == StatusCode::kFenced;
    done_ += status.ok();
    fenced_ += is_fenced;
    failed_otherwise_ += !status.ok() && !is_fenced;
    done_after_a_fence_ += status.ok() && posted_after_a_fence;
  }

  TestClient client_;
  const uint64_t own_offset_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> done_{0}, fenced_{0}, failed_otherwise_{0}, done_after_a_fence_{0};
  std::thread thread_;
};

template <typename Condition>
bool WaitUntil(const Clock& clock, const Condition& condition) {
  const uint64_t end_ns = clock.NowNs() + kWaitNs;
  for (bool holds = condition();; holds = condition()) {
    if (holds || clock.NowNs() >= end_ns) return holds;
    std::this_thread::yield();
  }
}

// The promise that recovery stands on.
TEST_P(FencingContract, NothingLandsAfterTheCutWhateverIsInFlight) {
  constexpr size_t kHammers = 3;
  const uint64_t rounds = test::Amount{3, 8, 40};
  TestClient observer = NewClient(cluster.fabric());
  for (uint64_t round = 1; round <= rounds; ++round) {
    const MemberIdentity member{5, round};
    auto fabric = NewMember(member);
    std::deque<Hammer> hammers;
    for (size_t i = 0; i < kHammers; ++i) {
      hammers.emplace_back(*fabric, cluster.clock(), kB + i * Hammer::kWords * 8);
    }
    ASSERT_TRUE(WaitUntil(cluster.clock(), [&] {
      for (const Hammer& hammer : hammers) {
        if (hammer.done() < 20) return false;
      }
      return true;
    }));
    CutOff(0, member);
    const auto look = [&] {
      std::vector<uint64_t> words(kHammers * Hammer::kWords + 1);
      Batch batch(0);
      batch.ReadWord(kA, &words.back());
      batch.Read(kB, std::as_writable_bytes(std::span(words).first(kHammers * Hammer::kWords)));
      Status status = observer.Run(batch);
      EXPECT_TRUE(status.ok()) << status;
      return words;
    };
    const std::vector<uint64_t> at_the_cut = look();
    // They go on posting, and are told each time.
    ASSERT_TRUE(WaitUntil(cluster.clock(), [&] {
      for (const Hammer& hammer : hammers) {
        if (hammer.fenced() < 200) return false;
      }
      return true;
    }));
    for (Hammer& hammer : hammers) {
      hammer.Stop();
      EXPECT_EQ(hammer.failed_otherwise(), 0u);
      EXPECT_EQ(hammer.done_after_a_fence(), 0u);
    }
    EXPECT_EQ(look(), at_the_cut) << "round " << round;
  }
}

// A handshake and a cut at the same time: either the one is refused, or the other ends it.
TEST_P(FencingContract, ConnectingDuringTheCutLeavesNoConnectionBehind) {
  constexpr int kThreads = 3;
  const uint64_t rounds = test::Amount{10, 60, 400};
  TestClient observer = NewClient(cluster.fabric());
  for (uint64_t round = 1; round <= rounds; ++round) {
    const MemberIdentity member{5, round};
    auto fabric = NewMember(member);
    std::atomic<bool> stop{false};
    std::atomic<int> fenced{0}, otherwise{0}, begun{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        bool told = false;
        while (!stop || !told) {
          TestClient client = NewClient(*fabric);
          begun += 1;
          uint64_t old = 0;
          Batch batch(0);
          batch.FetchAdd(kA, 1, &old);
          const Status status = client.Run(batch);
          if (status.code() == StatusCode::kFenced && !told) {
            told = true;
            fenced += 1;
          }
          if (!status.ok() && status.code() != StatusCode::kFenced) otherwise += 1;
          if (status.ok() && told) otherwise += 1;
        }
      });
    }
    ASSERT_TRUE(WaitUntil(cluster.clock(), [&] { return begun > static_cast<int>(round % 4); }));
    CutOff(0, member);
    const uint64_t at_the_cut = observer.ReadWord(0, kA);
    EXPECT_TRUE(WaitUntil(cluster.clock(), [&] { return fenced == kThreads; }));
    stop = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(observer.ReadWord(0, kA), at_the_cut) << "round " << round;
    EXPECT_EQ(otherwise, 0);
  }
}

TEST_P(FencingContract, CutsAtTheSameTimeAllSucceed) {
  constexpr MemberId kMembers = 4;
  std::vector<std::unique_ptr<Fabric>> members;
  std::deque<TestClient> clients;
  for (MemberId id = 1; id <= kMembers; ++id) {
    members.push_back(NewMember({id, 1}));
    clients.emplace_back(*members.back(), cluster.clock());
    EXPECT_TRUE(TryWrite(clients.back(), 0).ok());
  }
  std::vector<std::thread> threads;
  for (MemberId id = 1; id < kMembers; ++id) {
    for (const ServerId server : {ServerId{0}, ServerId{1}, ServerId{0}}) {
      threads.emplace_back([this, server, id] { CutOff(server, {id, 1}); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kMembers; ++i) {
    for (const ServerId server : {ServerId{0}, ServerId{1}}) {
      const bool is_cut = i + 1 < kMembers;
      EXPECT_EQ(TryWrite(clients[i], server).code(),
                is_cut ? StatusCode::kFenced : StatusCode::kOk);
    }
  }
}

TEST_P(FencingContract, APoolThatIsCutOffSaysSoAndLeavesAtOnce) {
  auto pool = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  auto other = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  ASSERT_TRUE(pool.ok() && other.ok()) << pool.status() << other.status();
  const MemberIdentity self = (*pool)->self();
  for (const ServerId server : {ServerId{0}, ServerId{1}}) {
    Status cut = (*other)->fabric().CutOff(server, self);
    EXPECT_TRUE(cut.ok()) << cut;
  }
  auto worker = (*pool)->OpenWorker();
  ASSERT_TRUE(worker.ok()) << worker.status();
  FabricCounts counts;
  OpContext op{**worker, counts};
  auto grant = (*worker)->Run((*pool)->allocator().Allocate(op, {ChunkKind::kLeaf, 1024, 0}, 0));
  EXPECT_EQ(grant.status().ToString(), RefusalOf(0, self));
  worker->reset();
  EXPECT_EQ((*pool)->Leave().ToString(), RefusalOf(0, self));
  // Its id stays taken until somebody has dealt with what it left behind.
  TestClient observer = NewClient(cluster.fabric());
  EXPECT_EQ(observer.ReadWord(0, kMembersOffset + self.id * 8u),
            (MemberWord{true, self.incarnation}.Encode()));
  Status left = (*other)->Leave();
  EXPECT_TRUE(left.ok()) << left;
}

/// On shm the test itself would have to be killed.
std::vector<FabricKind> FencingFabrics() {
  std::vector<FabricKind> kinds = AllFabrics();
  std::erase(kinds, FabricKind::kShm);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FencingContract, ::testing::ValuesIn(FencingFabrics()),
                         [](const auto& kind) { return FabricKindName(kind.param); });

}  // namespace
}  // namespace farleaf::dsm
