// FencedMembers: the compute servers that one memory server has cut off. One for each agent, whatever
// its fabric.
//
// How an agent uses it, so that a handshake and a cut that run at the same time leave no connection
// behind. Whoever takes a connection in: Check, then enter it where a cut looks for connections, both
// under one lock (or on the one thread that also destroys). CutOff: Fence, then destroy what is
// entered, under that lock (on that thread). A connection that was entered before is found and
// destroyed; one that comes after sees the fence, because Fence happened before.
//
// Invariant: what is fenced stays fenced.
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/base/log.h"
#include "dsm/base/status.h"
#include "dsm/member.h"

namespace farleaf::dsm {

/// Whether cutting `cut` off means `member` too.
inline bool IsCutOffBy(const MemberIdentity& member, const MemberIdentity& cut) {
  return member.id == cut.id && member.incarnation <= cut.incarnation;
}

class FencedMembers {
 public:
  explicit FencedMembers(ServerId server) : server_(server) {}
  FencedMembers(const FencedMembers&) = delete;

  /// `member` and its older incarnations. REQUIRES: its id is not 0.
  void Fence(const MemberIdentity& member) {
    FARLEAF_CHECK(member.id != 0);
    std::lock_guard lock(mutex_);
    const auto [fence, is_new] = fences_.try_emplace(member.id, member.incarnation);
    if (!is_new && fence->second >= member.incarnation) return;
    fence->second = member.incarnation;
    FARLEAF_LOG(info, "memory server {} cuts off {}", server_, member.ToString());
  }
  /// Fenced, saying what to do, if `member` was cut off. Nobody cuts off who is anonymous (id 0).
  Status Check(const MemberIdentity& member) const {
    std::lock_guard lock(mutex_);
    const auto fence = fences_.find(member.id);
    if (fence == fences_.end() || member.incarnation > fence->second) return Status::Ok();
    return Status::Fenced(member.ToString() + " was cut off by memory server " +
                          std::to_string(server_) +
                          "; restart it, so that it joins the pool with a new incarnation");
  }

 private:
  const ServerId server_;
  mutable std::mutex mutex_;                       // guards fences_
  std::unordered_map<MemberId, uint64_t> fences_;  // the newest incarnation that is cut off
};

}  // namespace farleaf::dsm
