// LockingFabric: a fabric that belongs to one thread, for tests with several: one call at a time.
//
// Thread rule: as Fabric and Transport.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "dsm/base/clock.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class LockingFabric final : public Fabric {
 public:
  /// `mutex` guards all that `below` runs on.
  LockingFabric(std::unique_ptr<Fabric> below, std::mutex* mutex)
      : below_(std::move(below)), mutex_(mutex) {}

  std::string_view name() const override { return below_->name(); }
  std::span<const RegionInfo> regions() const override { return below_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    std::lock_guard lock(*mutex_);
    auto transport = below_->OpenTransport();
    if (!transport.ok()) return transport.status();
    return std::unique_ptr<Transport>(
        std::make_unique<LockingTransport>(std::move(*transport), mutex_));
  }
  Status Identify(const MemberIdentity& self) override {
    std::lock_guard lock(*mutex_);
    return below_->Identify(self);
  }
  Status CutOff(ServerId server, const MemberIdentity& member) override {
    std::lock_guard lock(*mutex_);
    return below_->CutOff(server, member);
  }

 private:
  class LockingTransport final : public Transport {
   public:
    LockingTransport(std::unique_ptr<Transport> below, std::mutex* mutex)
        : below_(std::move(below)), mutex_(mutex) {}
    ~LockingTransport() override {
      std::lock_guard lock(*mutex_);
      below_.reset();
    }
    void Post(Batch& batch) override {
      std::lock_guard lock(*mutex_);
      below_->Post(batch);
    }
    size_t Poll() override {
      std::lock_guard lock(*mutex_);
      return below_->Poll();
    }
    /// Briefly: meanwhile nobody else gets a turn.
    void Wait(int wake_fd, uint64_t timeout_ns) override {
      std::lock_guard lock(*mutex_);
      below_->Wait(wake_fd, std::min(timeout_ns, 10 * kNsPerUs));
    }
    uint32_t idle_turns_before_wait() const override { return below_->idle_turns_before_wait(); }

   private:
    std::unique_ptr<Transport> below_;
    std::mutex* mutex_;
  };

  std::unique_ptr<Fabric> below_;
  std::mutex* mutex_;
};

}  // namespace farleaf::dsm
