#include "dsm/fenced_members.h"

#include <string>

#include "dsm/base/log.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

FencedMembers::FencedMembers(ServerId server, std::span<std::byte> region)
    : server_(server), region_(region) {
  FARLEAF_CHECK(region.size() >= kFencesOffset + kMembersMax * 8, region.size());
}

Status FencedMembers::Admit(const MemberIdentity& member) {
  if (Status allowed = Check(member); !allowed.ok() || member.id == 0) return allowed;
  std::lock_guard lock(mutex_);
  const std::atomic_ref<uint64_t> word = FenceWord(member.id);
  if (word.load(std::memory_order_relaxed) < member.incarnation) {
    word.store(0, std::memory_order_release);
  }
  return Status::Ok();
}

Status FencedMembers::Check(const MemberIdentity& member) const {
  std::lock_guard lock(mutex_);
  const auto fence = fences_.find(member.id);
  if (fence == fences_.end() || member.incarnation > fence->second) return Status::Ok();
  return Status::Fenced(member.ToString() + " was cut off by memory server " +
                        std::to_string(server_) +
                        "; it has to join the pool again, with a new incarnation");
}

void FencedMembers::Fence(const MemberIdentity& member) {
  std::lock_guard lock(mutex_);
  const auto [fence, is_new] = fences_.try_emplace(member.id, member.incarnation);
  if (!is_new && fence->second >= member.incarnation) return;
  fence->second = member.incarnation;
  FARLEAF_LOG(info, "memory server {} cuts off {}", server_, member.ToString());
}

std::atomic_ref<uint64_t> FencedMembers::FenceWord(MemberId id) const {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(region_.data() + FenceWordOffset(id)));
}

}  // namespace farleaf::dsm
