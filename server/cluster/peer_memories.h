// PeerMemories: the memory of other nodes that this node writes to: of each node that of its latest life. What is known of a life that is over
// would stay, with its connections in each worker, until this process ends; and its number comes back at last.
//
// Ids of memory servers are taken from lives' numbers, and so come back behind some 65,000 lives: whoever had an id before is gone by then.
//
// Invariants: one memory a node, one node an id. A life is numbered higher than all before it (README.md, Life), so who names an earlier one of a node has read what is no longer so.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <mutex>

#include "dsm/directory.h"
#include "dsm/member.h"
#include "dsm/transport.h"

namespace farleaf::server::cluster {

class PeerMemories {
 public:
  explicit PeerMemories(dsm::Fabric* fabric) : fabric_(fabric) {}

  /// `memory` of that life (a node's number, the life as its incarnation) is known from now on, and that of the node's lives before it no
  /// more: batches to it end as Fabric::Remove says. Unavailable: a later life is known. Else as Fabric::Add; what was known stays then,
  /// but for what had the id of `memory`.
  Status Add(const dsm::MemberIdentity& life, const dsm::ServerEndpoint& memory);

 private:
  /// What had the id of `memory` in another life is known no more. REQUIRES: mutex_ held.
  void LetGoOf(dsm::ServerId server, const dsm::MemberIdentity& but);

  struct Known {
    uint64_t life = 0;
    dsm::ServerId server = 0;
  };

  dsm::Fabric* const fabric_;
  std::mutex mutex_;  // guards known_
  std::map<dsm::MemberId, Known> known_;
};

}  // namespace farleaf::server::cluster
