// The memory server in this process, and as the process that is shipped.
#include "server/memory_server.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "dsm/bootstrap/in_process_directory.h"
#include "dsm/bootstrap/open_directory.h"
#include "dsm/bootstrap/open_fabric.h"
#include "dsm/region_layout.h"
#include "test/support/child_process.h"
#include "test/support/fabric_under_test.h"
#include "test/support/memcached_under_test.h"

namespace farleaf::server {
namespace {

using dsm::TempFolder;
using dsm::TestClient;

constexpr uint64_t kRegionBytes = 16 << 20;

struct MemoryServerTest : ::testing::Test {
  TempFolder folder;
  MonotonicClock clock;
  dsm::InProcessDirectory directory{"tested"};

  MemoryServerOptions Options(FabricChoice fabric, dsm::ServerId id = 0) {
    MemoryServerOptions options;
    options.id = id;
    options.fabric = fabric;
    options.region_bytes = kRegionBytes;
    options.hugepages = dsm::Hugepages::kNever;
    options.socket = folder.File(std::to_string(id) + ".sock");
    return options;
  }
  Result<std::unique_ptr<MemoryServer>> Start(const MemoryServerOptions& options,
                                              uint64_t incarnation = 5) {
    return MemoryServer::Start(options, {&directory, &clock, incarnation, {}});
  }
  std::string StartError(const MemoryServerOptions& options) {
    auto server = Start(options);
    return server.ok() ? "ok" : server.status().ToString();
  }
};

TEST_F(MemoryServerTest, ServesAFormattedRegionOnEitherFabric) {
  for (const FabricChoice choice : {FabricChoice::kShm, FabricChoice::kTcp}) {
    MemoryServerOptions options = Options(choice);
    options.prefault = true;
    auto server = Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    auto fabric = dsm::OpenFabric(directory, {}, &clock);
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    TestClient client(**fabric, clock);
    std::vector<std::byte> header(sizeof(dsm::RegionHeader));
    dsm::Batch read(0);
    read.Read(0, header);
    Status status = client.Run(read);
    ASSERT_TRUE(status.ok()) << status;
    auto layout = dsm::RegionLayout::Parse(header);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->incarnation, 5u);
    EXPECT_EQ((*fabric)->regions()[0].incarnation, 5u);
    Status stopped = (*server)->Stop();
    EXPECT_TRUE(stopped.ok()) << stopped;
    EXPECT_TRUE(directory.List()->empty());
  }
}

TEST_F(MemoryServerTest, AFileIsExposedWithoutItsOldBytes) {
  MemoryServerOptions options = Options(FabricChoice::kShm);
  options.file = folder.File("region");
  std::ofstream(options.file) << std::string(kRegionBytes, 'x');
  auto server = Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  auto fabric = dsm::OpenFabric(directory, {}, &clock);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_EQ(TestClient(**fabric, clock).ReadWord(0, kRegionBytes - 8), 0u);
}

TEST_F(MemoryServerTest, WrongOptionsAreRefusedWithTheirReason) {
  MemoryServerOptions options = Options(FabricChoice::kShm);
  options.region_bytes = 1 << 20;
  EXPECT_TRUE(
      StartError(options).starts_with("invalid argument: region size 1048576 holds no chunk"));
  options = Options(FabricChoice::kShm);
  options.chunk_bytes = 100'000;
  EXPECT_TRUE(
      StartError(options).starts_with("invalid argument: chunk size 100000 is not a power of two"));
  options = Options(FabricChoice::kShm);
  options.region_bytes = uint64_t{1} << 45;
  EXPECT_TRUE(
      StartError(options).starts_with("invalid argument: size 32TiB is more than this machine's"));
  options = Options(FabricChoice::kShm);
  options.cluster = "other";
  EXPECT_EQ(StartError(options),
            "invalid argument: the directory is of cluster 'tested', not 'other'");
  options = Options(FabricChoice::kShm);
  options.socket = std::string(200, 'x');
  EXPECT_NE(StartError(options).find("allowed are 1 to 107"), std::string::npos);
  options.socket = "/nonexistent/x.sock";
  EXPECT_EQ(StartError(options),
            "i/o error: cannot listen on /nonexistent/x.sock: No such file or directory");
  options = Options(FabricChoice::kTcp);
  options.listen = "0.0.0.0:0";
  EXPECT_NE(StartError(options).find("allow it with --insecure"), std::string::npos);
  options.insecure = true;
  EXPECT_NE(StartError(options).find("--advertise HOST:PORT"), std::string::npos);
  options.advertise = "127.0.0.1:7100";
  options.lease_ms = 99;
  EXPECT_EQ(
      StartError(options),
      "invalid argument: lease_ms 99 is too short to be renewed in time; allowed are 0 and 100 "
      "to 3600000");
  options.lease_ms = 0;
  EXPECT_EQ(StartError(options), "ok");
  options.listen = "localhost";
  EXPECT_EQ(StartError(options), "invalid argument: listen: 'localhost' is not HOST:PORT");
}

TEST_F(MemoryServerTest, ATakenPortSocketOrIdIsNamed) {
  auto tcp = Start(Options(FabricChoice::kTcp));
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  MemoryServerOptions options = Options(FabricChoice::kTcp, 1);
  options.listen = (*tcp)->endpoint().endpoint.substr(4);
  EXPECT_EQ(StartError(options), "already exists: cannot listen on " + options.listen +
                                     ": another process listens there");
  auto same_id = Start(Options(FabricChoice::kTcp), 6);
  EXPECT_EQ(same_id.status().ToString(),
            "already exists: memory server id 0 is taken by " + (*tcp)->endpoint().endpoint);
  auto shm = Start(Options(FabricChoice::kShm, 1));
  ASSERT_TRUE(shm.ok()) << shm.status();
  options = Options(FabricChoice::kShm, 2);
  options.socket = folder.File("1.sock");
  EXPECT_EQ(StartError(options), "already exists: cannot listen on " + options.socket +
                                     ": another process listens there");
}

// ---- the process ---------------------------------------------------------------------------------

struct MemoryServerProcessTest : ::testing::Test {
  TempFolder folder;
  MonotonicClock clock;
  MemcachedUnderTest memcached{folder.File("memcached.log")};
  int started = 0;

  std::unique_ptr<ChildProcess> Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {FARLEAF_MEMORY_SERVER, "--size", "16MiB", "--bootstrap",
                                 memcached.Url("tested")});
    return std::make_unique<ChildProcess>(flags, folder.File(std::to_string(started++) + ".log"));
  }
  std::unique_ptr<dsm::Directory> Directory() {
    return std::move(*dsm::OpenDirectory(memcached.Url("tested")));
  }
  /// As if the announcements of killed servers had expired.
  void WithdrawAll() {
    auto directory = Directory();
    auto left = directory->List();
    ASSERT_TRUE(left.ok()) << left.status();
    for (const dsm::ServerEndpoint& endpoint : *left) {
      ASSERT_TRUE(directory->Withdraw(endpoint).ok());
    }
  }
  std::unique_ptr<dsm::Fabric> Open(uint32_t servers) {
    auto directory = Directory();
    dsm::OpenFabricOptions options;
    options.servers_min = servers;
    options.wait_ms = 60'000;
    auto fabric = dsm::OpenFabric(*directory, options, &clock);
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    return std::move(*fabric);
  }
  std::vector<std::string> Flags(const std::string& fabric, int id) {
    return {"--fabric",         fabric,     "--id",
            std::to_string(id), "--socket", folder.File(std::to_string(id) + ".sock")};
  }
};

TEST_F(MemoryServerProcessTest, SigtermEndsItCleanly) {
  for (const char* fabric_name : {"shm", "tcp"}) {
    auto server = Start(Flags(fabric_name, 0));
    auto fabric = Open(1);
    TestClient client(*fabric, clock);
    client.WriteWord(0, 8 << 20, 17);
    EXPECT_EQ(client.ReadWord(0, 8 << 20), 17u);
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait(), 0) << server->Output();
    EXPECT_TRUE(Directory()->List()->empty()) << server->Output();
    EXPECT_FALSE(std::filesystem::exists(folder.File("0.sock")));
  }
}

TEST_F(MemoryServerProcessTest, AKilledServerFailsItsClientsAndNoOthers) {
  for (const char* fabric_name : {"shm", "tcp"}) {
    auto zero = Start(Flags(fabric_name, 0)), one = Start(Flags(fabric_name, 1));
    auto fabric = Open(2);
    TestClient client(*fabric, clock);
    client.WriteWord(1, 8 << 20, 1);
    one->Signal(SIGKILL);
    const uint64_t deadline_ns = clock.NowNs() + TestClient::kDeadlineNs;
    Status status;
    while (status.ok() && clock.NowNs() < deadline_ns) {
      uint64_t word = 0;
      dsm::Batch batch(1);
      batch.ReadWord(8 << 20, &word);
      status = client.Run(batch);
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_TRUE(status.message().starts_with("memory server 1 lost")) << status;
    client.WriteWord(0, 8 << 20, 2);
    zero->Signal(SIGTERM);
    EXPECT_EQ(zero->Wait(), 0);
    ASSERT_TRUE(one->Wait().has_value());
    // Its announcement is left, and so is its socket: both are in nobody's way after the expiry.
    WithdrawAll();
  }
}

TEST_F(MemoryServerProcessTest, ALeftOverSocketIsReplaced) {
  auto first = Start(Flags("shm", 0));
  auto fabric = Open(1);
  first->Signal(SIGKILL);
  ASSERT_TRUE(first->Wait().has_value());
  ASSERT_TRUE(std::filesystem::exists(folder.File("0.sock")));
  WithdrawAll();
  auto second = Start(Flags("shm", 0));
  auto again = Open(1);
  EXPECT_NE(again->regions()[0].incarnation, fabric->regions()[0].incarnation);
}

TEST_F(MemoryServerProcessTest, TwoThatClaimOneIdEndWithOne) {
  auto first = Start(Flags("tcp", 0));
  auto fabric = Open(1);
  auto second = Start(Flags("tcp", 0));
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_NE(
      second->Output().find("memory server id 0 of cluster 'tested' is taken by tcp:127.0.0.1:"),
      std::string::npos)
      << second->Output();
  EXPECT_TRUE(first->running());
}

TEST_F(MemoryServerProcessTest, WrongFlagsAndFilesExitWithTwo) {
  auto flag = Start({"--fabric", "carrier-pigeon"});
  EXPECT_EQ(flag->Wait(), 2);
  EXPECT_NE(
      flag->Output().find("--fabric: 'carrier-pigeon' is not known; allowed: shm, tcp or verbs"),
      std::string::npos)
      << flag->Output();
  std::ofstream(folder.File("config.toml")) << "size = '16MiB'\nsokcet = '/tmp/x'\n";
  auto file = Start({"--config", folder.File("config.toml")});
  EXPECT_EQ(file->Wait(), 2);
  EXPECT_NE(file->Output().find("config.toml, line 2: sokcet: unknown key; did you mean socket?"),
            std::string::npos)
      << file->Output();
}

TEST_F(MemoryServerProcessTest, AnUnreachableMemcachedIsNamed) {
  memcached.Stop();
  auto server = Start(Flags("tcp", 0));
  EXPECT_EQ(server->Wait(), 1);
  EXPECT_NE(server->Output().find("memcached at " + memcached.address()), std::string::npos)
      << server->Output();
}

TEST_F(MemoryServerProcessTest, HelpNamesEveryKeyOnce) {
  auto server = Start({"--help"});
  EXPECT_EQ(server->Wait(), 0);
  for (const char* key :
       {"--bootstrap", "--id", "--size", "--chunk-size", "--hugepages", "--insecure"}) {
    const std::string text = server->Output();
    EXPECT_NE(text.find("  " + std::string(key) + " "), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace farleaf::server
