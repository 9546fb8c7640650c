#include "server/records/member_sweep.h"

#include "server/records/sorted_set.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;

namespace {

// More holds are not worth a look at every turn: those that were left are few.
constexpr uint64_t kHoldsLookedAt = 16;

struct EndRule final : RecordRule {
  uint64_t cas = 0;
  bool ended = false;
  RecordAction Decide(const Record* current, Record*, std::string_view*) override {
    ended = current != nullptr && current->cas == cas;
    return ended ? RecordAction::kDelete : RecordAction::kKeep;
  }
};

}  // namespace

Task<Result<bool>> EndIfAbandoned(OpContext& op, const RecordStore& store,
                                  const std::string& head_key, const Record& head,
                                  uint64_t abandoned_ms) {
  const auto parsed = ParseHead(head);
  if (!parsed.ok() || parsed->holds > kHoldsLookedAt) co_return false;
  if (head.cas / kNsPerMs + abandoned_ms > store.NowMs()) co_return false;
  const std::string prefix =
      MemberPrefix(std::string_view(head_key).substr(1), parsed->generation, MainKind(head.type));
  PieceScan scan(&store.tree(), {.start = prefix, .end = EndOfPrefix(prefix), .rows_of_piece = 1});
  EndRule rule;
  rule.cas = head.cas;
  const Status scanned = co_await scan.Next(op);
  if (!scanned.ok()) co_return scanned;
  if (!scan.rows().empty()) co_return false;
  const auto ended = co_await store.Update(op, head_key, rule);
  if (!ended.ok()) co_return ended.status();
  co_return rule.ended;
}

// What is damaged stays as it is, for its readers to be told of, and keeps the sweep from nothing behind it.
Task<Result<bool>> MemberSweep::Visit(OpContext& op, const index::KeyValue& row) {
  const auto deleted = co_await VisitEntry(op, row);
  if (deleted.status().code() == StatusCode::kCorruption) co_return false;
  co_return deleted;
}

Task<Result<bool>> MemberSweep::VisitEntry(OpContext& op, const index::KeyValue& row) {
  const auto key = ParseMemberKey(row.key);
  if (!key) co_return false;
  const std::string_view prefix = std::string_view(row.key).substr(0, key->prefix_bytes);
  // A generation that has gone never comes back; one that lived a moment ago is looked at again in the next turn.
  if (prefix != last_prefix_) {
    const CollectionStore collections(&store());
    last_prefix_.clear();
    const RecordType type =
        key->kind == EntryKind::kField ? RecordType::kHash : RecordType::kSortedSet;
    const auto opened = co_await collections.Open(op, key->collection, type);
    if (!opened.ok()) co_return opened.status();
    last_lives_ = opened->presence == Presence::kHere && opened->generation == key->generation;
    last_prefix_ = prefix;
  }
  if (last_lives_ && key->kind != EntryKind::kScore) co_return false;
  if (last_lives_) {
    const auto deleted = co_await VisitScore(op, row, *key);
    co_return deleted;
  }
  const auto deleted = co_await store().tree().Delete(op, row.key);
  co_return deleted;
}

Task<Result<bool>> MemberSweep::VisitScore(OpContext& op, const index::KeyValue& row,
                                           MemberKey key) {
  const auto claims = ParseScoreClaims(row.value);
  if (!claims || key.rest.size() < kScoreBytes) co_return false;
  if (claims->claimed_ns / kNsPerMs + abandoned_ms_ > store().NowMs()) co_return false;
  const CollectionStore collections(&store());
  const SortedSetStore sets(&collections);
  const auto score =
      co_await sets.Score(op, key.collection, key.generation, key.rest.substr(kScoreBytes));
  if (!score.ok()) co_return score.status();
  if (*score && ScoreBytes(**score) == key.rest.substr(0, kScoreBytes)) co_return false;
  const auto deleted = co_await store().tree().DeleteIf(op, row.key, row.value);
  if (!deleted.ok()) co_return deleted.status();
  co_return *deleted == index::DeleteIfResult::kDeleted;
}

}  // namespace farleaf::server
