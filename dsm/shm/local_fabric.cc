#include "dsm/shm/local_fabric.h"

#include <thread>

#include "dsm/handshake.h"

namespace farleaf::dsm {

/// The transport of a compute server that can be cut off.
class LocalFabric::GatedTransport final : public Transport {
 public:
  GatedTransport(LocalFabric* fabric, const MemberIdentity& member)
      : fabric_(fabric), member_(member), gates_(fabric->infos_.size()), below_(fabric->table_) {}
  ~GatedTransport() override {
    std::lock_guard lock(fabric_->mutex_);
    std::erase(fabric_->transports_, this);
  }

  const MemberIdentity& member() const { return member_; }

  // A batch says that it is inside before it looks at the gate, a cut shuts the gate before it looks
  // for a batch inside; both are sequentially consistent, so at least one sees the other.
  void Post(Batch& batch) override {
    if (batch.server() >= gates_.size()) [[unlikely]] {
      below_.Post(batch);  // says that there is no such server
      return;
    }
    Gate& gate = gates_[batch.server()];
    gate.inside.store(true);
    if (gate.shut.load()) [[unlikely]] {
      gate.inside.store(false, std::memory_order_release);
      batch.CompleteWith(fabric_->CheckMember(batch.server(), member_));
      return;
    }
    below_.Post(batch);
    gate.inside.store(false, std::memory_order_release);
  }
  size_t Poll() override { return below_.Poll(); }
  void Prefetch(GlobalAddress from, uint32_t bytes) override { below_.Prefetch(from, bytes); }
  const std::byte* Mapped(GlobalAddress from, uint32_t bytes) override {
    if (from.server() >= gates_.size() || gates_[from.server()].shut.load()) return nullptr;
    return below_.Mapped(from, bytes);
  }
  void Wait(int wake_fd, uint64_t timeout_ns) override { below_.Wait(wake_fd, timeout_ns); }

  void Shut(ServerId server) { gates_[server].shut.store(true); }
  /// Until the batch that was inside when the gate was shut, if any, has left.
  void AwaitEmpty(ServerId server) const {
    while (gates_[server].inside.load()) std::this_thread::yield();
  }

 private:
  LocalFabric* fabric_;
  const MemberIdentity member_;
  std::vector<Gate> gates_;  // by server id
  ShmTransport below_;
};

Result<std::unique_ptr<LocalFabric>> LocalFabric::Create(const Options& options) {
  std::unique_ptr<LocalFabric> fabric(new LocalFabric);
  for (uint32_t i = 0; i < options.servers; ++i) {
    const auto server = static_cast<ServerId>(i);
    auto layout = RegionLayout::For(server, options.region_bytes, options.chunk_bytes);
    if (!layout.ok()) return layout.status();
    auto incarnation = DrawIncarnation();
    if (!incarnation.ok()) return incarnation.status();
    layout->incarnation = *incarnation;
    layout->lease_ms = options.lease_ms;
    auto region = MemoryRegion::Create({options.region_bytes, options.hugepages, ""});
    if (!region.ok()) return region.status();
    FormatRegion(*layout, region->bytes());
    fabric->regions_.push_back(std::move(*region));
    fabric->infos_.push_back({server, options.region_bytes, layout->incarnation});
    fabric->table_->Add(server, fabric->regions_.back().bytes());
    fabric->fenced_.push_back(
        std::make_unique<FencedMembers>(server, fabric->regions_.back().bytes()));
  }
  return fabric;
}

Result<std::unique_ptr<Transport>> LocalFabric::OpenTransport() {
  MemberIdentity self;
  {
    std::lock_guard lock(mutex_);
    self = self_;
  }
  return OpenTransportOf(self);
}

Result<std::unique_ptr<Transport>> LocalFabric::OpenTransportOf(const MemberIdentity& member) {
  if (member.id == 0) return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(table_));
  auto transport = std::make_unique<GatedTransport>(this, member);
  std::lock_guard lock(mutex_);
  for (const RegionInfo& info : infos_) {
    if (!fenced_[info.server]->Admit(member).ok()) transport->Shut(info.server);
  }
  transports_.push_back(transport.get());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status LocalFabric::Identify(const MemberIdentity& self) {
  std::lock_guard lock(mutex_);
  FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
  self_ = self;
  return Status::Ok();
}

Status LocalFabric::CheckMember(ServerId server, const MemberIdentity& member) const {
  return fenced_[server]->Check(member);
}

Status LocalFabric::CutOff(ServerId server, const MemberIdentity& member) {
  MemberIdentity self;
  {
    std::lock_guard lock(mutex_);
    self = self_;
  }
  return CutOffBy(self, server, member);
}

Status LocalFabric::CutOffBy(const MemberIdentity& asker, ServerId server,
                             const MemberIdentity& member) {
  if (server >= fenced_.size()) {
    return Status::Unavailable("memory server " + std::to_string(server) + " is not in this pool");
  }
  if (table_->Find(server)->lost.load(std::memory_order_acquire)) {
    return Status::Unavailable("memory server " + std::to_string(server) + " lost");
  }
  FARLEAF_RETURN_IF_ERROR(CheckMember(server, asker));
  FARLEAF_RETURN_IF_ERROR(CheckCutOffTarget(server, member));
  // Held throughout, so that no transport is closed meanwhile; none needs it while a batch is inside.
  std::lock_guard lock(mutex_);
  return fenced_[server]->CutOff(member, [&] {
    for (GatedTransport* transport : transports_) {
      if (!IsCutOffBy(transport->member(), member)) continue;
      transport->Shut(server);
      transport->AwaitEmpty(server);
    }
    return Status::Ok();
  });
}

}  // namespace farleaf::dsm
