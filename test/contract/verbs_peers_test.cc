// Peers of the verbs fabric that are refused, odd or hostile: nobody else is hurt.
#include <gtest/gtest.h>

#include "dsm/base/random.h"
#include "test/support/raw_verbs.h"
#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {
namespace {

// ---- refusals of the handshake

struct VerbsRefusalTest : VerbsTest {
  static Hello GoodHello(uint64_t nonce = 77) {
    Hello hello;
    hello.nonce = nonce;
    hello.cluster = "tested";
    return hello;
  }
};

TEST_F(VerbsRefusalTest, TheServerSaysWhatIsWrong) {
  VerbsPool pool;
  auto refusal = [&pool](const Hello& hello) {
    return RawVerbsClient(pool.address()).Refusal(EncodeConnectData(hello)).ToString();
  };
  Hello hello = GoodHello();
  hello.cluster = "other";
  EXPECT_EQ(refusal(hello),
            "invalid argument: memory server 0 belongs to cluster 'tested', not 'other'");
  hello = GoodHello();
  hello.version = kProtocolVersion + 1;
  EXPECT_EQ(refusal(hello),
            "invalid argument: memory server 0 speaks protocol version 3, this program 4");
  hello = GoodHello();
  hello.server = 5;
  EXPECT_EQ(refusal(hello),
            "invalid argument: this is memory server 0, not memory server 5: the directory's "
            "endpoint is wrong");
  hello = GoodHello();
  hello.member.id = UINT16_MAX;
  EXPECT_NE(refusal(hello).find("knows no compute server 65535"), std::string::npos);
  EXPECT_EQ(pool.agent().connections(), 0u);
}

TEST_F(VerbsRefusalTest, AClientTellsWhatTheServerSaid) {
  VerbsPool pool({.servers = 2});
  auto other = VerbsFabric::Connect(pool.endpoints(), "other", VerbsPool::Patient(), &pool.clock());
  EXPECT_EQ(other.status().ToString(),
            "invalid argument: memory server 0 belongs to cluster 'tested', not 'other'");
  std::vector<ServerEndpoint> swapped = pool.endpoints();
  std::swap(swapped[0].endpoint, swapped[1].endpoint);
  EXPECT_EQ(
      VerbsFabric::Connect(swapped, "tested", VerbsPool::Patient(), &pool.clock()).status().code(),
      StatusCode::kInvalidArgument);
  const std::vector<ServerEndpoint> endpoints = pool.endpoints();
  pool.StopAgent(1);
  Status gone =
      VerbsFabric::Connect(endpoints, "tested", VerbsPool::Patient(), &pool.clock()).status();
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone;
  EXPECT_TRUE(gone.message().starts_with("memory server 1 lost: nobody listens on ")) << gone;
}

TEST_F(VerbsRefusalTest, GarbageIsRefusedAndHurtsNobody) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  client.WriteWord(0, 4096, 1);
  Random random(5);
  const std::string good = EncodeConnectData(GoodHello());
  for (int i = 0; i < 24; ++i) {
    std::string bytes = good;
    if (i % 3 == 0) {
      bytes.resize(random.Below(kConnectDataBytesMax + 1));
      for (char& byte : bytes) byte = static_cast<char>(random.Next());
    } else if (i % 3 == 1) {
      bytes.resize(random.Below(4));  // librdmacm fills with zeros up to its length
    } else {
      bytes[random.Below(4)] ^= static_cast<char>(1 + random.Below(255));
    }
    const Status why = RawVerbsClient(pool.address()).Refusal(bytes);
    EXPECT_EQ(why.code(), StatusCode::kCorruption) << why;
    client.FetchAdd(0, 4096, 1);
  }
  EXPECT_EQ(pool.WordAt(4096), 25u);
  EXPECT_TRUE(Eventually([&] { return pool.agent().connections() == 1; }));
}

TEST_F(VerbsRefusalTest, RequestsThatAreNeverFinishedDoNotBlockOthers) {
  VerbsPool pool;
  std::vector<std::unique_ptr<RawVerbsClient>> silent;
  for (uint64_t i = 0; i < 64; ++i) {
    silent.push_back(std::make_unique<RawVerbsClient>(pool.address()));
    silent.back()->StartConnect(EncodeConnectData(GoodHello(1'000 + i)));
  }
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  client.WriteWord(0, 4096, 1);
  silent.clear();
  EXPECT_TRUE(Eventually([&] { return pool.agent().connections() == 1; }))
      << pool.agent().connections();
}

// Contract rule 5: what the old connection still sends is dropped.
TEST_F(VerbsRefusalTest, ANewConnectionWithTheSameNonceEndsTheOldOne) {
  VerbsPool pool;
  RawVerbsClient old(pool.address()), fresh(pool.address()), other(pool.address());
  const RemoteRegion region = old.Join(GoodHello(1));
  EXPECT_EQ(old.Run(IBV_WR_RDMA_WRITE, region.address + 4096, region.key), "success");
  fresh.Join(GoodHello(1));
  other.Join(GoodHello(2));  // another nonce does not
  EXPECT_TRUE(Eventually([&] { return pool.agent().connections() == 2; }));
  old.local()[0] = std::byte{0xff};
  EXPECT_NE(old.Run(IBV_WR_RDMA_WRITE, region.address + 4096, region.key), "success");
  EXPECT_EQ(pool.WordAt(4096), 0u);
  EXPECT_EQ(fresh.Run(IBV_WR_RDMA_READ, region.address + 4096, region.key), "success");
  EXPECT_EQ(other.Run(IBV_WR_RDMA_READ, region.address + 4096, region.key), "success");
}

TEST_F(VerbsRefusalTest, AFullServerRefusesAndTakesWhoeverComesWhenThereIsRoom) {
  VerbsPool pool({.agent = {.listen = ListenHost() + ":0", .connections_max = 2}});
  const auto fabric = pool.Connect();
  ASSERT_TRUE(Eventually([&] { return pool.agent().connections() == 0; }));
  auto first = std::make_unique<TestClient>(*fabric, pool.clock());
  TestClient second(*fabric, pool.clock()), third(*fabric, pool.clock());
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(4096, &word);
  Status full = third.Run(batch);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  EXPECT_NE(full.message().find("memory server 0 has all of its 2 connections in use"),
            std::string::npos)
      << full;
  second.WriteWord(0, 4096, 1);
  first.reset();
  EXPECT_TRUE(Eventually([&] {
    Batch again(0);
    again.ReadWord(4096, &word);
    return third.Run(again).ok();
  }));
}

struct VerbsOddServerTest : VerbsTest {
  using Deed = RawVerbsServer::Deed;
  static constexpr uint64_t kConnectMs = 2'000;
  MonotonicClock clock;

  Status ConnectTo(Deed deed, const std::string& private_data) {
    RawVerbsServer server(ListenHost(), [&] { return RawVerbsServer::Answer{deed, private_data}; });
    VerbsOptions options = VerbsPool::Patient();
    options.recovery.connect_timeout_ms = kConnectMs;
    const uint64_t begin_ns = clock.NowNs();
    auto fabric = VerbsFabric::Connect({{0, server.endpoint(), 0, 0}}, "tested", options, &clock);
    EXPECT_LT(clock.NowNs() - begin_ns, 10 * kConnectMs * kNsPerMs);
    return fabric.status();
  }
  static std::string Version9(std::string bytes) {
    bytes[4] = 9;
    return bytes;
  }
};

TEST_F(VerbsOddServerTest, AServerOfAnotherVersionIsToldByItsVersion) {
  const std::string says = "the memory server speaks protocol version 9, this program 3";
  for (const Status& status :
       {ConnectTo(Deed::kReject, Version9(EncodeRejectData(0, Status::Fenced("future words")))),
        ConnectTo(Deed::kAccept, Version9(EncodeAcceptData({{0, 1 << 20, 5}, 4096, 1})))}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(says), std::string::npos) << status;
  }
}

TEST_F(VerbsOddServerTest, NonsenseIsRefusedWithTheAddress) {
  for (const auto& [deed, data] :
       {std::pair(Deed::kAccept, std::string(40, 'x')), std::pair(Deed::kAccept, std::string()),
        std::pair(Deed::kReject, std::string(40, 'x')), std::pair(Deed::kReject, std::string()),
        // Another memory server's, and a region that cannot be.
        std::pair(Deed::kAccept, EncodeAcceptData({{3, 1 << 20, 5}, 4096, 1})),
        std::pair(Deed::kAccept, EncodeAcceptData({{0, 7, 5}, 4096, 1})),
        std::pair(Deed::kReject, EncodeRejectData(0, Status::Ok()))}) {
    const Status status = ConnectTo(deed, data);
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable ||
                status.code() == StatusCode::kCorruption)
        << status;
    EXPECT_TRUE(status.message().find(ListenHost()) != std::string::npos ||
                status.message().starts_with("memory server 0 "))
        << status;
  }
}

TEST_F(VerbsOddServerTest, SilenceEndsAtTheConnectTimeout) {
  const Status status = ConnectTo(Deed::kIgnore, "");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("does not answer within 2000 ms"), std::string::npos) << status;
}

// A peer that is switched off says nothing. Also where a device takes 7 retries for ever, as soft RoCE.
TEST_F(VerbsOddServerTest, AServerThatFallsSilentIsNoticed) {
  RawVerbsServer server(ListenHost(), [] {
    return RawVerbsServer::Answer{Deed::kFallSilent, EncodeAcceptData({{0, 1 << 20, 5}, 4096, 1})};
  });
  auto fabric = VerbsFabric::Connect({{0, server.endpoint(), 0, 0}}, "tested", {}, &clock);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  TestClient client(**fabric, clock);
  constexpr int kConnections = 2;  // Connect's own, and the client's
  ASSERT_TRUE(Eventually([&] { return server.fallen_silent() == kConnections; }));
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(4096, &word);
  const uint64_t begin_ns = clock.NowNs();
  const Status status = client.Run(batch);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("memory server 0"), std::string::npos) << status;
  std::cout << "noticed after " << (clock.NowNs() - begin_ns) / kNsPerMs << " ms: " << status
            << "\n";
}

// ---- hostile requests on a connection that was accepted

struct VerbsHostileTest : VerbsRefusalTest, ::testing::WithParamInterface<ibv_wr_opcode> {};

TEST_P(VerbsHostileTest, WhatIsOutsideTheRegionIsOutOfReach) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient bystander(*fabric, pool.clock());
  bystander.WriteWord(0, 4096, 1);
  std::vector<std::byte> before(pool.bytes().begin(), pool.bytes().end());
  const bool reads = GetParam() == IBV_WR_RDMA_READ;
  for (int attack = 0; attack < 6; ++attack) {
    SCOPED_TRACE(attack);
    RawVerbsClient client(pool.address());
    const RemoteRegion region = client.Join(GoodHello(50 + static_cast<uint64_t>(attack)));
    std::fill(client.local().begin(), client.local().end(), std::byte{0xee});
    const uint64_t end = region.address + region.info.region_bytes;
    const std::pair<uint64_t, uint32_t> target[] = {
        {region.address, region.key ^ 1},
        {region.address, region.key + 0x100},
        {region.address - 8, region.key},
        {end, region.key},
        {region.address, 0},
        {reinterpret_cast<uint64_t>(&pool), region.key}};
    const std::string end_of_it =
        client.Run(GetParam(), target[attack].first, target[attack].second);
    EXPECT_EQ(end_of_it, ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
    if (reads) {
      EXPECT_EQ(client.local()[0], std::byte{0xee});
    }
    EXPECT_EQ(bystander.ReadWord(0, 4096), 1u);
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pool.bytes().begin()));
  bystander.FetchAdd(0, 4096, 1);
}

std::string NameOf(const ::testing::TestParamInfo<ibv_wr_opcode>& opcode) {
  switch (opcode.param) {
    case IBV_WR_RDMA_READ:
      return "Read";
    case IBV_WR_RDMA_WRITE:
      return "Write";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "CompareAndSwap";
    default:
      return "FetchAdd";
  }
}

INSTANTIATE_TEST_SUITE_P(Requests, VerbsHostileTest,
                         ::testing::Values(IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                           IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD),
                         NameOf);

TEST_F(VerbsRefusalTest, ARequestAcrossTheEndAndAMisalignedAtomicAreRefused) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient bystander(*fabric, pool.clock());
  bystander.WriteWord(0, 4096, 1);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    RawVerbsClient client(pool.address());
    const RemoteRegion region = client.Join(GoodHello());
    std::fill(client.local().begin(), client.local().end(), std::byte{0xee});
    EXPECT_NE(
        client.Run(opcode, region.address + region.info.region_bytes - 2048, region.key, 4096),
        "success");
    EXPECT_EQ(pool.WordAt(region.info.region_bytes - 2048), 0u);
  }
  RawVerbsClient client(pool.address());
  const RemoteRegion region = client.Join(GoodHello());
  EXPECT_NE(client.Run(IBV_WR_ATOMIC_FETCH_AND_ADD, region.address + 4092, region.key), "success");
  EXPECT_EQ(bystander.ReadWord(0, 4096), 1u);
}

// Nobody waits for messages: a SEND finds no buffer, and its sender alone suffers.
TEST_F(VerbsRefusalTest, ASendFindsNoBuffer) {
  VerbsPool pool;
  const auto fabric = pool.Connect();
  TestClient bystander(*fabric, pool.clock());
  RawVerbsClient client(pool.address());
  client.Join(GoodHello());
  EXPECT_NE(client.Run(IBV_WR_SEND, 0, 0, 8, 2'000), "success");
  bystander.WriteWord(0, 4096, 1);
  EXPECT_EQ(pool.WordAt(4096), 1u);
}

}  // namespace
}  // namespace farleaf::dsm
