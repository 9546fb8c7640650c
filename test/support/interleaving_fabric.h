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
#include "dsm/shm/mapped_verbs.h"
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
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    return std::unique_ptr<Transport>(
        std::make_unique<Interleaved>(servers_, self_, random_, fail_));
  }
  Status Identify(const MemberIdentity& self) override {
    self_ = self;
    return Status::Ok();
  }
  Status CutOff(ServerId server, const MemberIdentity& member) override {
    return servers_->CutOffBy(self_, server, member);
  }

 private:
  class Interleaved final : public Transport {
   public:
    Interleaved(LocalFabric* servers, const MemberIdentity& self, Random* random, BatchFault fail)
        : servers_(servers), self_(self), random_(random), fail_(std::move(fail)) {
      queues_.resize(servers->regions().size());
    }
    void Post(Batch& batch) override {
      FARLEAF_CHECK(batch.server() < queues_.size(), batch.server());
      queues_[batch.server()].push_back({&batch, 0, {}, fail_ ? fail_(batch) : -1});
    }
    size_t Poll() override {
      size_t done = 0;
      for (uint64_t n = random_->Below(4); n > 0; --n) {
        const auto server = static_cast<ServerId>(random_->Below(queues_.size()));
        if (!queues_[server].empty()) done += Step(server);
      }
      return done;
    }
    void Wait(int, uint64_t) override {}

   private:
    struct Posted {
      Batch* batch;
      size_t verb;
      std::vector<Verb> pieces;  // of the verb that runs, those still to come
      int fail_after;
    };
    /// Runs one verb, or a piece of one. Returns whether that completed the batch.
    bool Step(ServerId server) {
      Posted& front = queues_[server].front();
      if (Status allowed = servers_->CheckMember(server, self_); !allowed.ok()) {
        return Complete(server, std::move(allowed));
      }
      if (front.fail_after == static_cast<int>(front.verb)) {
        return Complete(server, Status::Unavailable("a fault that the test planted"));
      }
      const auto verbs = front.batch->verbs();
      if (front.pieces.empty()) Divide(verbs[front.verb], &front.pieces);
      const Verb piece = front.pieces.back();
      front.pieces.pop_back();
      Status status = ExecuteVerb(piece, servers_->region_bytes(server));
      if (!status.ok()) return Complete(server, status);
      if (!front.pieces.empty() || ++front.verb < verbs.size()) return false;
      if (front.fail_after == static_cast<int>(front.verb)) return false;  // behind all its verbs
      return Complete(server, Status::Ok());
    }
    void Divide(const Verb& verb, std::vector<Verb>* pieces) {
      if (verb.length <= 64 || !random_->OneIn(3)) {
        pieces->push_back(verb);
        return;
      }
      // 64 bytes each, or the verb in two halves.
      const uint32_t bytes = random_->OneIn(2) ? 64 : verb.length / 16 * 8;
      for (uint32_t at = 0; at < verb.length; at += bytes) {
        const uint32_t length = std::min(bytes, verb.length - at);
        pieces->push_back({verb.kind, length, verb.offset + at, verb.local + at, 0, 0});
      }
      for (size_t i = pieces->size(); i > 1; --i) {
        std::swap((*pieces)[i - 1], (*pieces)[random_->Below(i)]);
      }
    }
    bool Complete(ServerId server, Status status) {
      Batch* batch = queues_[server].front().batch;
      queues_[server].pop_front();
      batch->CompleteWith(std::move(status));
      return true;
    }

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
