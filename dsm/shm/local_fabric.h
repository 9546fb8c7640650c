// LocalFabric: memory servers inside this process, for `local:` targets, embedded use and tests. The
// verbs are those of the shm fabric.
//
// Several compute servers may be in the process (test/support/shared_fabric.h), each with transports
// of its own, so that cutting one off has to stop its transports and not the process: a batch runs
// behind a gate of its transport and server, which a cut shuts, waiting for the batch that is inside.
//
// Invariant: when CutOff returns, no batch of the member runs, and none starts.
// Thread rule: thread-safe after Create.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dsm/fenced_members.h"
#include "dsm/region_layout.h"
#include "dsm/shm/memory_region.h"
#include "dsm/shm/shm_transport.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class LocalFabric final : public Fabric {
 public:
  struct Options {
    uint32_t servers = 1;
    uint64_t region_bytes = uint64_t{256} << 20;  ///< of each server
    uint64_t chunk_bytes = kChunkBytesDefault;
    Hugepages hugepages = Hugepages::kIfAvailable;
    /// What the regions ask of compute servers (dsm/region_layout.h); nobody here enforces it.
    uint32_t lease_ms = 0;
  };
  static Result<std::unique_ptr<LocalFabric>> Create(const Options& options);

  std::string_view name() const override { return "local"; }
  std::span<const RegionInfo> regions() const override { return infos_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

  // For a fabric that stands for another compute server of this process, and that this one outlives.
  Result<std::unique_ptr<Transport>> OpenTransportOf(const MemberIdentity& member);
  Status CutOffBy(const MemberIdentity& asker, ServerId server, const MemberIdentity& member);
  /// Fenced if `server` has cut `member` off.
  Status CheckMember(ServerId server, const MemberIdentity& member) const;

  /// As if the memory server had died: every later verb on it fails.
  void KillServer(ServerId server) { table_->MarkLost(server); }
  std::span<std::byte> region_bytes(ServerId server) { return regions_[server].bytes(); }

 private:
  class GatedTransport;
  struct Gate {
    std::atomic<bool> inside{false};  ///< a batch runs
    std::atomic<bool> shut{false};
  };
  LocalFabric() = default;
  std::vector<MemoryRegion> regions_;
  std::vector<RegionInfo> infos_;
  std::shared_ptr<ShmRegionTable> table_ = std::make_shared<ShmRegionTable>();
  std::vector<std::unique_ptr<FencedMembers>> fenced_;  // by server id
  mutable std::mutex mutex_;                            // guards what follows
  MemberIdentity self_;
  std::vector<GatedTransport*> transports_;  // those that are open and not anonymous
};

}  // namespace farleaf::dsm
