#include "dsm/lease_enforcer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/log.h"

namespace farleaf::dsm {

namespace {

/// How late the end of a process is noticed.
constexpr uint64_t kLookNsMax = 50 * kNsPerMs;

uint64_t LoadWord(std::span<const std::byte> region, uint64_t offset) {
  auto* const word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(region.data() + offset));
  return std::atomic_ref(*word).load(std::memory_order_acquire);
}

}  // namespace

LeaseEnforcer::LeaseEnforcer(Deps deps)
    : deps_(std::move(deps)), watch_(deps_.lease_ms * kNsPerMs), words_(kMembersMax) {
  FARLEAF_CHECK(deps_.clock && deps_.cut_off && deps_.region.size() >= kFencesOffset);
}

LeaseEnforcer::~LeaseEnforcer() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LeaseEnforcer::Start() {
  FARLEAF_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void LeaseEnforcer::Run() {
  const std::chrono::nanoseconds interval(std::min(watch_.look_interval_ns(), kLookNsMax));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return stop_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

void LeaseEnforcer::Look() {
  // First the ends, then the words: whoever has left in good order has set its word to 0 before.
  std::vector<MemberIdentity> ended;
  if (deps_.take_ended) ended = deps_.take_ended();
  for (size_t id = 0; id < words_.size(); ++id) {
    words_[id] = LoadWord(deps_.region, LeaseWordOffset(static_cast<MemberId>(id)));
  }
  std::vector<MemberIdentity> expired = watch_.Look(words_, deps_.clock->NowNs());
  for (const MemberIdentity& member : ended) {
    if (LeaseWord::Decode(words_[member.id]).incarnation != member.incarnation) continue;
    if (told_[member.id] < member.incarnation) {
      told_[member.id] = member.incarnation;
      FARLEAF_LOG(warn, "memory server {}: the process of {} has ended without leaving the pool",
                  deps_.server, member.ToString());
    }
    std::erase(expired, member);
    CutOff(member);
  }
  for (const MemberIdentity& member : expired) {
    if (told_[member.id] < member.incarnation) {
      told_[member.id] = member.incarnation;
      FARLEAF_LOG(warn, "memory server {}: {} has not renewed its lease for {} ms", deps_.server,
                  member.ToString(), deps_.lease_ms);
    }
    CutOff(member);
  }
}

void LeaseEnforcer::CutOff(const MemberIdentity& member) {
  const Status cut = deps_.cut_off(member);
  if (cut.ok()) {
    watch_.Confirmed(member);
    return;
  }
  if (failing_[member.id] < member.incarnation) {
    failing_[member.id] = member.incarnation;
    FARLEAF_LOG(warn, "memory server {} cannot cut off {}, and goes on trying: {}", deps_.server,
                member.ToString(), cut.ToString());
  }
}

}  // namespace farleaf::dsm
