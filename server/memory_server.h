// MemoryServer: a region, the agent that opens it to one fabric, and its announcement in the
// directory. The process around it is memory_server_main.cc.
//
// It cuts off compute servers that do not renew their leases (dsm/lease_enforcer.h).
//
// Invariants:
//   - the region is formatted before anybody can reach it, and reachable before it is announced;
//   - a server that ends in good order withdraws its announcement before it closes the region.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/lease_enforcer.h"
#include "dsm/region_layout.h"
#include "dsm/shm/memory_region.h"
#include "server/config.h"
#include "server/huge_chunks.h"
#include "server/logging.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

enum class FabricChoice : uint8_t { kShm, kTcp, kVerbs };

struct MemoryServerOptions {
  dsm::ServerId id = 0;
  uint64_t region_bytes = uint64_t{1} << 30;
  uint64_t chunk_bytes = 1 << 20;
  dsm::Hugepages hugepages = dsm::Hugepages::kIfAvailable;
  std::string file;       ///< map this file instead of anonymous memory
  bool prefault = false;  ///< touch every page before opening
  FabricChoice fabric = FabricChoice::kShm;
  std::string socket;                  ///< shm; empty: /tmp/farleaf-CLUSTER-ID.sock
  std::string listen = "127.0.0.1:0";  ///< tcp, verbs
  std::string advertise;  ///< tcp, verbs; HOST:PORT that clients connect to, if not `listen`
  bool insecure = false;  ///< allow addresses other than loopback
  bool metrics_insecure = false;  ///< show metrics beyond loopback
  std::string rdma_device;        ///< verbs; DEVICE[:PORT[:GID INDEX]], if `listen` leaves it open
  uint32_t agent_threads = 1;     ///< tcp
  uint32_t lease_ms = 3'000;      ///< for compute servers; 0: nobody is cut off for being silent
  std::string cluster;            ///< if given, the directory must be this cluster's
  std::string bootstrap;          ///< URL of the directory
  std::string metrics_listen;     ///< HOST:PORT for metrics and health; empty: none
  LogOptions log;
};

void DeclareOptions(ConfigSchema& schema, MemoryServerOptions* options);

class MemoryServer {
 public:
  struct Deps {
    dsm::Directory* directory = nullptr;  ///< outlives the server
    const Clock* clock = nullptr;         ///< outlives the server
    uint64_t incarnation = 0;             ///< not 0, different at every start
    /// Told how far prefaulting is, in percent; returns whether to go on. May be empty.
    std::function<bool(int)> prefault_progress;
  };
  /// InvalidArgument: the options contradict each other or the machine. AlreadyExists: the id, the
  /// port or the socket is taken. Unavailable: the directory does not answer.
  static Result<std::unique_ptr<MemoryServer>> Start(const MemoryServerOptions& options, Deps deps);
  ~MemoryServer();

  /// Announces the server again; to be called every directory->renew_interval_ms().
  Status Renew() { return deps_.directory->Publish(endpoint_); }
  /// Withdraws the announcement and closes the region.
  Status Stop();

  const dsm::ServerEndpoint& endpoint() const { return endpoint_; }
  size_t connections() const { return agent_ ? agent_->connections() : 0; }
  /// From any thread: words of the open region are loaded for it, and never written.
  void AppendMetrics(MetricsText* out) const;
  bool uses_hugepages() const { return region_->uses_hugepages(); }

 private:
  explicit MemoryServer(Deps deps) : deps_(std::move(deps)) {}
  Status MakeRegion(const MemoryServerOptions& options);
  Status StartAgent(const MemoryServerOptions& options);
  void StartEnforcer(const MemoryServerOptions& options);
  void StartHugeChunks(const MemoryServerOptions& options);
  Status Prefault();

  Deps deps_;
  dsm::ServerEndpoint endpoint_;
  dsm::RegionLayout layout_;
  std::unique_ptr<dsm::MemoryRegion> region_;
  std::unique_ptr<dsm::RegionAgent> agent_;  // before region_ in destruction
  std::unique_ptr<dsm::LeaseEnforcer> enforcer_;
  std::unique_ptr<HugeChunks> huge_chunks_;  // likewise
};

}  // namespace farleaf::server
