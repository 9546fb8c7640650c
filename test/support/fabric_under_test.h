// Memory servers in this process, and fabrics attached to them: one for each kind of fabric, so that
// one test runs on all of them.
//
// Thread rule: one thread builds and kills; the fabrics are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/bootstrap/in_process_directory.h"
#include "dsm/handshake.h"
#include "dsm/lease_enforcer.h"
#include "dsm/region_layout.h"
#include "dsm/shm/memory_region.h"
#include "dsm/socket.h"
#include "dsm/transport.h"
#include "test/support/shared_fabric.h"
#include "test/support/tested_fabrics.h"

namespace farleaf::dsm {

class SimWorld;

/// A directory for sockets and files of one test, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
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
  struct Options {
    uint32_t servers = 2;
    uint64_t region_bytes = kRegionBytes;  ///< of each server
    uint64_t chunk_bytes = kChunkBytesDefault;
    uint32_t lease_ms = 0;  ///< for compute servers; enforced by whoever takes LeasesOf
  };

  explicit FabricUnderTest(FabricKind kind) : FabricUnderTest(kind, Options()) {}
  FabricUnderTest(FabricKind kind, Options options);
  ~FabricUnderTest();

  Fabric& fabric() { return *fabric_; }
  const Clock& clock() const;
  FabricKind kind() const { return kind_; }
  bool is_tcp() const { return kind_ == FabricKind::kTcp || kind_ == FabricKind::kTcpTwoAgents; }

  /// A fabric to the same memory servers with connections of its own, as another process has one.
  /// This object outlives it. Thread-safe. `local` is for kLocal.
  std::unique_ptr<Fabric> Connect() { return Connect(SharedFabric::Options()); }
  std::unique_ptr<Fabric> Connect(SharedFabric::Options local);

  /// What a process's death looks like to its clients.
  void KillServer(ServerId server);
  RegionServer& server(ServerId id) { return servers_[id]; }
  /// A memory server's memory. REQUIRES: no verb is on its way.
  std::span<std::byte> region_bytes(ServerId id);

  /// What memory server `id` enforces leases with, looking at `server_clock`.
  LeaseEnforcer::Deps LeasesOf(ServerId id, const Clock* server_clock);

  RegionServer StartServer(ServerId id, uint64_t incarnation,
                           const std::string& listen = ListenHost() + ":0");

 private:
  /// As a memory server does by itself.
  Status CutOff(ServerId id, const MemberIdentity& member);

  FabricKind kind_;
  Options options_;
  MonotonicClock clock_;
  TempFolder folder_;
  InProcessDirectory directory_{"tested"};
  std::unique_ptr<LocalFabric> local_;  // or
  std::mutex world_mutex_;              // guards world_'s inside
  std::unique_ptr<SimWorld> world_;     // or
  std::vector<RegionServer> servers_;
  std::unique_ptr<Fabric> fabric_;  // destroyed first
};

/// One thread's use of a transport, step by step: no coroutines.
class TestClient {
 public:
  static constexpr uint64_t kDeadlineNs = 60 * kNsPerSecond;

  TestClient(Fabric& fabric, const Clock& clock);

  void Post(Batch& batch, RoundTripState& state);
  void Await(const RoundTripState& state);
  Status Run(Batch& batch);

  // The fixture's small language; every failure is a test failure.
  uint64_t ReadWord(ServerId server, uint64_t offset);
  void WriteWord(ServerId server, uint64_t offset, uint64_t word);
  uint64_t FetchAdd(ServerId server, uint64_t offset, uint64_t add);
  uint64_t CompareAndSwap(ServerId server, uint64_t offset, uint64_t expected, uint64_t desired);

  Transport& transport() { return *transport_; }
  int wake_fd() const { return wake_fd_.get(); }

 private:
  const Clock& clock_;
  UniqueFd wake_fd_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace farleaf::dsm
