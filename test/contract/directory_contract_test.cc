// The directory contract (dsm/directory.h), on every directory; then what is special to each.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "dsm/bootstrap/file_directory.h"
#include "dsm/bootstrap/in_process_directory.h"
#include "dsm/bootstrap/memcached_directory.h"
#include "dsm/bootstrap/open_directory.h"
#include "dsm/bootstrap/open_fabric.h"
#include "test/support/fabric_under_test.h"
#include "test/support/memcached_under_test.h"

namespace farleaf::dsm {
namespace {

enum class Kind : uint8_t { kInProcess, kFile, kMemcached };

const ServerEndpoint kZero{0, "tcp:127.0.0.1:7100", 1 << 20, 11};
const ServerEndpoint kOne{1, "tcp:127.0.0.1:7101", 1 << 20, 12};

struct DirectoryContract : ::testing::TestWithParam<Kind> {
  TempFolder folder;
  std::unique_ptr<MemcachedUnderTest> memcached;
  std::unique_ptr<Directory> directory;

  DirectoryContract() {
    switch (GetParam()) {
      case Kind::kInProcess:
        directory = std::make_unique<InProcessDirectory>("rack7");
        break;
      case Kind::kFile: {
        std::ofstream(folder.File("d")) << "# comment\ncluster rack7\n1 " << kOne.endpoint
                                        << " # one\n\n0 " << kZero.endpoint << "\n";
        directory = Open("file:" + folder.File("d"));
        break;
      }
      case Kind::kMemcached:
        memcached = std::make_unique<MemcachedUnderTest>(folder.File("memcached.log"));
        directory = Open(memcached->Url("rack7"));
        break;
    }
  }
  static std::unique_ptr<Directory> Open(const std::string& url) {
    auto opened = OpenDirectory(url);
    FARLEAF_CHECK(opened.ok(), opened.status());
    return std::move(*opened);
  }
  std::string Publish(const ServerEndpoint& endpoint) {
    return directory->Publish(endpoint).ToString();
  }
};

TEST_P(DirectoryContract, NamesItsCluster) { EXPECT_EQ(directory->cluster(), "rack7"); }

TEST_P(DirectoryContract, WhatIsPublishedIsListedInOrder) {
  ASSERT_EQ(Publish(kOne), "ok");
  ASSERT_EQ(Publish(kZero), "ok");
  auto servers = directory->List();
  ASSERT_TRUE(servers.ok()) << servers.status();
  ASSERT_EQ(servers->size(), 2u);
  EXPECT_EQ((*servers)[0].server, 0);
  EXPECT_EQ((*servers)[0].endpoint, kZero.endpoint);
  EXPECT_EQ((*servers)[1].endpoint, kOne.endpoint);
}

TEST_P(DirectoryContract, PublishingAgainRenews) {
  ASSERT_EQ(Publish(kZero), "ok");
  EXPECT_EQ(Publish(kZero), "ok");
}

/// A static file does not know who is alive; the others do.
struct LiveDirectoryContract : DirectoryContract {};

TEST_P(LiveDirectoryContract, AnIdHasOneIncarnation) {
  ASSERT_EQ(Publish(kZero), "ok");
  ServerEndpoint other = kZero;
  other.incarnation = 99;
  Status status = directory->Publish(other);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
  EXPECT_NE(status.message().find("memory server id 0"), std::string::npos) << status;
  EXPECT_NE(status.message().find(kZero.endpoint), std::string::npos) << status;
  Status foreign = directory->Withdraw(other);  // withdraws nothing of the first
  EXPECT_TRUE(foreign.ok()) << foreign;
  EXPECT_EQ(directory->List()->size(), 1u);
  Status withdrawn = directory->Withdraw(kZero);
  EXPECT_TRUE(withdrawn.ok()) << withdrawn;
  EXPECT_TRUE(directory->List()->empty());
  EXPECT_TRUE(directory->Publish(other).ok());
}

std::string KindName(Kind kind) {
  constexpr const char* kNames[] = {"in_process", "file", "memcached"};
  return kNames[static_cast<size_t>(kind)];
}
INSTANTIATE_TEST_SUITE_P(Directories, DirectoryContract,
                         ::testing::Values(Kind::kInProcess, Kind::kFile, Kind::kMemcached),
                         [](const auto& kind) { return KindName(kind.param); });

INSTANTIATE_TEST_SUITE_P(Directories, LiveDirectoryContract,
                         ::testing::Values(Kind::kInProcess, Kind::kMemcached),
                         [](const auto& kind) { return KindName(kind.param); });

struct MemcachedDirectoryTest : ::testing::Test {
  TempFolder folder;
  MemcachedUnderTest memcached{folder.File("memcached.log")};
  MemcachedDirectory NewDirectory(uint32_t expiry_s = 15) {
    return MemcachedDirectory("127.0.0.1", static_cast<uint16_t>(std::stoi(memcached.port())),
                              "rack7", {.expiry_s = expiry_s});
  }
};

TEST_F(MemcachedDirectoryTest, ClustersDoNotSeeEachOther) {
  auto rack7 = OpenDirectory(memcached.Url("rack7")), rack8 = OpenDirectory(memcached.Url("rack8"));
  ASSERT_TRUE((*rack7)->Publish(kZero).ok());
  EXPECT_TRUE((*rack8)->List()->empty());
}

TEST_F(MemcachedDirectoryTest, EverythingPublishedByManyAtOnceIsListed) {
  constexpr uint16_t kServers = 12;
  std::vector<std::thread> threads;
  for (uint16_t i = 0; i < kServers; ++i) {
    threads.emplace_back([this, i] {
      MemcachedDirectory directory = NewDirectory();
      Status status = directory.Publish({i, "tcp:127.0.0.1:7100", 1 << 20, i + 1u});
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  MemcachedDirectory directory = NewDirectory();
  auto servers = directory.List();
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_EQ(servers->size(), kServers);
}

TEST_F(MemcachedDirectoryTest, OfTwoThatClaimOneIdOneWins) {
  std::atomic<int> won{0}, refused{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i <= 8; ++i) {
    threads.emplace_back([&, i] {
      MemcachedDirectory directory = NewDirectory();
      Status status = directory.Publish({3, "tcp:127.0.0.1:7100", 1 << 20, i});
      won += status.ok();
      refused += status.code() == StatusCode::kAlreadyExists;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(refused, 7);
}

TEST_F(MemcachedDirectoryTest, AServerThatDoesNotRenewVanishes) {
  MemcachedDirectory directory = NewDirectory(1);
  ASSERT_TRUE(directory.Publish(kZero).ok());
  const MonotonicClock clock;
  const uint64_t deadline_ns = clock.NowNs() + 60 * kNsPerSecond;
  while (true) {
    auto servers = directory.List();
    ASSERT_TRUE(servers.ok()) << servers.status();
    if (servers->empty()) break;
    ASSERT_LT(clock.NowNs(), deadline_ns);
  }
  ServerEndpoint other = kZero;
  other.incarnation = 99;
  EXPECT_TRUE(directory.Publish(other).ok());
}

TEST_F(MemcachedDirectoryTest, ARestartedMemcachedHealsByRenewal) {
  MemcachedDirectory directory = NewDirectory();
  ASSERT_TRUE(directory.Publish(kZero).ok());
  memcached.Stop();
  Status status = directory.Publish(kZero);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(memcached.address()), std::string::npos) << status;
  EXPECT_EQ(directory.List().status().code(), StatusCode::kUnavailable);
  memcached.Start();
  EXPECT_TRUE(directory.List()->empty());
  Status renewed = directory.Publish(kZero);
  EXPECT_TRUE(renewed.ok()) << renewed;
  EXPECT_EQ(directory.List()->size(), 1u);
}

TEST(AnnouncementTest, RoundTripsAndRefusesAnythingElse) {
  auto parsed = ParseAnnouncement(0, EncodeAnnouncement(kZero));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, kZero);
  for (const char* bad : {"", "tcp:x", "tcp:x 1", "tcp:x 1 y", "tcp:x 1 2 3", "tcp:x -"}) {
    EXPECT_EQ(ParseAnnouncement(0, bad).status().code(), StatusCode::kCorruption) << bad;
  }
}

TEST(DirectoryFileTest, WrongLinesAreNamed) {
  const auto error = [](std::string_view text) {
    return ParseDirectoryFile(text, "d").status().ToString();
  };
  EXPECT_EQ(error(""), "invalid argument: d: 'cluster NAME' is missing");
  EXPECT_EQ(error("0 tcp:x:1"), "invalid argument: d, line 1: 'cluster NAME' comes first");
  EXPECT_EQ(error("cluster a\n\nx tcp:x:1"),
            "invalid argument: d, line 3: 'x' is not a memory server id (0 to 65535)");
  EXPECT_EQ(error("cluster a\n65536 tcp:x:1"),
            "invalid argument: d, line 2: '65536' is not a memory server id (0 to 65535)");
  EXPECT_EQ(error("cluster a\n1 x:1"),
            "invalid argument: d, line 2: endpoint 'x:1' is none of shm:PATH, tcp:HOST:PORT and "
            "verbs:HOST:PORT");
  EXPECT_EQ(error("cluster a\n1"),
            "invalid argument: d, line 2: 'cluster NAME' or 'ID ENDPOINT' expected");
  EXPECT_EQ(error("cluster a\n1 tcp:x:1\n1 tcp:x:2"),
            "invalid argument: d, line 3: memory server 1 is listed twice");
  EXPECT_EQ(error("cluster a\ncluster b"),
            "invalid argument: d, line 2: the cluster is named twice");
}

TEST(DirectoryFileTest, AServerThatIsNotListedIsToldSo) {
  TempFolder folder;
  std::ofstream(folder.File("d")) << "cluster rack7\n0 tcp:127.0.0.1:7100\n";
  auto directory = OpenDirectory("file:" + folder.File("d"));
  ASSERT_TRUE(directory.ok());
  EXPECT_NE((*directory)->Publish(kOne).message().find("add the line '1 tcp:127.0.0.1:7101'"),
            std::string::npos);
  ServerEndpoint elsewhere = kZero;
  elsewhere.endpoint = "tcp:127.0.0.1:9";
  EXPECT_NE((*directory)
                ->Publish(elsewhere)
                .message()
                .find("lists memory server 0 at tcp:127.0.0.1:7100"),
            std::string::npos);
}

TEST(OpenDirectoryTest, WrongUrlsAreRefused) {
  for (const char* url : {"", "redis://h:1/c", "memcached://", "memcached://h/c",
                          "memcached://h:0/c", "memcached://h:99999/c", "memcached://h:1",
                          "memcached://h:1/", "memcached://:1/c", "memcached://h:1/a b"}) {
    EXPECT_EQ(OpenDirectory(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  EXPECT_EQ(OpenDirectory("file:/nonexistent/d").status().ToString(),
            "not found: directory file /nonexistent/d: No such file or directory");
}

struct OpenFabricTest : ::testing::Test {
  MonotonicClock clock;
  InProcessDirectory directory{"tested"};
  FabricUnderTest tcp{FabricKind::kTcp};
  OpenFabricOptions options{.servers_min = 2, .wait_ms = 1, .poll_interval_ms = 1};
  void Publish(const ServerEndpoint& endpoint) { EXPECT_TRUE(directory.Publish(endpoint).ok()); }
  std::string Error() {
    auto fabric = OpenFabric(directory, options, &clock);
    return fabric.ok() ? "ok" : fabric.status().ToString();
  }
};

TEST_F(OpenFabricTest, ConnectsToAllThatAreListed) {
  for (ServerId i : {ServerId{0}, ServerId{1}}) Publish(tcp.server(i).endpoint());
  auto fabric = OpenFabric(directory, options, &clock);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_EQ((*fabric)->name(), "tcp");
  EXPECT_EQ((*fabric)->regions().size(), 2u);
}

TEST_F(OpenFabricTest, TheUrlCarriesOptionsOfTheFabric) {
  TempFolder folder;
  std::ofstream(folder.File("d")) << "cluster tested\n0 " << tcp.server(0).endpoint().endpoint
                                  << "\n1 " << tcp.server(1).endpoint().endpoint << "\n";
  const std::string url = "file:" + folder.File("d");
  for (const char* good :
       {"", "?", "?rdma_device=mlx5_0:1:3",
        "?rdma_device=&rdma_queue_pairs=8&rdma_ack_timeout_ms=20&rdma_retries=7"}) {
    auto fabric = OpenFabric(url + good, options, &clock);
    EXPECT_TRUE(fabric.ok()) << good << ": " << fabric.status();
  }
  for (const char* bad : {"?rdma_device=a:b", "?rdma_device=a:1:2:3", "?rdma_queue_pairs=0",
                          "?rdma_retries=8", "?rdma_retries=", "?rdma_retries", "?speed=fast",
                          "?rdma_ack_timeout_ms=-1", "?rdma_ack_timeout_ms=1x&rdma_retries=1"}) {
    auto fabric = OpenFabric(url + bad, options, &clock);
    EXPECT_EQ(fabric.status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(OpenFabricTest, SaysWhatIsMissingWhenTheTimeIsOver) {
  EXPECT_EQ(Error(),
            "unavailable: gave up after 1 ms: cluster 'tested' has 0 memory servers, 2 are needed");
  Publish(tcp.server(1).endpoint());
  EXPECT_EQ(Error(),
            "unavailable: gave up after 1 ms: memory server 0 of cluster 'tested' is missing "
            "(memory server 1 is there)");
}

TEST_F(OpenFabricTest, WaitsForServersThatComeLater) {
  options.wait_ms = 60'000;
  std::thread later([this] {
    Publish(tcp.server(1).endpoint());
    Publish(tcp.server(0).endpoint());
  });
  EXPECT_EQ(Error(), "ok");
  later.join();
}

TEST_F(OpenFabricTest, RefusesMixedFabricsAtOnce) {
  options.wait_ms = 600'000;
  Publish(tcp.server(0).endpoint());
  Publish({1, "shm:/tmp/x.sock", 0, 5});
  EXPECT_EQ(Error(),
            "invalid argument: memory server 0 is on fabric tcp, memory server 1 on shm: a pool "
            "uses one fabric");
}

TEST_F(OpenFabricTest, ADeadEndpointIsNamed) {
  Publish(tcp.server(0).endpoint());
  Publish(tcp.server(1).endpoint());
  tcp.KillServer(1);
  const std::string error = Error();
  EXPECT_NE(error.find("memory server 1 lost: cannot connect to 127.0.0.1:"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace farleaf::dsm
