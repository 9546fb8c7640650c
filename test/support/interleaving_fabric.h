// InterleavingFabric: memory servers on which every batch takes its time, for deterministic tests of
// concurrency. Any number of workers run on one thread, a seed decides what happens next, and a run
// with the same seed is the same run.
//
// What it makes of the transport contract (dsm/transport.h): verbs of a batch run one by one, in
// order, with those of other transports in between; batches of one transport to one server run in
// order, to different servers in any order; large READs and WRITEs run in pieces of a cache line, a
// WRITE's in any order. `fail` makes batches fail before, in the middle of, or behind their verbs.
//
// Thread rule: one thread for all of it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// Asked once a batch, when it is posted: how many of its verbs run before it fails; -1: it does not.
using BatchFault = std::function<int(const Batch&)>;

class InterleavingFabric final : public Fabric {
 public:
  InterleavingFabric(LocalFabric* servers, Random* random, BatchFault fail = nullptr)
      : servers_(servers), random_(random), fail_(std::move(fail)) {}

  std::string_view name() const override { return "interleaving"; }
  std::span<const RegionInfo> regions() const override { return servers_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

 private:
  class Interleaved final : public Transport {
   public:
    Interleaved(LocalFabric* servers, const MemberIdentity& self, Random* random, BatchFault fail);
    void Post(Batch& batch) override;
    size_t Poll() override;
    void Wait(int, uint64_t) override {}

   private:
    struct Posted {
      Batch* batch;
      size_t verb;
      std::vector<Verb> pieces;  // of the verb that runs, those still to come
      int fail_after;
    };
    /// Runs one verb, or a piece of one. Returns whether that completed the batch.
    bool Step(ServerId server);
    void Divide(const Verb& verb, std::vector<Verb>* pieces);
    bool Complete(ServerId server, Status status);

    LocalFabric* servers_;
    MemberIdentity self_;
    Random* random_;
    BatchFault fail_;
    std::vector<std::deque<Posted>> queues_;  // by server id
  };

  LocalFabric* servers_;
  MemberIdentity self_;
  Random* random_;
  BatchFault fail_;
};

}  // namespace farleaf::dsm
