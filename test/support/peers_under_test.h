// Nodes that come and go, and a fabric that was made with none of them: on tcp and RDMA each life of a node is a RegisteredMemory
// with an id of its own, always at the node's address; in a simulated world it is a memory server that was restarted, under
// the node's id.
//
// Thread rule: one thread begins and ends lives; the fabric is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/registered_memory.h"
#include "dsm/sim/sim_world.h"
#include "dsm/transport.h"
#include "test/support/tested_fabrics.h"

namespace farleaf::dsm {

/// To which servers are added. `kind`: tcp or verbs.
std::unique_ptr<Fabric> FabricWithoutServers(FabricKind kind, const std::string& cluster,
                                             const Clock* clock);
/// "HOST:PORT" of "tcp:HOST:PORT".
inline std::string AddressOf(const ServerEndpoint& endpoint) {
  return endpoint.endpoint.substr(endpoint.endpoint.find(':') + 1);
}
/// What RegisteredMemory is opened with.
std::variant<TcpAgent::Options, VerbsAgent::Options> AgentOptions(FabricKind kind,
                                                                  const std::string& listen);

class PeersUnderTest {
 public:
  static constexpr uint32_t kNodes = 4;
  /// Nobody's but the test's.
  static constexpr uint64_t kA = 512 << 10, kB = kA + 4096;

  /// `kind`: tcp, verbs, or sim, whose `seed` it is. `fabric_clock`: what the fabric of the others goes by, if not by a real one.
  explicit PeersUnderTest(FabricKind kind, uint64_t seed = 1, const Clock* fabric_clock = nullptr);

  Fabric& fabric() { return *fabric_; }
  /// To measure how long a test takes by.
  const Clock& clock() const { return world_ ? world_->clock() : clock_; }
  /// Node `node` begins a life. REQUIRES: it lives none.
  ServerEndpoint Begin(uint32_t node);
  /// The same, and the fabric is told.
  ServerId BeginAndAdd(uint32_t node);
  void End(uint32_t node);
  /// The word at `offset` of its memory, as it is just now.
  uint64_t WordOf(uint32_t node, uint64_t offset);
  /// How many connections node `node` has. REQUIRES: not sim.
  size_t ConnectionsOf(uint32_t node) const { return memories_[node]->connections(); }
  /// Simulated time goes on for so long, in which what is on its way lands; on the others nothing is.
  void LetLand(uint64_t ns);

  /// Null, but for sim. REQUIRES of calls: no other thread runs.
  SimWorld* world() { return world_.get(); }

 private:
  const FabricKind kind_;
  MonotonicClock clock_;
  std::unique_ptr<SimWorld> world_;
  std::mutex world_mutex_;  // guards world_'s inside
  std::vector<std::unique_ptr<RegisteredMemory>> memories_;
  std::vector<std::string> addresses_;
  ServerId next_id_ = 10;
  std::unique_ptr<Fabric> fabric_;  // destroyed first
};

}  // namespace farleaf::dsm
