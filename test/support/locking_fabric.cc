#include "test/support/locking_fabric.h"

#include <algorithm>

#include "dsm/base/clock.h"

namespace farleaf::dsm {

class LockingFabric::LockingTransport final : public Transport {
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

Result<std::unique_ptr<Transport>> LockingFabric::OpenTransport() {
  std::lock_guard lock(*mutex_);
  auto transport = below_->OpenTransport();
  if (!transport.ok()) return transport.status();
  return std::unique_ptr<Transport>(
      std::make_unique<LockingTransport>(std::move(*transport), mutex_));
}

Status LockingFabric::Identify(const MemberIdentity& self) {
  std::lock_guard lock(*mutex_);
  return below_->Identify(self);
}

Status LockingFabric::CutOff(ServerId server, const MemberIdentity& member) {
  std::lock_guard lock(*mutex_);
  return below_->CutOff(server, member);
}

Status LockingFabric::Add(const ServerEndpoint& endpoint) {
  std::lock_guard lock(*mutex_);
  return below_->Add(endpoint);
}

void LockingFabric::Remove(ServerId server) {
  std::lock_guard lock(*mutex_);
  below_->Remove(server);
}

}  // namespace farleaf::dsm
