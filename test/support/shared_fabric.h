// SharedFabric: several Pools of one test on the memory servers of one LocalFabric, as if each were
// a process of its own, which can be cut off. On request its batches do not complete at once, so that coroutines of one
// thread interleave as they do on a network.
//
// Thread rule: as Fabric and Transport.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

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

  std::string_view name() const override { return fabric_->name(); }
  std::span<const RegionInfo> regions() const override { return fabric_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    auto inner = fabric_->OpenTransportOf(self());
    if (!inner.ok() || options_.defer_seed == 0) return inner;
    const uint64_t number = opened_.fetch_add(1);
    return std::unique_ptr<Transport>(std::make_unique<DeferringTransport>(
        std::move(*inner), Mix64(options_.defer_seed + number), options_.hold));
  }
  Status Identify(const MemberIdentity& self) override {
    std::lock_guard lock(mutex_);
    self_ = self;
    return Status::Ok();
  }
  Status CutOff(ServerId server, const MemberIdentity& member) override {
    return fabric_->CutOffBy(self(), server, member);
  }

 private:
  MemberIdentity self() {
    std::lock_guard lock(mutex_);
    return self_;
  }
  class DeferringTransport final : public Transport {
   public:
    DeferringTransport(std::unique_ptr<Transport> inner, uint64_t seed, std::atomic<bool>* hold)
        : inner_(std::move(inner)), random_(seed), hold_(hold) {}
    void Post(Batch& batch) override { posted_.push_back(&batch); }
    size_t Poll() override {
      if (hold_ && hold_->load()) return 0;
      size_t done = 0;
      for (uint64_t n = random_.Below(4); n > 0 && !posted_.empty(); --n, ++done) {
        Batch* batch = posted_.front();
        posted_.pop_front();
        inner_->Post(*batch);  // a LocalFabric completes it here
      }
      return done;
    }
    void Wait(int wake_fd, uint64_t timeout_ns) override {
      if (posted_.empty()) inner_->Wait(wake_fd, timeout_ns);
    }

   private:
    std::unique_ptr<Transport> inner_;
    Random random_;
    std::atomic<bool>* hold_;
    std::deque<Batch*> posted_;
  };

  LocalFabric* fabric_;
  Options options_;
  std::atomic<uint64_t> opened_{0};
  std::mutex mutex_;  // guards self_
  MemberIdentity self_;
};

}  // namespace farleaf::dsm
