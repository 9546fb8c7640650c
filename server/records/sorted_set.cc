#include "server/records/sorted_set.h"

#include <bit>
#include <cmath>

#include "dsm/base/bytes.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;
using index::CurrentValue;
using index::ModifyAction;
using index::ModifyFunction;

namespace {

constexpr size_t kClaimsBytes = 16;
constexpr uint64_t kSign = uint64_t{1} << 63;
constexpr uint64_t kConflictPauseNs = 50'000;  // at most; somebody else's exchange was done

std::string ClaimsText(const ScoreClaims& claims) {
  std::string text(kClaimsBytes, '\0');
  StoreLittle<uint64_t>(text.data(), claims.claims);
  StoreLittle<uint64_t>(text.data() + 8, claims.claimed_ns);
  return text;
}

std::string ScoreKey(std::string_view key, uint64_t generation, double score,
                     std::string_view member) {
  return MemberPrefix(key, generation, EntryKind::kScore).append(ScoreBytes(score)).append(member);
}

std::string OwnKey(std::string_view key, uint64_t generation, std::string_view member) {
  return MemberPrefix(key, generation, EntryKind::kMember).append(member);
}

}  // namespace

std::string ScoreBytes(double score) {
  const auto bits = std::bit_cast<uint64_t>(score + 0.0);  // there is one zero
  std::string bytes(kScoreBytes, '\0');
  StoreBig64(bytes.data(), bits & kSign ? ~bits : bits | kSign);
  return bytes;
}

Result<double> ParseScore(std::string_view bytes) {
  if (bytes.size() != kScoreBytes) return Status::Corruption("a member's score of another size");
  const uint64_t bits = LoadBig64(bytes.data());
  const auto score = std::bit_cast<double>(bits & kSign ? bits & ~kSign : ~bits);
  // A second zero, too: who takes it for the first would wait for ever until it is there.
  if (std::isnan(score) || ScoreBytes(score) != bytes) {
    return Status::Corruption("a member's score that is no number");
  }
  return score;
}

std::optional<ScoreClaims> ParseScoreClaims(std::string_view value) {
  if (value.size() != kClaimsBytes) return std::nullopt;
  return ScoreClaims{LoadLittle<uint64_t>(value.data()), LoadLittle<uint64_t>(value.data() + 8)};
}

Task<Status> SortedSetStore::Claim(OpContext& op, const std::string& score_key) const {
  const uint64_t now_ns = collections_->records().NowMs() * kNsPerMs;
  const ModifyFunction claim = [now_ns](std::optional<std::string_view> value,
                                        std::string* replacement) {
    const auto claims = value ? ParseScoreClaims(*value) : std::nullopt;
    *replacement = ClaimsText({claims ? claims->claims + 1 : 1, now_ns});
    return ModifyAction::kWrite;
  };
  const auto claimed = co_await collections_->tree().ReadModifyWrite(op, score_key, claim);
  co_return claimed.ok() ? Status::Ok() : claimed.status();
}

Task<Status> SortedSetStore::Disclaim(OpContext& op, const std::string& score_key) const {
  const ModifyFunction disclaim = [](std::optional<std::string_view> value,
                                     std::string* replacement) {
    const auto claims = value ? ParseScoreClaims(*value) : std::nullopt;
    if (!value) return ModifyAction::kKeep;
    if (!claims || claims->claims <= 1) return ModifyAction::kDelete;
    *replacement = ClaimsText({claims->claims - 1, claims->claimed_ns});
    return ModifyAction::kWrite;
  };
  const auto disclaimed = co_await collections_->tree().ReadModifyWrite(op, score_key, disclaim);
  co_return disclaimed.ok() ? Status::Ok() : disclaimed.status();
}

Task<Result<std::optional<double>>> SortedSetStore::Score(OpContext& op, std::string_view key,
                                                          uint64_t generation,
                                                          std::string_view member) const {
  std::string value;
  const std::string own = OwnKey(key, generation, member);
  const auto found = co_await collections_->tree().Get(op, own, &value);
  if (!found.ok()) co_return found.status();
  if (!*found) co_return std::optional<double>();
  const auto score = ParseScore(value);
  if (!score.ok()) co_return score.status();
  co_return std::optional<double>(*score);
}

Task<Result<bool>> SortedSetStore::Exchange(OpContext& op, const std::string& member_key,
                                            std::optional<double> before, double after) const {
  struct Change {
    std::optional<std::string> expected;
    std::string next;
    bool done = false;
  } change{before ? std::optional(ScoreBytes(*before)) : std::nullopt, ScoreBytes(after)};
  Change* const at = &change;
  const ModifyFunction exchange = [at](std::optional<std::string_view> value,
                                       std::string* replacement) {
    at->done = value.has_value() == at->expected.has_value() && (!value || *value == *at->expected);
    if (!at->done) return ModifyAction::kKeep;
    *replacement = at->next;
    return ModifyAction::kWrite;
  };
  const auto exchanged = co_await collections_->tree().ReadModifyWrite(op, member_key, exchange);
  if (!exchanged.ok()) co_return exchanged.status();
  co_return change.done;
}

Task<Result<ScoreUpdate>> SortedSetStore::Update(OpContext& op, std::string_view key,
                                                 std::string_view member,
                                                 const ScoreFunction& wanted) const {
  for (;;) {
    const auto opened = co_await collections_->Open(op, key, RecordType::kSortedSet);
    if (!opened.ok()) co_return opened.status();
    if (opened->presence == Presence::kOther) co_return ScoreUpdate{Presence::kOther};
    uint64_t generation = opened->generation;
    std::optional<double> before;
    if (opened->presence == Presence::kHere) {
      const auto score = co_await Score(op, key, generation, member);
      if (!score.ok()) co_return score.status();
      before = *score;
    }
    const std::optional<double> after = wanted(before);
    if (!after || after == before) co_return ScoreUpdate{opened->presence, before, before};
    if (!before) {
      const auto held = co_await collections_->Hold(op, key, RecordType::kSortedSet);
      if (!held.ok()) co_return held.status();
      if (held->presence == Presence::kOther) co_return ScoreUpdate{Presence::kOther};
      generation = held->generation;
    }
    // Claimed before the member has the score, and disclaimed behind: a member's score always has an entry.
    const std::string score_key = ScoreKey(key, generation, *after, member);
    const Status claimed = co_await Claim(op, score_key);
    if (!claimed.ok()) co_return claimed;
    const std::string own = OwnKey(key, generation, member);
    const auto exchanged = co_await Exchange(op, own, before, *after);
    // What is claimed and held for nothing, where this or what follows fails, the sweep sees to.
    if (!exchanged.ok()) co_return exchanged.status();
    if (*exchanged) {
      if (before) {
        const std::string old_key = ScoreKey(key, generation, *before, member);
        [[maybe_unused]] const Status disclaimed = co_await Disclaim(op, old_key);
      }
      co_return ScoreUpdate{Presence::kHere, before, after};
    }
    [[maybe_unused]] const Status disclaimed = co_await Disclaim(op, score_key);
    if (!before) {
      [[maybe_unused]] const Status released = co_await collections_->Release(op, key, generation);
    }
    if (op.expired())
      co_return Status::DeadlineExceeded("a member that others change all the time");
    co_await op.worker.Sleep(op.worker.random().Below(kConflictPauseNs));
  }
}

Task<Result<ScoreUpdate>> SortedSetStore::Remove(OpContext& op, std::string_view key,
                                                 std::string_view member) const {
  const auto opened = co_await collections_->Open(op, key, RecordType::kSortedSet);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence != Presence::kHere) co_return ScoreUpdate{opened->presence};
  std::string score;
  std::string* const found = &score;
  const ModifyFunction remove = [found](std::optional<std::string_view> value, std::string*) {
    found->assign(value.value_or(std::string_view()));
    return value ? ModifyAction::kDelete : ModifyAction::kKeep;
  };
  const std::string own = OwnKey(key, opened->generation, member);
  const auto removed = co_await collections_->tree().ReadModifyWrite(op, own, remove);
  if (!removed.ok()) co_return removed.status();
  if (!removed->existed) co_return ScoreUpdate{};
  const auto before = ParseScore(score);
  if (!before.ok()) co_return before.status();
  const std::string score_key = ScoreKey(key, opened->generation, *before, member);
  [[maybe_unused]] const Status disclaimed = co_await Disclaim(op, score_key);
  [[maybe_unused]] const Status released =
      co_await collections_->Release(op, key, opened->generation);
  co_return ScoreUpdate{Presence::kHere, *before};
}

Task<Status> SortedSetStore::Verify(OpContext& op, std::string_view key, uint64_t generation,
                                    const std::vector<index::KeyValue>& rows,
                                    std::vector<ScoredMember>* members) const {
  members->clear();
  const size_t prefix_bytes = MemberPrefix(key, generation, EntryKind::kScore).size();
  std::vector<std::string> own;
  for (const index::KeyValue& row : rows) {
    if (row.key.size() < prefix_bytes + kScoreBytes) {
      co_return Status::Corruption("a score's entry of " + std::to_string(row.key.size()) +
                                   " bytes");
    }
    const std::string_view rest = std::string_view(row.key).substr(prefix_bytes);
    const auto score = ParseScore(rest.substr(0, kScoreBytes));
    if (!score.ok()) co_return score.status();
    members->push_back({std::string(rest.substr(kScoreBytes)), *score});
    own.push_back(OwnKey(key, generation, members->back().member));
  }
  const std::vector<std::string_view> keys(own.begin(), own.end());
  std::vector<std::optional<std::string>> scores;
  const Status got = co_await collections_->tree().MultiGet(op, keys, &scores);
  if (!got.ok()) co_return got;
  size_t kept = 0;
  for (size_t i = 0; i < members->size(); ++i) {
    if (!scores[i] || *scores[i] != ScoreBytes((*members)[i].score)) continue;
    if (kept != i) (*members)[kept] = std::move((*members)[i]);
    ++kept;
  }
  members->resize(kept);
  co_return Status::Ok();
}

}  // namespace farleaf::server
