// FencedMembers: the compute servers that one memory server has cut off, and the fence words that say
// so in its region. One for each agent, whatever its fabric; every cut goes through its CutOff.
//
// How an agent uses it, so that a handshake and a cut that run at the same time leave no connection
// behind. Whoever takes a connection in: Admit, then enter it where a cut looks for connections, both
// under one lock (or on the one thread that also destroys). The `destroy` of a cut: destroy what is
// entered, under that lock (on that thread). A connection that was entered before is found and
// destroyed; one that comes after sees the fence, because it was set before `destroy` ran.
//
// Invariants:
//   - what is fenced stays fenced;
//   - a fence word is stored after the cut was confirmed, so that whoever READs it knows without asking
//     that nothing of that incarnation can land any more;
//   - it is 0 before a newer incarnation of its id is let in (see IsFenced in dsm/region_layout.h);
//     nobody needs it then, because ids of the dead are granted again only after a full scan.
// A store of an aligned word by this CPU is seen whole or not at all by a NIC's READ of it: fabrics over
// RDMA rest on that (fencing_contract_test).
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/base/status.h"
#include "dsm/member.h"

namespace farleaf::dsm {

/// Whether cutting `cut` off means `member` too.
inline bool IsCutOffBy(const MemberIdentity& member, const MemberIdentity& cut) {
  return member.id == cut.id && member.incarnation <= cut.incarnation;
}

class FencedMembers {
 public:
  /// `region` is formatted and outlives this.
  FencedMembers(ServerId server, std::span<std::byte> region);
  FencedMembers(const FencedMembers&) = delete;

  /// All of a cut of `member` and its older incarnations: refuses them from now on, has `destroy`
  /// (Status()) end their connections and, if that is confirmed by Ok, stores the fence word.
  /// REQUIRES: there can be such a compute server (CheckCutOffTarget).
  template <typename Destroy>
  Status CutOff(const MemberIdentity& member, Destroy destroy) {
    FARLEAF_CHECK(member.id != 0 && member.id < kMembersMax, member.id);
    Fence(member);
    if (Status confirmed = destroy(); !confirmed.ok()) return confirmed;
    std::lock_guard lock(mutex_);
    const std::atomic_ref<uint64_t> word = FenceWord(member.id);
    if (word.load(std::memory_order_relaxed) < member.incarnation) {
      word.store(member.incarnation, std::memory_order_release);
    }
    return Status::Ok();
  }
  /// Check, of a compute server that is let in then.
  Status Admit(const MemberIdentity& member);
  /// Fenced, saying what to do, if `member` was cut off. Nobody cuts off who is anonymous (id 0).
  Status Check(const MemberIdentity& member) const;

 private:
  void Fence(const MemberIdentity& member);
  std::atomic_ref<uint64_t> FenceWord(MemberId id) const;

  const ServerId server_;
  const std::span<std::byte> region_;
  mutable std::mutex mutex_;                       // guards fences_, and who writes a fence word
  std::unordered_map<MemberId, uint64_t> fences_;  // the newest incarnation that is cut off
};

}  // namespace farleaf::dsm
