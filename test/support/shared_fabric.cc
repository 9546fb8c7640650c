#include "test/support/shared_fabric.h"

#include <deque>
#include <utility>

#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"

namespace farleaf::dsm {

class SharedFabric::DeferringTransport final : public Transport {
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

std::string_view SharedFabric::name() const { return fabric_->name(); }

std::span<const RegionInfo> SharedFabric::regions() const { return fabric_->regions(); }

Result<std::unique_ptr<Transport>> SharedFabric::OpenTransport() {
  auto inner = fabric_->OpenTransportOf(self());
  if (!inner.ok() || options_.defer_seed == 0) return inner;
  const uint64_t number = opened_.fetch_add(1);
  return std::unique_ptr<Transport>(std::make_unique<DeferringTransport>(
      std::move(*inner), Mix64(options_.defer_seed + number), options_.hold));
}

Status SharedFabric::Identify(const MemberIdentity& self) {
  std::lock_guard lock(mutex_);
  self_ = self;
  return Status::Ok();
}

Status SharedFabric::CutOff(ServerId server, const MemberIdentity& member) {
  return fabric_->CutOffBy(self(), server, member);
}

MemberIdentity SharedFabric::self() {
  std::lock_guard lock(mutex_);
  return self_;
}

}  // namespace farleaf::dsm
