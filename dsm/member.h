// MemberIdentity: who this process is in the pool. Granted at join (dsm/pool.h).
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/region_layout.h"

namespace farleaf::dsm {

struct MemberIdentity {
  MemberId id = 0;  ///< 0: an observer, which takes no locks and allocates nothing
  uint64_t incarnation = 0;

  friend bool operator==(const MemberIdentity&, const MemberIdentity&) = default;
  uint16_t short_incarnation() const { return static_cast<uint16_t>(incarnation & 0xfff); }
  std::string ToString() const {
    return "compute server " + std::to_string(id) + " (incarnation " + std::to_string(incarnation) +
           ")";
  }
};

}  // namespace farleaf::dsm
