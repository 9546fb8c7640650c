// LeaseWatch: decides which compute servers a memory server has to cut off because they do not renew
// their leases. It is told what the lease words say at moments that are not far apart.
//
// Invariants:
//   - whoever's word has moved, or was first seen, less than the lease ago is not named: the count
//     begins with the look that saw the word first, which is never before the word was written;
//   - when the looks themselves have paused, nobody is named for it: renewals that came meanwhile may
//     not have been executed yet (the whole machine stood still, say), so every count begins anew.
//     A pause that is not noticed as one is at most half a lease; the renewals of a member that lives
//     are a quarter of a lease apart at most, so its word is never seen unmoved for a whole lease.
// Thread rule: one thread; it has no clock of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dsm/member.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

class LeaseWatch {
 public:
  static constexpr uint64_t kLooksPerLease = 8;

  /// REQUIRES: lease_ns > 0.
  explicit LeaseWatch(uint64_t lease_ns);

  uint64_t look_interval_ns() const { return lease_ns_ / kLooksPerLease; }
  /// One look at the lease words, by id. Returns who is to be cut off, again at every look until
  /// Confirmed, or until its word changes.
  std::vector<MemberIdentity> Look(std::span<const uint64_t> lease_words, uint64_t now_ns);
  /// `member` is cut off.
  void Confirmed(const MemberIdentity& member);

 private:
  struct Seen {
    uint64_t word = 0;
    uint64_t since_ns = 0;
    uint64_t cut_off = 0;  ///< the newest incarnation that is
  };
  const uint64_t lease_ns_;
  std::vector<Seen> seen_;  // by id
  uint64_t last_look_ns_ = 0;
};

}  // namespace farleaf::dsm
