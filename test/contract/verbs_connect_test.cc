// How clients and memory servers of the verbs fabric find each other, and find each other again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The GID index that holds an IPv4 address; "" if none does.
std::string GidIndexOf(const std::string& device, const std::string& address) {
  unsigned a, b, c, d;
  FARLEAF_CHECK(std::sscanf(address.c_str(), "%u.%u.%u.%u", &a, &b, &c, &d) == 4, address);
  char tail[16];
  std::snprintf(tail, sizeof tail, "ffff:%02x%02x:%02x%02x", a, b, c, d);
  const std::string port = "/sys/class/infiniband/" + device + "/ports/1/";
  for (int i = 0; i < 64; ++i) {
    std::string gid, type;
    std::ifstream(port + "gids/" + std::to_string(i)) >> gid;
    std::getline(std::ifstream(port + "gid_attrs/types/" + std::to_string(i)), type);
    if (gid.ends_with(tail) && type.ends_with("v2")) return std::to_string(i);
  }
  return "";
}

/// One word there and back.
void ExpectWorks(VerbsPool& pool, const VerbsOptions& options = VerbsPool::Patient()) {
  const auto fabric = pool.Connect(options);
  TestClient client(*fabric, pool.clock());
  client.FetchAdd(0, 4096, 1);
  EXPECT_EQ(client.ReadWord(0, 4096), pool.WordAt(4096));
}

struct VerbsConnectTest : VerbsTest {
  const std::string device = Environment("FARLEAF_RDMA_DEVICE");
  static VerbsDeviceChoice Choice(const std::string& text) {
    auto choice = ParseDeviceChoice(text);
    FARLEAF_CHECK(choice.ok(), choice.status());
    return *choice;
  }
  static VerbsOptions On(const std::string& choice) {
    VerbsOptions options = VerbsPool::Patient();
    options.device = Choice(choice);
    return options;
  }
  static Result<std::unique_ptr<VerbsAgent>> Listen(VerbsPool& pool,
                                                    const VerbsAgent::Options& options) {
    return VerbsAgent::Start(options, pool.Identity(0, 7), pool.bytes());
  }
};

// ---- addresses

TEST_F(VerbsConnectTest, AnIpv6AddressServes) {
  const std::string host = Environment("FARLEAF_RDMA_ADDRESS6");
  ASSERT_NE(host, "") << "the test machine tells no IPv6 address";
  VerbsPool pool({.agent = {.listen = "[" + host + "]:0"}});
  EXPECT_TRUE(pool.agent().endpoint().starts_with("verbs:[" + host + "]:"))
      << pool.agent().endpoint();
  ExpectWorks(pool);
}

TEST_F(VerbsConnectTest, AWildcardListensOnEveryAddress) {
  for (const char* wildcard : {"0.0.0.0:0", "[::]:0"}) {
    VerbsPool pool({.agent = {.listen = wildcard}});
    const std::string port = pool.address().substr(pool.address().rfind(':'));
    const std::string host =
        wildcard[0] == '0' ? ListenHost() : "[" + Environment("FARLEAF_RDMA_ADDRESS6") + "]";
    auto fabric = VerbsFabric::Connect({{0, "verbs:" + host + port, 0, 0}}, "tested",
                                       VerbsPool::Patient(), &pool.clock());
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    TestClient client(**fabric, pool.clock());
    client.WriteWord(0, 4096, 5);
    EXPECT_EQ(pool.WordAt(4096), 5u);
  }
}

TEST_F(VerbsConnectTest, AWildcardWithADeviceTellsTheDevicesAddress) {
  VerbsPool pool({.agent = {.listen = "0.0.0.0:0", .device = Choice(device)}});
  EXPECT_TRUE(pool.agent().endpoint().starts_with("verbs:" + ListenHost() + ":"))
      << pool.agent().endpoint();
  ExpectWorks(pool);
}

TEST_F(VerbsConnectTest, AnAddressThatIsAdvertisedIsTheEndpoint) {
  VerbsPool pool({.agent = {.listen = ListenHost() + ":0", .advertise = "rdma.example:7471"}});
  EXPECT_EQ(pool.agent().endpoint(), "verbs:rdma.example:7471");
}

TEST_F(VerbsConnectTest, APortThatIsTakenIsNamedAndFreeAgainAfterwards) {
  VerbsPool pool;
  const std::string address = pool.address();
  auto second = Listen(pool, {.listen = address});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().ToString(),
            "already exists: somebody else listens on " + address + " over RDMA");
  ExpectWorks(pool);
  pool.StopAgent(0);
  Status restarted = pool.StartAgent(0, 7, address);
  ASSERT_TRUE(restarted.ok()) << restarted;
  ExpectWorks(pool);
}

TEST_F(VerbsConnectTest, AnAddressWithoutAnRdmaDeviceIsRefusedWithTheRemedy) {
  VerbsPool pool;
  auto agent = Listen(pool, {.listen = "192.0.2.1:0"});  // of no machine (RFC 5737)
  ASSERT_FALSE(agent.ok());
  EXPECT_EQ(agent.status().code(), StatusCode::kInvalidArgument) << agent.status();
  for (const char* says : {"192.0.2.1", "RDMA", "`rdma link`"}) {
    EXPECT_NE(agent.status().message().find(says), std::string::npos) << agent.status();
  }
}

// ---- the choice of a device

TEST_F(VerbsConnectTest, ADeviceIsChosenByNamePortAndGid) {
  const std::string gid = GidIndexOf(device, ListenHost());
  ASSERT_NE(gid, "") << device << " has no GID for " << ListenHost();
  for (const std::string& choice : {device, device + ":1", device + ":1:" + gid,
                                    device + "::" + gid, std::string(":1:"), "::" + gid}) {
    SCOPED_TRACE(choice);
    VerbsPool pool({.agent = {.listen = ListenHost() + ":0", .device = Choice(choice)}});
    ExpectWorks(pool, On(choice));
  }
}

TEST_F(VerbsConnectTest, AChoiceThatIsNotThereIsRefusedWithWhatThereIs) {
  VerbsPool pool;
  for (const std::string& choice : {std::string("mlx5_7"), device + ":9", device + ":1:200"}) {
    SCOPED_TRACE(choice);
    auto agent = Listen(pool, {.listen = ListenHost() + ":0", .device = Choice(choice)});
    auto fabric = pool.TryConnect(On(choice));
    ASSERT_FALSE(agent.ok() || fabric.ok());
    for (const Status& status : {agent.status(), fabric.status()}) {
      EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
      for (const std::string& says : {"RDMA device " + choice.substr(0, choice.find(':')),
                                      "there are: " + device + " port 1 at " + ListenHost()}) {
        EXPECT_NE(status.message().find(says), std::string::npos) << status;
      }
    }
  }
}

TEST_F(VerbsConnectTest, AnAddressOfAnotherDeviceThanTheChosenIsRefused) {
  VerbsPool pool;
  auto agent = Listen(pool, {.listen = "127.0.0.1:0", .device = Choice(device)});
  ASSERT_FALSE(agent.ok());
  EXPECT_EQ(agent.status().code(), StatusCode::kInvalidArgument);
  for (const std::string& says : {ListenHost(), std::string("127.0.0.1:0")}) {
    EXPECT_NE(agent.status().message().find(says), std::string::npos) << agent.status();
  }
}

// ---- servers that come back

struct VerbsReconnectTest : VerbsTest {
  /// Reads until it ends as `done` says, or a minute is over.
  static Status ReadUntil(VerbsPool& pool, TestClient& client, bool (*done)(const Status&)) {
    Status status;
    uint64_t word = 0;
    const uint64_t deadline_ns = pool.clock().NowNs() + TestClient::kDeadlineNs;
    do {
      Batch batch(0);
      batch.ReadWord(4096, &word);
      status = client.Run(batch);
    } while (!done(status) && pool.clock().NowNs() < deadline_ns);
    return status;
  }
};

TEST_F(VerbsReconnectTest, ARestartedServerIsLostForGood) {
  VerbsPool pool;
  const std::string address = pool.address();
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  client.WriteWord(0, 4096, 1);
  pool.StopAgent(0);
  const Status gone = ReadUntil(pool, client, [](const Status& s) { return !s.ok(); });
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone;
  Status restarted = pool.StartAgent(0, 999, address);
  ASSERT_TRUE(restarted.ok()) << restarted;
  const Status lost = ReadUntil(
      pool, client, [](const Status& s) { return s.message().ends_with("incarnation)"); });
  EXPECT_EQ(lost.ToString(),
            "unavailable: memory server 0 lost (restarted with another incarnation)");
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(4096, &word);
  EXPECT_EQ(client.Run(batch).ToString(), lost.ToString());
  // So is it to transports that are opened now.
  TestClient late(*fabric, pool.clock());
  Batch again(0);
  again.ReadWord(4096, &word);
  EXPECT_EQ(late.Run(again).ToString(), lost.ToString());
}

TEST_F(VerbsReconnectTest, AServerWithTheSameIncarnationIsTakenUpAgain) {
  VerbsPool pool;
  const std::string address = pool.address();
  const auto fabric = pool.Connect();
  TestClient client(*fabric, pool.clock());
  client.WriteWord(0, 4096, 17);
  for (int i = 0; i < 3; ++i) {
    pool.StopAgent(0);
    const Status gone = ReadUntil(pool, client, [](const Status& s) { return !s.ok(); });
    EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone;
    Status back = pool.StartAgent(0, 100, address);
    ASSERT_TRUE(back.ok()) << back;
    const Status status = ReadUntil(pool, client, [](const Status& s) { return s.ok(); });
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(client.ReadWord(0, 4096), 17u);
}

}  // namespace
}  // namespace farleaf::dsm
