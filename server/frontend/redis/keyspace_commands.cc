// Commands on all keys: DBSIZE, FLUSHDB, SCAN, and RANGE, which no Redis has: its keys are in no order.
#include <algorithm>
#include <charconv>

#include "dsm/base/bytes.h"
#include "server/frontend/redis/commands.h"
#include "server/frontend/redis/pattern.h"
#include "server/records/piece_scan.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

constexpr uint64_t kCursorLifeMs = 60 * 60 * 1'000;
constexpr uint64_t kScanRowsMax = 10'000;

/// A record that can be seen now, of a row; nullopt: it has expired.
Result<std::optional<Record>> Visible(const index::KeyValue& row, uint64_t now_ms) {
  auto record = ParseRecord(row.value);
  if (!record.ok()) return record.status();
  if (IsExpired(*record, now_ms)) return std::optional<Record>();
  return std::optional<Record>(*record);
}

/// Of the tree's key.
std::string_view UserKey(std::string_view tree_key) { return tree_key.substr(1); }

struct ScanOptions {
  uint64_t cursor = 0;
  uint64_t rows = 10;
  std::string_view pattern = "*";
  std::string type;  ///< empty: any
};

/// Empty if all is well.
std::string_view ParseScan(const Call& call, ScanOptions* options) {
  const std::string_view text = call.at(1);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), options->cursor);
  if (error != std::errc() || end != text.data() + text.size()) return "ERR invalid cursor";
  for (size_t i = 2; i < call.count(); i += 2) {
    if (i + 1 == call.count()) return kSyntaxError;
    const std::string_view word = call.at(i), argument = call.at(i + 1);
    int64_t rows = 0;
    if (IsWord(word, "match")) {
      options->pattern = argument;
    } else if (IsWord(word, "type")) {
      options->type = LowerCase(argument);
    } else if (!IsWord(word, "count")) {
      return kSyntaxError;
    } else if (!ParseInteger(argument, &rows)) {
      return kNotAnInteger;
    } else if (rows < 1) {
      return kSyntaxError;
    } else {
      options->rows = std::min(static_cast<uint64_t>(rows), kScanRowsMax);
    }
  }
  return {};
}

std::string CursorKey(uint64_t cursor) {
  std::string key(1 + sizeof cursor, kCursorSpace);
  StoreBig64(key.data() + 1, cursor);
  return key;
}

/// Remembers where an iteration goes on, in the pool: any server can go on with it.
Task<Result<uint64_t>> NewCursor(Call call, std::string position) {
  // Clients take it for a number of 63 bits.
  const uint64_t cursor = call.op.worker.random().Next() >> 1 | 1;
  const std::string key = CursorKey(cursor);
  SetRule rule;
  rule.expiry_ms = call.store().NowMs() + kCursorLifeMs;
  rule.data = position;
  const auto stored = co_await call.store().Update(call.op, key, rule);
  if (!stored.ok()) co_return stored.status();
  co_return cursor;
}

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
  PieceScan scan(&call.store().tree(), {.start = space, .end = EndOfPrefix(space)});
  int64_t keys = 0;
  while (!scan.done()) {
    if (call.environment.thread().stopping())
      co_return Status::Unavailable("the server is stopping");
    call.op.deadline_ns = call.environment.DeadlineNs();
    const Status scanned = co_await scan.Next(call.op);
    if (!scanned.ok()) co_return scanned;
    const uint64_t now_ms = call.store().NowMs();
    for (const index::KeyValue& row : scan.rows()) {
      const auto record = Visible(row, now_ms);
      if (!record.ok()) co_return record.status();
      keys += record->has_value();
    }
    co_await call.op.worker.Sleep(0);  // others' turn, where no verb suspends
  }
  call.reply.Integer(keys);
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
  if (const std::string_view wrong = ParseScan(call, &options); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  // Keys are in order: those that match are behind what the pattern begins with.
  const std::string prefix = kUserKeySpace + LiteralPrefix(options.pattern);
  std::string start = prefix;
  if (options.cursor != 0) {
    Record cursor;
    const std::string key = CursorKey(options.cursor);
    const auto found = co_await call.store().Get(call.op, key, &call.value, &cursor);
    if (!found.ok()) co_return found.status();
    if (!*found) {
      call.reply.Error("ERR the cursor is unknown or has expired: it is kept for an hour");
      co_return Status::Ok();
    }
    start = std::max(prefix, std::string(cursor.data));
  }
  constexpr size_t kTreeKeyBytesMax = 1024;
  if (start.size() > kTreeKeyBytesMax) start = EndOfPrefix(prefix);  // no key is that long
  PieceScan scan(&call.store().tree(), {.start = start,
                                        .end = EndOfPrefix(prefix.substr(0, kTreeKeyBytesMax)),
                                        .rows_of_piece = options.rows});
  const Status scanned = co_await scan.Next(call.op);
  if (!scanned.ok()) co_return scanned;
  uint64_t next = 0;
  if (!scan.done()) {
    const auto cursor = co_await NewCursor(call, scan.position());
    if (!cursor.ok()) co_return cursor.status();
    next = *cursor;
  }
  call.reply.Array(2);
  call.reply.BulkNumber(next);
  const size_t at = call.reply.size();
  size_t keys = 0;
  const uint64_t now_ms = call.store().NowMs();
  for (const index::KeyValue& row : scan.rows()) {
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
    if (call.environment.thread().stopping())
      co_return Status::Unavailable("the server is stopping");
    call.op.deadline_ns = call.environment.DeadlineNs();
    const Status scanned = co_await scan.Next(call.op);
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
