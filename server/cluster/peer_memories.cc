#include "server/cluster/peer_memories.h"

#include <algorithm>
#include <string>
#include <utility>

namespace farleaf::server::cluster {

Status PeerMemories::Add(const dsm::MemberIdentity& life, const dsm::ServerEndpoint& memory) {
  std::lock_guard lock(mutex_);
  const auto before = known_.find(life.id);
  if (before != known_.end() && before->second.life > life.incarnation) {
    return Status::Unavailable("node " + std::to_string(life.id) + ": its life " +
                               std::to_string(life.incarnation) + " is over: life " +
                               std::to_string(before->second.life) + " is known");
  }
  LetGoOf(memory.server, life);
  FARLEAF_RETURN_IF_ERROR(fabric_->Add(memory));
  const Known earlier = std::exchange(known_[life.id], {life.incarnation, memory.server});
  if (earlier.life != 0 && earlier.server != memory.server) fabric_->Remove(earlier.server);
  return Status::Ok();
}

void PeerMemories::LetGoOf(dsm::ServerId server, const dsm::MemberIdentity& but) {
  const auto ended = std::ranges::find_if(known_, [&](const auto& one) {
    const bool same = one.first == but.id && one.second.life == but.incarnation;
    return one.second.server == server && !same;
  });
  if (ended == known_.end()) return;
  fabric_->Remove(server);
  known_.erase(ended);
}

}  // namespace farleaf::server::cluster
