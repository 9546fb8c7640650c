// SharedFabric: several Pools of one test on the memory servers of one LocalFabric, as if each were
// a process of its own, which can be cut off. On request its batches do not complete at once, so that coroutines of one
// thread interleave as they do on a network.
//
// Thread rule: as Fabric and Transport.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "dsm/transport.h"

namespace farleaf::dsm {

class LocalFabric;

class SharedFabric final : public Fabric {
 public:
  struct Options {
    /// Not 0: a batch runs in a later Poll, as many at a time as this seed decides; in order.
    uint64_t defer_seed = 0;
    /// While it is true, deferred batches stay where they are.
    std::atomic<bool>* hold = nullptr;
  };
  explicit SharedFabric(LocalFabric* fabric) : SharedFabric(fabric, Options{}) {}
  SharedFabric(LocalFabric* fabric, Options options) : fabric_(fabric), options_(options) {}

  std::string_view name() const override;
  std::span<const RegionInfo> regions() const override;
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

 private:
  MemberIdentity self();
  class DeferringTransport;

  LocalFabric* fabric_;
  Options options_;
  std::atomic<uint64_t> opened_{0};
  std::mutex mutex_;  // guards self_
  MemberIdentity self_;
};

}  // namespace farleaf::dsm
