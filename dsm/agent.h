// RegionAgent: what opens a memory server's region to clients of one fabric.
//
// Thread rule: built and destroyed by one thread, CutOff and TakeEnded by any; it has threads of its own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dsm/base/status.h"
#include "dsm/member.h"

namespace farleaf::dsm {

class RegionAgent {
 public:
  /// Closes every connection; nothing from them can land afterwards.
  virtual ~RegionAgent() = default;
  /// What a Directory carries: FABRIC:ADDRESS.
  virtual const std::string& endpoint() const = 0;
  /// Connections that have passed the handshake and are open.
  virtual size_t connections() const = 0;
  /// Destroys the connections of `member` and of its older incarnations, and refuses new ones of
  /// them with Fenced for as long as the agent lives, whether there were any or not
  /// (dsm/fenced_members.h). Ok: nothing from them can land any more. A handshake that is going on
  /// meanwhile is either refused, or its connection destroyed before this returns. Does no harm twice.
  virtual Status CutOff(const MemberIdentity& member) = 0;
  /// Compute servers, each once, that were let in and whose processes have ended since, if the fabric
  /// shows it; whether they had left the pool before is not known here.
  virtual std::vector<MemberIdentity> TakeEnded() { return {}; }
};

}  // namespace farleaf::dsm
