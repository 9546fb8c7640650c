// SortedSetStore: members with scores, in the order of both. A member's entry holds its score and is the truth; an
// entry under its score says where to look, and is believed only if the member's entry agrees. README.md has the
// invariants.
//
// Thread rule: as CollectionStore.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/records/collection.h"
#include "server/records/piece_scan.h"

namespace farleaf::server {

/// Eight bytes that sort as the number does. REQUIRES: no nan.
std::string ScoreBytes(double score);
/// Of bytes that somebody has stored: Corruption if they are not what ScoreBytes makes, of any number.
Result<double> ParseScore(std::string_view bytes);

/// What a score's entry says: how many claim it, and when the last one did.
struct ScoreClaims {
  uint64_t claims = 0;
  uint64_t claimed_ns = 0;  ///< since 1970
};
std::optional<ScoreClaims> ParseScoreClaims(std::string_view value);

struct ScoredMember {
  std::string member;
  double score = 0;
};

/// The new score of a member that has this one (nullopt: it is absent); nullopt: as it is. Pure.
using ScoreFunction = std::function<std::optional<double>(std::optional<double>)>;

struct ScoreUpdate {
  Presence presence = Presence::kHere;  ///< kOther: the key is of another type
  std::optional<double> before, after;
};

class SortedSetStore {
 public:
  explicit SortedSetStore(const CollectionStore* collections) : collections_(collections) {}

  /// Atomic. REQUIRES: MemberFits.
  dsm::Task<Result<ScoreUpdate>> Update(dsm::OpContext& op, std::string_view key,
                                        std::string_view member, const ScoreFunction& wanted) const;
  /// Atomic. `before` of what it returns: the score that it had.
  dsm::Task<Result<ScoreUpdate>> Remove(dsm::OpContext& op, std::string_view key,
                                        std::string_view member) const;
  /// REQUIRES: the collection was opened.
  dsm::Task<Result<std::optional<double>>> Score(dsm::OpContext& op, std::string_view key,
                                                 uint64_t generation,
                                                 std::string_view member) const;
  /// Members among the rows of a scan of scores' entries whose own entries agree, in their order.
  dsm::Task<Status> Verify(dsm::OpContext& op, std::string_view key, uint64_t generation,
                           const std::vector<index::KeyValue>& rows,
                           std::vector<ScoredMember>* members) const;

 private:
  dsm::Task<Status> Claim(dsm::OpContext& op, const std::string& score_key) const;
  dsm::Task<Status> Disclaim(dsm::OpContext& op, const std::string& score_key) const;
  /// Sets the member's score if it is `before` still. False: it is not.
  dsm::Task<Result<bool>> Exchange(dsm::OpContext& op, const std::string& member_key,
                                   std::optional<double> before, double after) const;

  const CollectionStore* const collections_;
};

}  // namespace farleaf::server
