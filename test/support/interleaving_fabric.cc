#include "test/support/interleaving_fabric.h"

#include <utility>

#include "dsm/shm/mapped_verbs.h"

namespace farleaf::dsm {

Result<std::unique_ptr<Transport>> InterleavingFabric::OpenTransport() {
  return std::unique_ptr<Transport>(std::make_unique<Interleaved>(servers_, self_, random_, fail_));
}

Status InterleavingFabric::Identify(const MemberIdentity& self) {
  self_ = self;
  return Status::Ok();
}

Status InterleavingFabric::CutOff(ServerId server, const MemberIdentity& member) {
  return servers_->CutOffBy(self_, server, member);
}

InterleavingFabric::Interleaved::Interleaved(LocalFabric* servers, const MemberIdentity& self,
                                             Random* random, BatchFault fail)
    : servers_(servers), self_(self), random_(random), fail_(std::move(fail)) {
  queues_.resize(servers->regions().size());
}

void InterleavingFabric::Interleaved::Post(Batch& batch) {
  FARLEAF_CHECK(batch.server() < queues_.size(), batch.server());
  queues_[batch.server()].push_back({&batch, 0, {}, fail_ ? fail_(batch) : -1});
}

size_t InterleavingFabric::Interleaved::Poll() {
  size_t done = 0;
  for (uint64_t n = random_->Below(4); n > 0; --n) {
    const auto server = static_cast<ServerId>(random_->Below(queues_.size()));
    if (!queues_[server].empty()) done += Step(server);
  }
  return done;
}

bool InterleavingFabric::Interleaved::Step(ServerId server) {
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

void InterleavingFabric::Interleaved::Divide(const Verb& verb, std::vector<Verb>* pieces) {
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

bool InterleavingFabric::Interleaved::Complete(ServerId server, Status status) {
  Batch* batch = queues_[server].front().batch;
  queues_[server].pop_front();
  batch->CompleteWith(std::move(status));
  return true;
}

}  // namespace farleaf::dsm
