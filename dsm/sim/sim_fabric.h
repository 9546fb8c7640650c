// SimFabric: one simulated process's attachment to the memory servers of a SimWorld, and SimTransport,
// one of its threads' way to them.
//
// Calls that block (OpenTransport, CutOff, Transport::Wait) let the rest of the world go on until they
// may return, other threads of the world included.
//
// Thread rule: one thread, that of the world.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dsm/sim/event_queue.h"
#include "dsm/sim/sim_link.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class SimWorld;

class SimTransport final : public Transport {
 public:
  explicit SimTransport(SimWorld* world) : world_(world) {}
  ~SimTransport() override;

  void Post(Batch& batch) override;
  size_t Poll() override;
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  uint32_t idle_turns_before_wait() const override { return 0; }

  // For the world.
  void AddLink(SimLink* link) { links_.push_back(link); }
  std::span<SimLink* const> links() const { return links_; }
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

  SimWorld* world_;
  std::vector<SimLink*> links_;  // by server id
  std::vector<SimEvent> arrived_, arriving_;
  bool crashed_ = false;
};

class SimFabric final : public Fabric {
 public:
  SimFabric(SimWorld* world, uint32_t process, std::vector<RegionInfo> regions,
            const SimLinkOptions& options)
      : world_(world), process_(process), regions_(std::move(regions)), options_(options) {}

  std::string_view name() const override { return "sim"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

  uint32_t process() const { return process_; }

 private:
  Hello NewHello(ServerId server) const;

  SimWorld* world_;
  const uint32_t process_;
  const std::vector<RegionInfo> regions_;
  const SimLinkOptions options_;
  MemberIdentity self_;
};

}  // namespace farleaf::dsm
