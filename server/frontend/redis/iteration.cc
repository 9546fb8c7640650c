#include "server/frontend/redis/iteration.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"
#include "server/records/record_store.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

constexpr uint64_t kCursorLifeMs = 60 * 60 * 1'000;
constexpr uint64_t kCursorAttemptsMax = 8;
constexpr uint64_t kScanRowsMax = 10'000;
// Each row is matched from each star on, and this thread has others to serve. Keys have at most 1,023 bytes.
constexpr size_t kPatternBytesMax = 8 << 10;

std::string CursorKey(uint64_t cursor) {
  std::string key(1 + sizeof cursor, kCursorSpace);
  StoreBig64(key.data() + 1, cursor);
  return key;
}

/// A number for `position`, the same at every server. Clients take it for a number of 63 bits.
uint64_t CursorOf(std::string_view position, uint64_t attempt) {
  uint64_t hash = Mix64(position.size() + (attempt << 32));
  for (size_t at = 0; at < position.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, position.data() + at, std::min(sizeof word, position.size() - at));
    hash = Mix64(hash ^ word);
  }
  return hash >> 1 | 1;
}

/// Stores a position under its number, or keeps it for longer, unless another one has the number.
struct CursorRule final : RecordRule {
  std::string_view position;
  uint64_t expiry_ms = 0;
  bool stored = false;

  RecordAction Decide(const Record* current, Record* next, std::string_view*) override {
    stored = !current || current->data == position;
    if (!stored) return RecordAction::kKeep;
    next->expiry_ms = expiry_ms;
    next->data = position;
    return RecordAction::kWrite;
  }
};

Task<Result<uint64_t>> KeepCursor(Call call, std::string position) {
  CursorRule rule;
  rule.position = position;
  rule.expiry_ms = call.store().NowMs() + kCursorLifeMs;
  for (uint64_t attempt = 0; attempt < kCursorAttemptsMax; ++attempt) {
    const uint64_t cursor = CursorOf(position, attempt);
    const std::string key = CursorKey(cursor);
    const auto updated = co_await call.store().Update(call.op, key, rule);
    if (!updated.ok()) co_return updated.status();
    if (rule.stored) co_return cursor;
  }
  co_return Status::Unavailable("no number is free for a cursor: go on with another COUNT");
}

}  // namespace

std::string_view ParseScan(const Call& call, size_t at, ScanOptions* options) {
  const std::string_view text = call.at(at);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), options->cursor);
  if (error != std::errc() || end != text.data() + text.size()) return "ERR invalid cursor";
  for (size_t i = at + 1; i < call.count(); i += 2) {
    if (i + 1 == call.count()) return kSyntaxError;
    const std::string_view word = call.at(i), argument = call.at(i + 1);
    int64_t rows = 0;
    if (IsWord(word, "match")) {
      if (argument.size() > kPatternBytesMax) return "ERR a MATCH pattern of more than 8192 bytes";
      options->pattern = argument;
    } else if (IsWord(word, "type") && at == 1) {
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

Task<Status> GoOn(Call call, const ScanOptions& options, PieceScan::Range all, Iteration* turn) {
  if (options.cursor != 0) {
    Record cursor;
    const std::string key = CursorKey(options.cursor);
    const auto found = co_await call.store().Get(call.op, key, &call.value, &cursor);
    if (!found.ok()) co_return found.status();
    turn->known = *found;
    if (!*found) {
      call.reply.Error("ERR the cursor is unknown or has expired: it is kept for an hour");
      co_return Status::Ok();
    }
    all.start = std::max(all.start, std::string(cursor.data));
  }
  all.rows_of_piece = options.rows;
  PieceScan scan(&call.store().tree(), std::move(all));
  const Status scanned = co_await scan.Next(call.op);
  if (!scanned.ok()) co_return scanned;
  uint64_t next = 0;
  if (!scan.done()) {
    const auto cursor = co_await KeepCursor(call, scan.position());
    if (!cursor.ok()) co_return cursor.status();
    next = *cursor;
  }
  turn->rows = scan.rows();
  call.reply.Array(2);
  call.reply.BulkNumber(next);
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
