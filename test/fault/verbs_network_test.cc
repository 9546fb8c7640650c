// The verbs fabric when the network between two machines swallows everything for a while: the memory server
// is in the other machine, and test/rdma_vm/network_faults_test.sh starts both.
//
// The network is cut by a wrong entry in the table of neighbours: what is sent over IPv4 reaches nobody, and
// IPv6 stays, to look on. A device that is taken down would not do: soft RoCE's queue pair for connection
// messages does not survive that one is sent meanwhile, and the machine never connects again.
#include <gtest/gtest.h>

#include "test/support/child_process.h"
#include "test/support/verb_load.h"

namespace farleaf::dsm {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The way to the other machine, over IPv4.
class PeerRoute {
 public:
  explicit PeerRoute(std::string peer) : peer_(std::move(peer)) {}
  ~PeerRoute() {
    if (cut_) Restore();
  }
  PeerRoute(const PeerRoute&) = delete;
  void Cut() {
    cut_ = true;
    Neighbour("replace " + peer_ + " lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
  }
  void Restore() {
    cut_ = false;
    Neighbour("del " + peer_ + " dev eth0");
  }

 private:
  void Neighbour(const std::string& command) {
    ChildProcess ip({"sh", "-c", "ip neigh " + command}, folder_.File("ip.log"));
    FARLEAF_CHECK(ip.Wait() == 0, command, ip.Output());
  }

  const std::string peer_;
  TempFolder folder_;
  bool cut_ = false;
};

class VerbsNetworkTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kWord = 40 << 20;  // in no use
  const std::string peer = Environment("FARLEAF_RDMA_PEER_ADDRESS");
  const std::string peer6 = Environment("FARLEAF_RDMA_PEER_ADDRESS6");
  MonotonicClock clock;
  PeerRoute route{peer};

  void SetUp() override {
    if (peer.empty()) {
      GTEST_SKIP()
          << "no memory server in another machine: run test/rdma_vm/network_faults_test.sh";
    }
    const auto onlooker = Onlooker();
    TestClient client(*onlooker, clock);
    client.WriteWord(0, kWord, 0);
    client.WriteWord(0, kWord + 8, 0);
  }
  Result<std::unique_ptr<VerbsFabric>> TryConnect(const std::string& host,
                                                  const VerbsOptions& options) {
    return VerbsFabric::Connect({{0, "verbs:" + host + ":7100", 0, 0}}, "tested", options, &clock);
  }
  std::unique_ptr<VerbsFabric> Connect(const std::string& host, const VerbsOptions& options) {
    std::unique_ptr<VerbsFabric> fabric;
    Status last;
    // The server may have only just been started.
    EXPECT_TRUE(Eventually([&] {
      auto connected = TryConnect(host, options);
      last = connected.status();
      if (connected.ok()) fabric = std::move(*connected);
      return fabric != nullptr;
    })) << last;
    FARLEAF_CHECK(fabric != nullptr, last);
    return fabric;
  }
  std::unique_ptr<VerbsFabric> Connect(uint64_t connect_timeout_ms) {
    return Connect(peer, Impatient(connect_timeout_ms));
  }
  /// Over IPv6, which is not cut.
  std::unique_ptr<VerbsFabric> Onlooker() {
    return Connect("[" + peer6 + "]", VerbsPool::Patient());
  }
  /// The options by default, but for one.
  static VerbsOptions Impatient(uint64_t connect_timeout_ms) {
    VerbsOptions options;
    options.recovery.connect_timeout_ms = connect_timeout_ms;
    return options;
  }
  static void Sleep(uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
};

TEST_F(VerbsNetworkTest, WorkGoesOnWhenTheNetworkIsBack) {
  const auto fabric = Connect(6'000);
  VerbLoad load(*fabric, clock, 0, kWord), second(*fabric, clock, 0, kWord + 8);
  for (const uint64_t cut_ms : {500, 2'000, 4'000}) {
    load.AwaitMoreDone();
    second.AwaitMoreDone();
    route.Cut();
    Sleep(cut_ms);
    route.Restore();
    const uint64_t back_ms = std::max(load.AwaitMoreDone(), second.AwaitMoreDone());
    Tell("after " + std::to_string(cut_ms) + " ms without a network, work goes on after", back_ms,
         load.last_failure());
    EXPECT_LT(back_ms, kSoonMs);
  }
  load.Stop();
  second.Stop();
  Tell("the longest time in flight", std::max(load.longest_ms(), second.longest_ms()));
  EXPECT_LT(std::max(load.longest_ms(), second.longest_ms()), kSoonMs);
  TestClient reader(*fabric, clock);
  load.ExpectWord(reader.ReadWord(0, kWord));
  second.ExpectWord(reader.ReadWord(0, kWord + 8));
}

TEST_F(VerbsNetworkTest, WithoutANetworkForLongEveryBatchEndsAndLaterOnesWork) {
  const auto fabric = Connect(2'000);
  VerbLoad load(*fabric, clock, 0, kWord);
  load.AwaitMoreDone();
  route.Cut();
  const uint64_t failed_ms = load.AwaitMoreFailed();
  const Status first = load.last_failure();
  Tell("32 batches in flight without a network have failed after", failed_ms, first);
  EXPECT_LT(failed_ms, kSoonMs);
  EXPECT_TRUE(Names(first, "memory server 0")) << first;
  EXPECT_TRUE(first.code() == StatusCode::kUnknown || first.code() == StatusCode::kUnavailable)
      << first;
  load.AwaitMoreFailed();  // posted meanwhile
  const Status later = load.last_failure();
  EXPECT_EQ(later.code(), StatusCode::kUnavailable) << later;
  EXPECT_TRUE(Names(later, "memory server 0 lost")) << later;
  route.Restore();
  const uint64_t back_ms = load.AwaitMoreDone();
  Tell("when the network is back, work goes on after", back_ms, later);
  EXPECT_LT(back_ms, kSoonMs);
  load.Stop();
  EXPECT_LT(load.longest_ms(), kSoonMs);
  TestClient reader(*fabric, clock);
  load.ExpectWord(reader.ReadWord(0, kWord));
}

// Who waits for a completion that cannot come is woken by the timeouts, and sleeps until then.
TEST_F(VerbsNetworkTest, ASleeperIsWokenByTheEndOfItsBatch) {
  for (const uint32_t queue_pairs_max : {64, 1}) {  // one of its own, and a shared one
    VerbsOptions options = Impatient(2'000);
    options.queue_pairs_max = queue_pairs_max;
    const auto fabric = Connect(peer, options);
    TestClient client(*fabric, clock);
    client.WriteWord(0, kWord, 1);
    route.Cut();
    uint64_t word = 2;
    Batch batch(0);
    batch.WriteWord(kWord, &word);
    RoundTripState state;
    client.Post(batch, state);
    const uint64_t begin_ns = clock.NowNs();
    constexpr int kWaitsMax = 1'000;
    int waits = 0;
    for (; !state.done() && waits < kWaitsMax; ++waits) {
      client.transport().Wait(client.wake_fd(), 10 * kSoonMs * kNsPerMs);
      client.transport().Poll();
    }
    const uint64_t ended_ms = (clock.NowNs() - begin_ns) / kNsPerMs;
    route.Restore();
    ASSERT_LT(waits, kWaitsMax) << "Wait does not sleep";
    Tell("woken " + std::to_string(waits) + " times, the batch has ended after", ended_ms,
         batch.status());
    EXPECT_LT(ended_ms, kSoonMs);
    EXPECT_EQ(batch.status().code(), StatusCode::kUnknown) << batch.status();
    EXPECT_TRUE(Eventually([&] {
      Batch again(0);
      again.WriteWord(kWord, &word);
      return client.Run(again).ok();
    }));
  }
}

TEST_F(VerbsNetworkTest, WhoeverConnectsWithoutANetworkIsToldInTime) {
  Connect(2'000);
  route.Cut();
  const uint64_t begin_ns = clock.NowNs();
  const Status status = TryConnect(peer, Impatient(2'000)).status();
  const uint64_t told_ms = (clock.NowNs() - begin_ns) / kNsPerMs;
  route.Restore();
  Tell("connecting has failed after", told_ms, status);
  EXPECT_LT(told_ms, kSoonMs);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_TRUE(Names(status, "memory server 0")) << status;
  Connect(2'000);
}

// The disconnect is lost on the way: the cut is confirmed all the same, and whoever was away learns of it
// when the network is back.
TEST_F(VerbsNetworkTest, WhoeverIsOutOfReachIsCutOffAndLearnsOfItLater) {
  const auto cut = Connect(6'000), onlooker = Onlooker();
  Status known = cut->Identify({5, 3});
  ASSERT_TRUE(known.ok()) << known;
  VerbLoad load(*cut, clock, 0, kWord);
  TestClient reader(*onlooker, clock);
  load.AwaitMoreDone();
  route.Cut();
  const uint64_t begin_ns = clock.NowNs();
  Status status = onlooker->CutOff(0, {5, 3});
  Tell("cut off without a network after", (clock.NowNs() - begin_ns) / kNsPerMs, status);
  ASSERT_TRUE(status.ok()) << status;
  const uint64_t word = reader.ReadWord(0, kWord);
  route.Restore();
  EXPECT_TRUE(Eventually([&] { return load.fenced() >= 100; })) << load.last_failure();
  Tell("told after", (clock.NowNs() - begin_ns) / kNsPerMs, load.last_failure());
  load.Stop();
  EXPECT_EQ(load.failed(), load.fenced()) << load.last_failure();
  EXPECT_EQ(reader.ReadWord(0, kWord), word);
  load.ExpectWord(word);
}

}  // namespace
}  // namespace farleaf::dsm
