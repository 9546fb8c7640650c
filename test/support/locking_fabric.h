// LockingFabric: a fabric that belongs to one thread, for tests with several: one call at a time.
//
// Thread rule: as Fabric and Transport.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "dsm/transport.h"

namespace farleaf::dsm {

class LockingFabric final : public Fabric {
 public:
  /// `mutex` guards all that `below` runs on.
  LockingFabric(std::unique_ptr<Fabric> below, std::mutex* mutex)
      : below_(std::move(below)), mutex_(mutex) {}

  std::string_view name() const override { return below_->name(); }
  std::span<const RegionInfo> regions() const override { return below_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;
  Status Add(const ServerEndpoint& endpoint) override;
  void Remove(ServerId server) override;

 private:
  class LockingTransport;

  std::unique_ptr<Fabric> below_;
  std::mutex* mutex_;
};

}  // namespace farleaf::dsm
