// Memory servers in this process, and a fabric attached to them: one for each kind of fabric, so
// that one test runs on all of them.
//
// Thread rule: one thread builds and kills; the fabric is thread-safe.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/delay/delay_fabric.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/memory_region.h"
#include "dsm/shm/shm_agent.h"
#include "dsm/shm/shm_fabric.h"
#include "dsm/socket.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/tcp/tcp_fabric.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

enum class FabricKind : uint8_t { kLocal, kShm, kTcp, kTcpTwoAgents, kLocalDelayed };

inline std::string FabricKindName(FabricKind kind) {
  constexpr const char* kNames[] = {"local", "shm", "tcp", "tcp_two_agents", "local_delayed"};
  return kNames[static_cast<size_t>(kind)];
}

/// A directory for sockets and files of one test, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    char path[] = "/tmp/farleaf-test-XXXXXX";
    FARLEAF_CHECK(::mkdtemp(path) != nullptr, errno);
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// One memory server's region and agent, without the process around it.
struct RegionServer {
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<RegionAgent> agent;
  ServerIdentity identity;

  ServerEndpoint endpoint() const {
    return {identity.region.server, agent->endpoint(), identity.region.region_bytes,
            identity.region.incarnation};
  }
};

class FabricUnderTest {
 public:
  static constexpr uint64_t kRegionBytes = uint64_t{40} << 20;
  static constexpr uint32_t kServers = 2;

  explicit FabricUnderTest(FabricKind kind) : kind_(kind) {
    if (kind == FabricKind::kLocal || kind == FabricKind::kLocalDelayed) {
      auto local = LocalFabric::Create(
          {.servers = kServers, .region_bytes = kRegionBytes, .hugepages = Hugepages::kNever});
      FARLEAF_CHECK(local.ok(), local.status());
      local_ = local->get();
      fabric_ = std::move(*local);
      if (kind == FabricKind::kLocalDelayed) {
        const DelayOptions delay{.delay_ns = 20'000, .jitter_ns_max = 50'000, .seed = 7};
        fabric_ = std::make_unique<DelayFabric>(std::move(fabric_), delay, &clock_);
      }
      return;
    }
    std::vector<ServerEndpoint> endpoints;
    for (uint32_t i = 0; i < kServers; ++i) {
      servers_.push_back(StartServer(static_cast<ServerId>(i), 100 + i));
      endpoints.push_back(servers_.back().endpoint());
    }
    fabric_ = Connect(endpoints);
  }

  Fabric& fabric() { return *fabric_; }
  const Clock& clock() const { return clock_; }
  FabricKind kind() const { return kind_; }
  bool is_tcp() const { return kind_ == FabricKind::kTcp || kind_ == FabricKind::kTcpTwoAgents; }

  /// What a process's death looks like to its clients.
  void KillServer(ServerId server) {
    if (local_) {
      local_->KillServer(server);
    } else {
      servers_[server].agent.reset();
    }
  }
  RegionServer& server(ServerId id) { return servers_[id]; }

  RegionServer StartServer(ServerId id, uint64_t incarnation,
                           const std::string& listen = "127.0.0.1:0") {
    RegionServer server;
    auto region = MemoryRegion::Create({kRegionBytes, Hugepages::kNever, ""});
    FARLEAF_CHECK(region.ok(), region.status());
    server.region = std::make_unique<MemoryRegion>(std::move(*region));
    server.identity = {"tested", {id, kRegionBytes, incarnation}};
    if (kind_ == FabricKind::kShm) {
      auto agent = ShmAgent::Start({folder_.File(std::to_string(id) + ".sock")}, server.identity,
                                   *server.region, &clock_);
      FARLEAF_CHECK(agent.ok(), agent.status());
      server.agent = std::move(*agent);
    } else {
      TcpAgent::Options options;
      options.listen = listen;
      options.threads = kind_ == FabricKind::kTcpTwoAgents ? 2 : 1;
      auto agent = TcpAgent::Start(options, server.identity, server.region->bytes(), &clock_);
      FARLEAF_CHECK(agent.ok(), agent.status());
      server.agent = std::move(*agent);
    }
    return server;
  }

 private:
  std::unique_ptr<Fabric> Connect(const std::vector<ServerEndpoint>& endpoints) {
    if (kind_ == FabricKind::kShm) {
      auto shm = ShmFabric::Connect(endpoints, "tested", {.connect_timeout_ms = 20'000}, &clock_);
      FARLEAF_CHECK(shm.ok(), shm.status());
      return std::move(*shm);
    }
    const TcpLinkOptions options{.connect_timeout_ms = 5'000, .stall_timeout_ms = 60'000};
    auto tcp = TcpFabric::Connect(endpoints, "tested", options, &clock_);
    FARLEAF_CHECK(tcp.ok(), tcp.status());
    return std::move(*tcp);
  }

  FabricKind kind_;
  MonotonicClock clock_;
  TempFolder folder_;
  std::vector<RegionServer> servers_;
  LocalFabric* local_ = nullptr;
  std::unique_ptr<Fabric> fabric_;
};

/// One thread's use of a transport, step by step: no coroutines.
class TestClient {
 public:
  static constexpr uint64_t kDeadlineNs = 60 * kNsPerSecond;

  TestClient(Fabric& fabric, const Clock& clock)
      : clock_(clock), wake_fd_(::eventfd(0, EFD_NONBLOCK)) {
    auto transport = fabric.OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    transport_ = std::move(*transport);
  }

  void Post(Batch& batch, RoundTripState& state) {
    state.AddBatch();
    batch.set_round_trip(&state);
    transport_->Post(batch);
  }
  void Await(const RoundTripState& state) {
    const uint64_t deadline_ns = clock_.NowNs() + kDeadlineNs;
    while (!state.done()) {
      if (transport_->Poll() == 0 && !state.done())
        transport_->Wait(wake_fd_.get(), 100 * kNsPerMs);
      FARLEAF_CHECK(clock_.NowNs() < deadline_ns, "a batch did not complete");
    }
  }
  Status Run(Batch& batch) {
    RoundTripState state;
    Post(batch, state);
    Await(state);
    return batch.status();
  }

  // The fixture's small language; every failure is a test failure.
  uint64_t ReadWord(ServerId server, uint64_t offset) {
    uint64_t word = 0;
    Batch batch(server);
    batch.ReadWord(offset, &word);
    Status status = Run(batch);
    EXPECT_TRUE(status.ok()) << status;
    return word;
  }
  void WriteWord(ServerId server, uint64_t offset, uint64_t word) {
    Batch batch(server);
    batch.WriteWord(offset, &word);
    Status status = Run(batch);
    EXPECT_TRUE(status.ok()) << status;
  }
  uint64_t FetchAdd(ServerId server, uint64_t offset, uint64_t add) {
    uint64_t old = 0;
    Batch batch(server);
    batch.FetchAdd(offset, add, &old);
    Status status = Run(batch);
    EXPECT_TRUE(status.ok()) << status;
    return old;
  }
  uint64_t CompareAndSwap(ServerId server, uint64_t offset, uint64_t expected, uint64_t desired) {
    uint64_t old = 0;
    Batch batch(server);
    batch.CompareAndSwap(offset, expected, desired, &old);
    Status status = Run(batch);
    EXPECT_TRUE(status.ok()) << status;
    return old;
  }

  Transport& transport() { return *transport_; }
  int wake_fd() const { return wake_fd_.get(); }

 private:
  const Clock& clock_;
  UniqueFd wake_fd_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace farleaf::dsm
