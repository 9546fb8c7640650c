// HLEN and ZCARD, HSCAN and ZSCAN: what walks over a collection's members, whatever their type.
#include "server/frontend/redis/collections.h"
#include "server/frontend/redis/commands.h"
#include "server/frontend/redis/iteration.h"
#include "server/frontend/redis/pattern.h"
#include "server/records/sorted_set.h"

namespace farleaf::server::redis {

using dsm::Task;

Task<Status> CollectionLength(Call call) {
  const RecordType type = IsWord(call.at(0), "hlen") ? RecordType::kHash : RecordType::kSortedSet;
  const auto opened = co_await OpenCollection(call, type);
  if (!opened.ok() || opened->presence == Presence::kOther) co_return opened.status();
  int64_t length = 0;
  if (opened->presence == Presence::kHere) {
    const PieceScan::Range all = EntriesOf(call.at(1), opened->generation, MainKind(type));
    const auto counted = co_await CountEntries(call, all);
    if (!counted.ok()) co_return counted.status();
    length = *counted;
  }
  call.reply.Integer(length);
  co_return Status::Ok();
}

// Members come in the order of their bytes, whatever their scores, so that one that stays is met though its score
// changes. Of a collection that has ended meanwhile, or of another one, a cursor is behind or before everything.
Task<Status> CollectionScan(Call call) {
  const bool hash = IsWord(call.at(0), "hscan");
  ScanOptions options;
  if (const std::string_view wrong = ParseScan(call, 2, &options); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  const RecordType type = hash ? RecordType::kHash : RecordType::kSortedSet;
  const auto opened = co_await OpenCollection(call, type);
  if (!opened.ok() || opened->presence == Presence::kOther) co_return opened.status();
  if (opened->presence == Presence::kAbsent) {
    call.reply.Array(2);
    call.reply.BulkNumber(0);
    call.reply.Array(0);
    co_return Status::Ok();
  }
  const PieceScan::Range all = EntriesOf(call.at(1), opened->generation, MainKind(type));
  Iteration turn;
  const Status gone_on = co_await GoOn(call, options, all, &turn);
  if (!gone_on.ok() || !turn.known) co_return gone_on;
  const size_t at = call.reply.size();
  size_t members = 0;
  for (const index::KeyValue& row : turn.rows) {
    const std::string_view member = std::string_view(row.key).substr(all.start.size());
    if (!MatchesPattern(options.pattern, member)) continue;
    call.reply.Bulk(member);
    if (hash) {
      call.reply.Bulk(row.value);
    } else {
      const auto score = ParseScore(row.value);
      if (!score.ok()) co_return score.status();
      call.reply.Bulk(DoubleText(*score));
    }
    ++members;
  }
  call.reply.Head(Reply::Kind::kArray, at, 2 * members);
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
