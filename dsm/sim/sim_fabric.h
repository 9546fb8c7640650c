// SimFabric: one simulated process's attachment to the memory servers of a SimWorld, and SimTransport,
// one of its threads' way to them.
//
// Calls that block (OpenTransport, CutOff, Transport::Wait) let the rest of the world go on until they
// may return, other threads of the world included. Memory servers come and go (Add, Remove) by the rules of every such
// fabric (dsm/link_table.h): a server that was restarted is another life, which Add tells of.
//
// Thread rule: one thread, that of the world.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/directory.h"
#include "dsm/known_servers.h"
#include "dsm/link_table.h"
#include "dsm/sim/event_queue.h"
#include "dsm/sim/sim_link.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class SimWorld;

class SimTransport final : public Transport {
 public:
  /// Whose it is.
  struct Owner {
    uint32_t process;
    MemberIdentity self;
    SimLinkOptions options;
  };
  SimTransport(SimWorld* world, const Owner& owner, std::shared_ptr<const KnownServers> known)
      : world_(world), owner_(owner), links_(std::move(known)) {}
  ~SimTransport() override;

  void Post(Batch& batch) override;
  size_t Poll() override;
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  uint32_t idle_turns_before_wait() const override { return 0; }

  // For the world.
  /// Has a link to each server that the fabric knows.
  void Learn();
  /// A link beside those, with a Hello of this transport's owner and `order`'s kind and target.
  SimLink* AddLink(std::shared_ptr<KnownServer> server, const Hello& order);
  bool is_connecting() const;
  void Arrive(const SimEvent& event) { arrived_.push_back(event); }
  /// Whether Poll has something to do now.
  bool has_arrivals() const;
  uint64_t due_ns() const;
  /// Its process is gone: nothing completes any more.
  void Crash();

  static constexpr uint32_t kNoThread = UINT32_MAX;
  uint32_t thread = kNoThread;  ///< that polls it

 private:
  void DropArrivals();
  SimLink* NewLink(std::shared_ptr<KnownServer> server, Hello hello);

  SimWorld* world_;
  const Owner owner_;
  LinkTable<SimLink*> links_;
  std::vector<SimEvent> arrived_, arriving_;
  bool crashed_ = false;
};

class SimFabric final : public Fabric {
 public:
  SimFabric(SimWorld* world, uint32_t process, std::vector<RegionInfo> regions,
            const SimLinkOptions& options);

  std::string_view name() const override { return "sim"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;
  Status Add(const ServerEndpoint& endpoint) override;
  void Remove(ServerId server) override;

  uint32_t process() const { return process_; }
  /// "sim:3".
  static std::string EndpointText(ServerId server);

 private:
  std::unique_ptr<SimTransport> NewTransport(std::shared_ptr<const KnownServers> known) const;

  SimWorld* world_;
  const uint32_t process_;
  const std::vector<RegionInfo> regions_;
  const SimLinkOptions options_;
  const std::shared_ptr<KnownServers> known_ = std::make_shared<KnownServers>();
  MemberIdentity self_;
};

}  // namespace farleaf::dsm
