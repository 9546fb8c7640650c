#include "dsm/lease_watch.h"

#include <algorithm>

#include "dsm/base/check.h"

namespace farleaf::dsm {

LeaseWatch::LeaseWatch(uint64_t lease_ns) : lease_ns_(lease_ns), seen_(kMembersMax) {
  FARLEAF_CHECK(lease_ns > 0);
}

std::vector<MemberIdentity> LeaseWatch::Look(std::span<const uint64_t> lease_words,
                                             uint64_t now_ns) {
  FARLEAF_CHECK(lease_words.size() == seen_.size(), lease_words.size());
  const bool paused = now_ns - last_look_ns_ > lease_ns_ / 2;
  last_look_ns_ = now_ns;
  std::vector<MemberIdentity> expired;
  for (size_t id = 1; id < seen_.size(); ++id) {
    Seen& seen = seen_[id];
    const uint64_t word = lease_words[id];
    if (word != seen.word || paused) {
      seen.word = word;
      seen.since_ns = now_ns;
      continue;
    }
    const uint64_t incarnation = LeaseWord::Decode(word).incarnation;
    if (incarnation <= seen.cut_off || now_ns - seen.since_ns < lease_ns_) continue;
    expired.push_back({static_cast<MemberId>(id), incarnation});
  }
  return expired;
}

void LeaseWatch::Confirmed(const MemberIdentity& member) {
  uint64_t& cut_off = seen_[member.id].cut_off;
  cut_off = std::max(cut_off, member.incarnation);
}

}  // namespace farleaf::dsm
