// Memory servers that come and go (Fabric::Add, Fabric::Remove), on every fabric that has them; and that the others say
// that they have not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dsm/tcp/tcp_fabric.h"
#include "dsm/worker.h"
#include "test/support/fabric_under_test.h"
#include "test/support/peers_under_test.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kA = PeersUnderTest::kA, kB = PeersUnderTest::kB;
constexpr uint32_t kNodes = PeersUnderTest::kNodes;

/// How many seeds a test in a simulated world tries; a real fabric has one run.
uint64_t RunsOf(FabricKind kind) { return kind == FabricKind::kSim ? 200 : 5; }

bool IsLost(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kUnknown;
}

/// Batches of one word each, posted without waiting.
struct Posted {
  explicit Posted(TestClient* c) : client(c) {}
  void FetchAdd(ServerId server, uint64_t offset) {
    batches.emplace_back(server).FetchAdd(offset, 1, &words.emplace_back());
    client->Post(batches.back(), state);
  }
  void Write(ServerId server, uint64_t offset, std::span<const uint64_t> data) {
    batches.emplace_back(server).Write(offset, std::as_bytes(data));
    client->Post(batches.back(), state);
  }
  size_t CountOk() const {
    return static_cast<size_t>(std::count_if(batches.begin(), batches.end(),
                                             [](const Batch& b) { return b.status().ok(); }));
  }

  TestClient* client;
  std::list<Batch> batches;
  std::list<uint64_t> words;
  RoundTripState state;
};

class PeerContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  static Status Read(TestClient& client, ServerId server) {
    uint64_t word = 0;
    Batch batch(server);
    batch.ReadWord(kA, &word);
    return client.Run(batch);
  }
};

TEST_P(PeerContract, AServerThatIsAddedIsReachedByOpenTransports) {
  PeersUnderTest peers(GetParam());
  TestClient client(peers.fabric(), peers.clock());
  const ServerEndpoint endpoint = peers.Begin(0);
  const std::string name = "memory server " + std::to_string(endpoint.server);
  EXPECT_EQ(Read(client, endpoint.server).ToString(),
            "unavailable: " + name + " is not in this pool");
  ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
  client.WriteWord(endpoint.server, kA, 7);
  EXPECT_EQ(peers.WordOf(0, kA), 7u);
  TestClient later(peers.fabric(), peers.clock());
  EXPECT_EQ(later.ReadWord(endpoint.server, kA), 7u);
}

TEST_P(PeerContract, AServerThatIsRemovedIsNotReached) {
  PeersUnderTest peers(GetParam());
  TestClient client(peers.fabric(), peers.clock());
  const ServerId first = peers.BeginAndAdd(0), second = peers.BeginAndAdd(1);
  client.WriteWord(first, kA, 1);
  client.WriteWord(second, kA, 2);
  peers.fabric().Remove(first);
  peers.fabric().Remove(first);  // does no harm twice
  const std::string removed =
      "unavailable: memory server " + std::to_string(first) + " was removed";
  EXPECT_EQ(Read(client, first).ToString(), removed);
  TestClient later(peers.fabric(), peers.clock());
  EXPECT_EQ(Read(later, first).ToString(), removed);
  EXPECT_EQ(peers.fabric().CutOff(first, {5, 1}).ToString(), removed);
  EXPECT_EQ(client.ReadWord(second, kA), 2u);
}

TEST_P(PeerContract, WhatIsKnownCanBeAddedOnceMore) {
  PeersUnderTest peers(GetParam());
  TestClient client(peers.fabric(), peers.clock());
  ServerEndpoint endpoint = peers.Begin(0);
  ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
  Posted posted(&client);
  for (int i = 0; i < 100; ++i) posted.FetchAdd(endpoint.server, kA);
  endpoint.incarnation = 0;  // nobody said which: the one that is known
  EXPECT_TRUE(peers.fabric().Add(endpoint).ok());
  for (int i = 0; i < 100; ++i) posted.FetchAdd(endpoint.server, kA);
  client.Await(posted.state);
  EXPECT_EQ(posted.CountOk(), 200u);
}

TEST_P(PeerContract, BatchesInFlightToAServerThatIsRemovedEnd) {
  constexpr size_t kBatches = 300;
  for (uint64_t seed = 1; seed <= RunsOf(GetParam()); ++seed) {
    PeersUnderTest peers(GetParam(), seed);
    TestClient client(peers.fabric(), peers.clock());
    const ServerId server = peers.BeginAndAdd(0);
    client.WriteWord(server, kB, 1);  // connected
    Posted posted(&client);
    for (size_t i = 0; i < kBatches; ++i) posted.FetchAdd(server, kA);
    client.transport().Poll();  // sent
    peers.fabric().Remove(server);
    client.Await(posted.state);
    // What was reported can land no more.
    const uint64_t landed = peers.WordOf(0, kA);
    EXPECT_GE(landed, posted.CountOk()) << "seed " << seed;
    EXPECT_LE(landed, kBatches) << "seed " << seed;
    for (const Batch& batch : posted.batches) {
      ASSERT_TRUE(batch.status().ok() || IsLost(batch.status())) << batch.status();
    }
    peers.LetLand(10 * kNsPerMs);
    EXPECT_EQ(peers.WordOf(0, kA), landed) << "seed " << seed;
  }
}

TEST_P(PeerContract, NodesThatComeBackAreReachedByTheSameTransport) {
  for (uint64_t seed = 1; seed <= RunsOf(GetParam()); ++seed) {
    PeersUnderTest peers(GetParam(), seed);
    TestClient client(peers.fabric(), peers.clock());
    for (uint64_t life = 1; life <= 5; ++life) {
      const ServerId server = peers.BeginAndAdd(0);
      EXPECT_EQ(client.ReadWord(server, kA), 0u) << "seed " << seed;  // nothing of an earlier life
      client.WriteWord(server, kA, life);
      EXPECT_EQ(peers.WordOf(0, kA), life) << "seed " << seed;
      peers.End(0);
      const Status status = Read(client, server);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      // Sometimes it is taken out; another incarnation takes the place of the old one in any case.
      if (life % 2 == 0) peers.fabric().Remove(server);
    }
  }
}

// The node has died with batches in flight and begun another life at its address, and the batches of
// both lives are on their way at a time.
TEST_P(PeerContract, NothingLandsInAnotherLife) {
  constexpr size_t kBatches = 50;
  for (uint64_t seed = 1; seed <= RunsOf(GetParam()); ++seed) {
    PeersUnderTest peers(GetParam(), seed);
    TestClient client(peers.fabric(), peers.clock());
    const ServerId first = peers.BeginAndAdd(0);
    client.WriteWord(first, kB, 1);
    Posted old(&client), fresh(&client);
    for (size_t i = 0; i < kBatches; ++i) old.FetchAdd(first, kA);
    client.transport().Poll();
    peers.End(0);
    const ServerEndpoint endpoint = peers.Begin(0);
    // The new one is not known yet: the old life is meant, whose link finds the new one at its address.
    if (seed % 2 == 0) client.Await(old.state);
    for (size_t i = 0; i < kBatches; ++i) old.FetchAdd(first, kA);
    if (seed % 2 == 0) client.Await(old.state);
    ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
    for (size_t i = 0; i < kBatches; ++i) fresh.FetchAdd(endpoint.server, kA);
    client.Await(old.state);
    client.Await(fresh.state);
    EXPECT_EQ(fresh.CountOk(), kBatches)
        << "seed " << seed << ": " << fresh.batches.back().status();
    peers.LetLand(10 * kNsPerMs);
    EXPECT_EQ(peers.WordOf(0, kA), kBatches) << "seed " << seed;
    EXPECT_EQ(client.FetchAdd(endpoint.server, kA, 0), kBatches);
    if (endpoint.server == first) continue;
    const Status status = Read(client, first);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
}

// Rule 2 of dsm/transport.h, across Remove and Add of one life.
TEST_P(PeerContract, AWriteDoesNotOvertakeThoseBeforeTheRemoval) {
  for (uint64_t seed = 1; seed <= RunsOf(GetParam()); ++seed) {
    PeersUnderTest peers(GetParam(), seed);
    TestClient client(peers.fabric(), peers.clock());
    const ServerEndpoint endpoint = peers.Begin(0);
    ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
    const std::vector<uint64_t> zeros(64, 0), ones(64, 1), twos(64, 2);
    Posted posted(&client);
    posted.Write(endpoint.server, kA, zeros);
    client.Await(posted.state);
    for (int i = 0; i < 8; ++i) posted.Write(endpoint.server, kA, ones);
    client.transport().Poll();
    peers.fabric().Remove(endpoint.server);
    ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
    posted.Write(endpoint.server, kA, twos);
    client.Await(posted.state);
    ASSERT_TRUE(posted.batches.back().status().ok()) << posted.batches.back().status();
    peers.LetLand(10 * kNsPerMs);
    for (size_t i = 0; i < twos.size(); ++i) {
      ASSERT_EQ(peers.WordOf(0, kA + i * 8), 2u) << "seed " << seed << ", word " << i;
    }
  }
}

TEST_P(PeerContract, NodesComeAndGoWhileThreadsPost) {
  constexpr int kThreads = 3, kChanges = 60;
  constexpr ServerId kNone = 0xffff;
  PeersUnderTest peers(GetParam());
  std::array<std::atomic<ServerId>, kNodes> current;
  std::array<std::atomic<uint64_t>, 256> counted{}, lost{};  // by id
  std::atomic<uint64_t> steps{0};
  std::atomic<bool> over{false};
  for (uint32_t node = 0; node < kNodes; ++node) current[node] = peers.BeginAndAdd(node);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      TestClient client(peers.fabric(), peers.clock());
      Random random(static_cast<uint64_t>(t) + 1);
      const auto add = [&](ServerId server) {
        uint64_t old = 0;
        Batch batch(server);
        batch.FetchAdd(kA, 1, &old);
        Status status = client.Run(batch);
        ++(status.ok() ? counted : lost)[server];
        return status;
      };
      while (!over) {
        ++steps;
        const ServerId server = current[random.Below(kNodes)];
        if (server == kNone) continue;
        const Status status = add(server);
        EXPECT_TRUE(status.ok() || IsLost(status)) << status;
      }
      for (const auto& server : current) {
        const Status status = add(server);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  Random random(99);
  for (int change = 0; change < kChanges; ++change) {
    const uint64_t seen = steps;
    while (steps < seen + 20) std::this_thread::yield();
    const auto node = static_cast<uint32_t>(random.Below(kNodes));
    const ServerId server = current[node];
    if (server == kNone) {
      current[node] = peers.BeginAndAdd(node);
      continue;
    }
    const bool removed_first = random.OneIn(2);
    if (removed_first) peers.fabric().Remove(server);
    peers.End(node);
    current[node] = kNone;
    if (!removed_first) peers.fabric().Remove(server);
  }
  for (uint32_t node = 0; node < kNodes; ++node) {
    if (current[node] == kNone) current[node] = peers.BeginAndAdd(node);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  if (GetParam() == FabricKind::kSim) return;  // an id names several lives there
  for (uint32_t node = 0; node < kNodes; ++node) {
    const ServerId server = current[node];
    EXPECT_GE(peers.WordOf(node, kA), counted[server]);
    EXPECT_LE(peers.WordOf(node, kA), counted[server] + lost[server]);
  }
}

std::vector<FabricKind> PeerFabrics() {
  std::vector<FabricKind> kinds = NetworkFabrics();
  kinds.push_back(FabricKind::kSim);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, PeerContract, ::testing::ValuesIn(PeerFabrics()),
                         [](const auto& param) { return FabricKindName(param.param); });

// ---- Of fabrics with connections

class NetworkPeers : public ::testing::TestWithParam<FabricKind> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, NetworkPeers, ::testing::ValuesIn(NetworkFabrics()),
                         [](const auto& param) { return FabricKindName(param.param); });

TEST_P(NetworkPeers, ARemovedServersConnectionsAreClosed) {
  PeersUnderTest peers(GetParam());
  TestClient client(peers.fabric(), peers.clock());
  const ServerId server = peers.BeginAndAdd(0);
  client.WriteWord(server, kA, 1);
  EXPECT_EQ(peers.ConnectionsOf(0), 1u);
  peers.fabric().Remove(server);
  client.transport().Poll();
  const uint64_t deadline_ns = peers.clock().NowNs() + TestClient::kDeadlineNs;
  while (peers.ConnectionsOf(0) > 0) {
    ASSERT_LT(peers.clock().NowNs(), deadline_ns);
    std::this_thread::yield();
  }
}

TEST_P(NetworkPeers, AnIdIsNotKnownAtTwoAddresses) {
  PeersUnderTest peers(GetParam());
  const ServerEndpoint endpoint = peers.Begin(0);
  ASSERT_TRUE(peers.fabric().Add(endpoint).ok());
  ServerEndpoint elsewhere = peers.Begin(1);
  elsewhere.server = endpoint.server;
  const Status status = peers.fabric().Add(elsewhere);
  EXPECT_EQ(status.ToString(), "already exists: memory server " + std::to_string(endpoint.server) +
                                   " is known at " + endpoint.endpoint + ", not at " +
                                   elsewhere.endpoint + ": it has to be removed first");
  TestClient client(peers.fabric(), peers.clock());
  client.WriteWord(endpoint.server, kA, 4);
  EXPECT_EQ(peers.WordOf(0, kA), 4u);
  EXPECT_EQ(peers.fabric().Add({9, "shm:/nowhere", 0, 0}).code(), StatusCode::kInvalidArgument);
}

// Nobody said which life is meant: all links hold to the one that answered first.
TEST_P(NetworkPeers, TheFirstAnswerSettlesWhichLifeIsMeant) {
  FabricUnderTest cluster(GetParam());
  const auto fabric = FabricWithoutServers(GetParam(), "tested", &cluster.clock());
  ServerEndpoint endpoint = cluster.server(1).endpoint();
  endpoint.incarnation = 0;
  ASSERT_TRUE(fabric->Add(endpoint).ok());
  TestClient first(*fabric, cluster.clock()), second(*fabric, cluster.clock());
  first.WriteWord(1, kA, 1);
  cluster.KillServer(1);
  RegionServer other = cluster.StartServer(1, 999, AddressOf(endpoint));
  uint64_t word = 0;
  Batch batch(1);
  batch.ReadWord(kA, &word);
  EXPECT_EQ(second.Run(batch).ToString(),
            "unavailable: memory server 1 lost (restarted with another incarnation)");
  ASSERT_TRUE(fabric->Add(other.endpoint()).ok());
  EXPECT_EQ(second.ReadWord(1, kA), 0u);
  EXPECT_EQ(first.ReadWord(1, kA), 0u);
}

TEST_P(NetworkPeers, AnotherNodeAtTheAddressOfOneThatDiedSaysWhoIsLost) {
  PeersUnderTest peers(GetParam());
  TestClient client(peers.fabric(), peers.clock());
  const ServerId first = peers.BeginAndAdd(0);
  client.WriteWord(first, kA, 1);
  peers.End(0);
  const ServerId second = peers.BeginAndAdd(0);
  Status status;
  do {  // its connection breaks first
    uint64_t word = 0;
    Batch batch(first);
    batch.ReadWord(kA, &word);
    status = client.Run(batch);
    ASSERT_EQ(status.code(), StatusCode::kUnavailable) << status;
  } while (!status.message().ends_with("has its address now)"));
  EXPECT_EQ(status.message(), "memory server " + std::to_string(first) + " lost (memory server " +
                                  std::to_string(second) + " has its address now)");
}

// ---- What is special to a fabric

/// A server that takes connections and says nothing.
struct MuteServer {
  explicit MuteServer(ServerId server) {
    auto any = ResolveTcp("127.0.0.1:0");
    auto listening = Listen(*any);
    FARLEAF_CHECK(listening.ok(), listening.status());
    fd = std::move(*listening);
    endpoint = {server, "tcp:" + *LocalTcpAddress(fd.get()), 0, 0};
  }
  /// Of the next one who connects, while the client is polled.
  Hello NextHello(TestClient& client) const {
    UniqueFd peer;
    std::string received;
    for (;;) {
      client.transport().Poll();
      if (!peer.valid()) {
        peer = UniqueFd(::accept4(fd.get(), nullptr, nullptr, SOCK_NONBLOCK));
        continue;
      }
      std::array<char, 256> some;
      const ssize_t bytes = ::recv(peer.get(), some.data(), some.size(), 0);
      if (bytes > 0) received.append(some.data(), static_cast<size_t>(bytes));
      const auto whole = HandshakeBytes(AsBytes(received));
      FARLEAF_CHECK(whole.ok(), whole.status());
      if (!*whole || received.size() < **whole) continue;
      auto hello = ParseHello(AsBytes(received).first(**whole));
      FARLEAF_CHECK(hello.ok(), hello.status());
      return *hello;
    }
  }
  UniqueFd fd;
  ServerEndpoint endpoint;
};

// Its answer to the second one says that nothing of the first one's can land.
TEST(TcpPeers, AServerThatComesBackIsGreetedWithTheNonceThatItKnows) {
  PeersUnderTest peers(FabricKind::kTcp);
  MuteServer mute(3), other(4);
  ASSERT_TRUE(peers.fabric().Add(mute.endpoint).ok());
  ASSERT_TRUE(peers.fabric().Add(other.endpoint).ok());
  TestClient client(peers.fabric(), peers.clock());
  Posted before(&client), behind(&client);
  before.FetchAdd(3, kA);
  before.FetchAdd(4, kA);
  const uint64_t nonce = mute.NextHello(client).nonce;
  EXPECT_NE(other.NextHello(client).nonce, nonce);
  peers.fabric().Remove(3);
  ASSERT_TRUE(peers.fabric().Add(mute.endpoint).ok());
  behind.FetchAdd(3, kA);
  EXPECT_EQ(mute.NextHello(client).nonce, nonce);
  for (const ServerId server : {ServerId{3}, ServerId{4}}) peers.fabric().Remove(server);
  client.Await(before.state);
  client.Await(behind.state);
}

TEST(TcpPeers, AServerThatDoesNotAnswerKeepsNobodyWaiting) {
  ManualClock clock;  // on which no time passes unless we say so
  PeersUnderTest peers(FabricKind::kTcp, 1, &clock);
  MuteServer mute(3);
  ASSERT_TRUE(peers.fabric().Add(mute.endpoint).ok());
  TestClient client(peers.fabric(), peers.clock());  // and opening a transport does not wait for it
  const ServerId server = peers.BeginAndAdd(0);
  Posted stuck(&client);
  for (int i = 0; i < 10; ++i) stuck.FetchAdd(3, kA);
  for (int i = 0; i < 100; ++i) client.FetchAdd(server, kA, 1);
  EXPECT_EQ(client.ReadWord(server, kA), 100u);
  EXPECT_FALSE(stuck.state.done());
  clock.AdvanceNs(TcpLinkOptions().recovery.connect_timeout_ms * kNsPerMs + 1);
  client.Await(stuck.state);
  for (const Batch& batch : stuck.batches) {
    EXPECT_EQ(batch.status().code(), StatusCode::kUnavailable) << batch.status();
  }
}

TEST(TcpPeers, BatchesThatWaitForAServerThatIsRemovedFailAtOnce) {
  ManualClock clock;
  PeersUnderTest peers(FabricKind::kTcp, 1, &clock);
  MuteServer mute(3);
  ASSERT_TRUE(peers.fabric().Add(mute.endpoint).ok());
  TestClient client(peers.fabric(), peers.clock());
  Posted stuck(&client);
  stuck.FetchAdd(3, kA);
  client.transport().Poll();
  peers.fabric().Remove(3);
  client.Await(stuck.state);
  EXPECT_EQ(stuck.batches.front().status().ToString(), "unavailable: memory server 3 was removed");
}

TEST(SimPeers, AServerThatDoesNotAnswerKeepsNobodyWaiting) {
  PeersUnderTest peers(FabricKind::kSim);
  const ServerId mute = peers.BeginAndAdd(1);
  peers.world()->StallServer(mute);
  TestClient client(peers.fabric(), peers.clock());
  const ServerId server = peers.BeginAndAdd(0);
  Posted stuck(&client);
  for (int i = 0; i < 10; ++i) stuck.FetchAdd(mute, kA);
  const uint64_t began_ns = peers.clock().NowNs();
  for (int i = 0; i < 100; ++i) client.FetchAdd(server, kA, 1);
  const uint64_t timeout_ns = SimLinkOptions().recovery.connect_timeout_ms * kNsPerMs;
  EXPECT_LT(peers.clock().NowNs() - began_ns, timeout_ns);
  EXPECT_FALSE(stuck.state.done());
  client.Await(stuck.state);
  EXPECT_GE(peers.clock().NowNs() - began_ns, timeout_ns);
  EXPECT_EQ(stuck.CountOk(), 0u);
}

/// A process with one thread that the world runs, and two memory servers.
struct SimulatedThread {
  SimulatedThread() {
    auto transport = fabric->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    worker.emplace(Worker::Deps{std::move(*transport), &epochs, &world.clock(), 1});
    world.AddThread(fabric->process(), &*worker);
  }
  ~SimulatedThread() { world.RemoveThread(&*worker); }

  SimWorld world{{.servers = 2, .region_bytes = 1 << 20}};
  EpochDomain epochs;
  std::unique_ptr<SimFabric> fabric = world.NewFabric();
  std::optional<Worker> worker;
};

Task<void> ReadOnce(Worker* worker, ServerId server, Status* ended) {
  FabricCounts counts;
  uint64_t word = 0;
  Batch batch(server);
  batch.ReadWord(kA, &word);
  Status status = co_await worker->RoundTrip(batch, counts);
  *ended = std::move(status);
}

Task<void> RemoveCutOffAndRead(SimulatedThread* thread, Status* cut, Status* ended) {
  thread->fabric->Remove(1);
  *cut = thread->fabric->CutOff(0, {5, 1});  // blocks: the rest of the world goes on
  co_await ReadOnce(&*thread->worker, 0, ended);
}

TEST(SimPeers, AThreadThatSleepsLearnsOfARemoval) {
  SimulatedThread thread;
  thread.world.StallServer(1);
  Status ended;
  thread.worker->Spawn(ReadOnce(&*thread.worker, 1, &ended));
  thread.world.At(kNsPerMs, [&] { thread.fabric->Remove(1); });
  EXPECT_EQ(thread.world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  EXPECT_EQ(ended.code(), StatusCode::kUnknown) << ended;  // its server says nothing
  EXPECT_LT(thread.world.now_ns(), SimLinkOptions().stall_timeout_ms * kNsPerMs);
}

TEST(SimPeers, AThreadThatBlocksBehindARemovalGoesOn) {
  SimulatedThread thread;
  Status cut, ended = Status::Unknown("not at all"), removed;
  thread.worker->Spawn(ReadOnce(&*thread.worker, 1, &removed));
  thread.worker->Spawn(RemoveCutOffAndRead(&thread, &cut, &ended));
  EXPECT_EQ(thread.world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  EXPECT_TRUE(cut.ok()) << cut;
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(removed.code(), StatusCode::kUnavailable) << removed;
}

TEST(OtherFabrics, SayThatTheirServersStay) {
  for (const FabricKind kind : {FabricKind::kLocal, FabricKind::kShm, FabricKind::kLocalDelayed}) {
    FabricUnderTest cluster(kind);
    const Status status = cluster.fabric().Add({7, "tcp:127.0.0.1:1", 0, 0});
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
    EXPECT_TRUE(status.message().starts_with("memory server 7 cannot be added: the ")) << status;
    cluster.fabric().Remove(1);
    TestClient client(cluster.fabric(), cluster.clock());
    client.WriteWord(1, kA, 3);
    EXPECT_EQ(client.ReadWord(1, kA), 3u);
  }
}

}  // namespace
}  // namespace farleaf::dsm
