// RegisteredMemory: memory of this process that others of a cluster READ and WRITE over tcp or RDMA, as a memory server's: a region with header,
// fence and lease words (dsm/region_layout.h), whose chunks nobody grants. What is behind the tables is for its owner to
// divide (dsm/area_allocator.h). A life of it is a memory server of its own: with an id that is used for no other life, and an
// incarnation that is drawn here. Whoever may write there may have to be cut off, so only those are let in who say who they are
// (Fabric::Identify).
//
// What its owner may do with bytes that others WRITE: the agent's threads store them (dsm/tcp/batch_executor.h), or the NIC. Who has
// learned by an acquiring load of a word that stands behind them in the same batch, or by a message that was
// sent after that batch was awaited, that they are there may read them, until somebody may WRITE them again.
//
// Thread rule: built and destroyed by one thread; the rest by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "dsm/agent.h"
#include "dsm/area_allocator.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/directory.h"
#include "dsm/handshake.h"
#include "dsm/member.h"
#include "dsm/shm/memory_region.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/verbs/verbs_agent.h"

namespace farleaf::dsm {

class RegisteredMemory {
 public:
  static constexpr uint64_t kAreaAlignment = 4096;

  struct Options {
    std::string cluster;
    ServerId server = 0;
    uint64_t bytes =
        0;  ///< of it all; the tables take 192 KiB, above 96 MiB 64 KiB more for every 256 MiB
    Hugepages hugepages = Hugepages::kIfAvailable;
    std::variant<TcpAgent::Options, VerbsAgent::Options> agent;  ///< of the fabric that it is on
  };
  /// All zero, and open to others when this returns. InvalidArgument: the size, the cluster's name or an address;
  /// IoError, AlreadyExists: the system's reason. `clock` outlives it.
  static Result<std::unique_ptr<RegisteredMemory>> Open(const Options& options, const Clock* clock);
  RegisteredMemory(const RegisteredMemory&) = delete;

  /// What its owner divides: behind the tables, up to the end, at a multiple of kAreaAlignment in the region and in memory.
  Area usable() const { return usable_; }
  /// REQUIRES: in usable().
  std::span<std::byte> Bytes(Area area) const;

  /// For Fabric::Add of others.
  ServerEndpoint endpoint() const;
  uint64_t incarnation() const { return identity_.region.incarnation; }
  size_t connections() const { return agent_->connections(); }
  /// As RegionAgent::CutOff: Ok: nothing of that process can land here any more.
  Status CutOff(const MemberIdentity& member) { return agent_->CutOff(member); }

 private:
  RegisteredMemory(MemoryRegion memory, ServerIdentity identity, Area usable)
      : memory_(std::move(memory)), identity_(std::move(identity)), usable_(usable) {}

  Result<std::unique_ptr<RegionAgent>> StartAgent(const Options& options, const Clock* clock) const;

  const MemoryRegion memory_;
  const ServerIdentity identity_;
  const Area usable_;
  std::unique_ptr<RegionAgent> agent_;  // destroyed first
};

}  // namespace farleaf::dsm
