// What is left of collections behind their ends and behind compute servers that died: members of generations that are
// gone, scores that are no member's, heads that nobody holds. README.md has the argument.
//
// Thread rule: as PacedWalk.
#pragma once

#include <cstdint>
#include <string>

#include "server/records/collection.h"
#include "server/records/record_walk.h"

namespace farleaf::server {

class MemberSweep final : public PacedWalk {
 public:
  /// `abandoned_ms`: what no change of a member takes.
  MemberSweep(const RecordStore* store, Options options, uint64_t abandoned_ms)
      : PacedWalk(store, std::string(1, kMemberSpace), EndOfPrefix(std::string(1, kMemberSpace)),
                  options, 1),  // each visit looks at what the one before has found
        abandoned_ms_(abandoned_ms) {}

 private:
  dsm::Task<Result<bool>> Visit(dsm::OpContext& op, const index::KeyValue& row) override;
  dsm::Task<Result<bool>> VisitEntry(dsm::OpContext& op, const index::KeyValue& row);
  dsm::Task<Result<bool>> VisitScore(dsm::OpContext& op, const index::KeyValue& row, MemberKey key);

  const uint64_t abandoned_ms_;
  std::string last_prefix_;  // of a collection and generation
  bool last_lives_ = false;
};

/// Ends a collection without members that has not been changed for `abandoned_ms`: whoever held it is dead, or has
/// failed. Whether it did.
dsm::Task<Result<bool>> EndIfAbandoned(dsm::OpContext& op, const RecordStore& store,
                                       const std::string& head_key, const Record& head,
                                       uint64_t abandoned_ms);

}  // namespace farleaf::server
