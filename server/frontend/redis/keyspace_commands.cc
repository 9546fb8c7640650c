// Commands on all keys: DBSIZE, FLUSHDB, SCAN, and RANGE, which no Redis has: its keys are in no order.
#include <algorithm>

#include "server/frontend/redis/collections.h"
#include "server/frontend/redis/commands.h"
#include "server/frontend/redis/iteration.h"
#include "server/frontend/redis/pattern.h"
#include "server/records/piece_scan.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

/// A record that can be seen now, of a row; nullopt: it has expired.
Result<std::optional<Record>> Visible(const index::KeyValue& row, uint64_t now_ms) {
  auto record = ParseRecord(row.value);
  if (!record.ok()) return record.status();
  if (IsExpired(*record, now_ms)) return std::optional<Record>();
  return std::optional<Record>(*record);
}

/// Of the tree's key.
std::string_view UserKey(std::string_view tree_key) { return tree_key.substr(1); }

struct RangeOptions {
  std::string start, end;
  uint64_t limit = UINT64_MAX;
  bool reverse = false;
  bool keys_only = false;
};

/// Empty if all is well.
std::string_view ParseRange(const Call& call, RangeOptions* options) {
  const std::string space(1, kUserKeySpace);
  options->start = call.at(1) == "-" ? space : space + std::string(call.at(1));
  options->end = call.at(2) == "+" ? EndOfPrefix(space) : space + std::string(call.at(2));
  for (size_t i = 3; i < call.count(); ++i) {
    int64_t limit = 0;
    if (IsWord(call.at(i), "rev")) {
      options->reverse = true;
    } else if (IsWord(call.at(i), "keys")) {
      options->keys_only = true;
    } else if (!IsWord(call.at(i), "limit") || i + 1 == call.count()) {
      return kSyntaxError;
    } else if (!ParseInteger(call.at(++i), &limit) || limit < 0) {
      return kNotAnInteger;
    } else {
      options->limit = static_cast<uint64_t>(limit);
    }
  }
  return {};
}

}  // namespace

Task<Status> DatabaseSize(Call call) {
  const std::string space(1, kUserKeySpace);
  const PieceScan::Range all{.start = space, .end = EndOfPrefix(space)};
  const auto keys = co_await CountEntries(call, all);
  if (!keys.ok()) co_return keys.status();
  call.reply.Integer(*keys);
  co_return Status::Ok();
}

Task<Status> Flush(Call call) {
  if (call.count() > 2 ||
      (call.count() == 2 && !IsWord(call.at(1), "sync") && !IsWord(call.at(1), "async"))) {
    call.reply.Error(kSyntaxError);
    co_return Status::Ok();
  }
  const Status flushed = co_await call.environment.FlushAll();
  if (!flushed.ok()) co_return flushed;
  call.reply.Ok();
  co_return Status::Ok();
}

Task<Status> Scan(Call call) {
  ScanOptions options;
  if (const std::string_view wrong = ParseScan(call, 1, &options); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  // Keys are in order: those that match are behind what the pattern begins with.
  constexpr size_t kTreeKeyBytesMax = 1024;
  const std::string prefix = kUserKeySpace + LiteralPrefix(options.pattern);
  const PieceScan::Range all{.start = prefix.substr(0, kTreeKeyBytesMax),
                             .end = EndOfPrefix(prefix.substr(0, kTreeKeyBytesMax))};
  Iteration turn;
  const Status gone_on = co_await GoOn(call, options, all, &turn);
  if (!gone_on.ok() || !turn.known) co_return gone_on;
  const size_t at = call.reply.size();
  size_t keys = 0;
  const uint64_t now_ms = call.store().NowMs();
  for (const index::KeyValue& row : turn.rows) {
    const auto record = Visible(row, now_ms);
    if (!record.ok()) co_return record.status();
    if (!record->has_value() || !MatchesPattern(options.pattern, UserKey(row.key))) continue;
    if (!options.type.empty() && TypeName((*record)->type) != options.type) continue;
    call.reply.Bulk(UserKey(row.key));
    ++keys;
  }
  call.reply.Head(Reply::Kind::kArray, at, keys);
  co_return Status::Ok();
}

Task<Status> Range(Call call) {
  RangeOptions options;
  if (const std::string_view wrong = ParseRange(call, &options); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  PieceScan scan(&call.store().tree(),
                 {.start = options.start,
                  .end = options.end,
                  .direction = options.reverse ? index::ScanDirection::kReverse
                                               : index::ScanDirection::kForward,
                  .rows_of_piece = std::clamp<uint64_t>(options.limit, 1, PieceScan::kRows)});
  const size_t at = call.reply.size();
  uint64_t rows = 0;
  while (!scan.done() && rows < options.limit) {
    const Status scanned = co_await NextPiece(call, &scan);
    if (!scanned.ok()) co_return scanned;
    const uint64_t now_ms = call.store().NowMs();
    for (const index::KeyValue& row : scan.rows()) {
      if (rows == options.limit) break;
      const auto record = Visible(row, now_ms);
      if (!record.ok()) co_return record.status();
      if (!record->has_value()) continue;
      ++rows;
      call.reply.Bulk(UserKey(row.key));
      if (options.keys_only) continue;
      if ((*record)->type == RecordType::kString) {
        call.reply.Bulk((*record)->data);
      } else {
        call.reply.Null();
      }
    }
    if (call.reply.size() > call.limits.reply_bytes_max) break;  // told by the connection
  }
  call.reply.Head(Reply::Kind::kArray, at, options.keys_only ? rows : 2 * rows);
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
