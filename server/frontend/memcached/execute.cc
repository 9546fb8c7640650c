#include "server/frontend/memcached/execute.h"

#include <algorithm>
#include <charconv>

#include "server/records/string_rules.h"

namespace farleaf::server::memcached {

using dsm::Task;

uint64_t ExpiryMs(int64_t exptime, uint64_t now_ms) {
  constexpr int64_t kRelativeMax = 60 * 60 * 24 * 30;
  constexpr int64_t kSecondsMax = INT64_MAX / 2'000;
  if (exptime == 0) return 0;
  if (exptime < 0) return 1;
  const uint64_t ms = static_cast<uint64_t>(std::min(exptime, kSecondsMax)) * 1'000;
  return exptime <= kRelativeMax ? now_ms + ms : ms;
}

void MakeTreeKey(std::string_view key, std::string* buffer) {
  buffer->assign(1, kUserKeySpace).append(key);
}

void AppendLine(std::string_view line, std::string* out) { out->append(line).append("\r\n"); }

namespace {
constexpr size_t kDigitsMax = 20;

/// Writes to `to`, where there is room for all that is to come. Returns its end.
char* Put(std::string_view text, char* to) { return to + text.copy(to, text.size()); }
char* Put(uint64_t number, char* to) { return std::to_chars(to, to + kDigitsMax, number).ptr; }
}  // namespace

void AppendNumber(uint64_t number, std::string* out) {
  char digits[kDigitsMax];
  out->append(digits, static_cast<size_t>(Put(number, digits) - digits));
}

void AppendValue(std::string_view key, const Record& record, ValueForm form, std::string* out) {
  constexpr std::string_view kBegin = "VALUE ", kLineEnd = "\r\n";
  // Its line first: each append looks at the string's room anew.
  char line[kBegin.size() + kKeyBytesMax + 3 * (1 + kDigitsMax) + kLineEnd.size()];
  char* at = Put(" ", Put(key, Put(kBegin, line)));
  at = Put(record.data.size(), Put(" ", Put(record.flags, at)));
  if (form.with_cas) at = Put(record.cas, Put(" ", at));
  at = Put(kLineEnd, at);
  out->append(line, static_cast<size_t>(at - line)).append(record.data).append(kLineEnd);
}

void AppendFailure(const Status& status, std::string* out) {
  std::string text = "SERVER_ERROR " + status.ToString();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  AppendLine(text, out);
}

std::string_view StoreAnswer(RuleOutcome outcome) {
  switch (outcome) {
    case RuleOutcome::kDone:
      return "STORED";
    case RuleOutcome::kExists:
      return "EXISTS";
    case RuleOutcome::kNotFound:
      return "NOT_FOUND";
    case RuleOutcome::kTooLarge:
      return kTooLarge;
    default:
      return "NOT_STORED";
  }
}

Task<Status> ExecuteGetAndTouch(Call call, const Command& command) {
  const ValueForm form{command.verb == Verb::kGats};
  const uint64_t expiry_ms = ExpiryMs(command.exptime, call.store.NowMs());
  std::string_view rest = command.more_keys;
  for (std::string_view key = command.key; !key.empty(); key = TakeWord(&rest)) {
    FetchRule rule;
    rule.expiry_ms = expiry_ms;
    MakeTreeKey(key, &call.key);
    const auto fetched = co_await call.store.Update(call.op, call.key, rule);
    if (!fetched.ok()) co_return fetched.status();
    const bool hit = rule.outcome == RuleOutcome::kDone;
    Counters::Add(call.counters.keys_got);
    Counters::Add(hit ? call.counters.get_hits : call.counters.get_misses);
    Counters::Add(hit ? call.counters.touch_hits : call.counters.touch_misses);
    if (hit) AppendValue(key, rule.found, form, &call.out);
  }
  AppendLine("END", &call.out);
  co_return Status::Ok();
}

namespace {

StoreMode ModeOf(Verb verb) {
  switch (verb) {
    case Verb::kAdd:
      return StoreMode::kAdd;
    case Verb::kReplace:
      return StoreMode::kReplace;
    case Verb::kAppend:
      return StoreMode::kAppend;
    case Verb::kPrepend:
      return StoreMode::kPrepend;
    default:
      return StoreMode::kSet;
  }
}

StoreRule RuleOf(const Call& call, const Command& command) {
  StoreRule rule;
  rule.mode = ModeOf(command.verb);
  if (command.verb == Verb::kCas) rule.compare_cas = command.cas;
  rule.flags = command.flags;
  if (command.exptime != 0) rule.expiry_ms = ExpiryMs(command.exptime, call.store.NowMs());
  rule.data = command.value;
  rule.data_bytes_max = call.value_bytes_max;
  return rule;
}

Task<Status> Store(Call call, const Command& command) {
  StoreRule rule = RuleOf(call, command);
  const auto stored = co_await call.store.Update(call.op, call.key, rule);
  if (!stored.ok()) co_return stored.status();
  if (command.verb == Verb::kCas) {
    Counters& counters = call.counters;
    Counters::Add(rule.outcome == RuleOutcome::kDone     ? counters.cas_hits
                  : rule.outcome == RuleOutcome::kExists ? counters.cas_badval
                                                         : counters.cas_misses);
  }
  if (!command.quiet) AppendLine(StoreAnswer(rule.outcome), &call.out);
  co_return Status::Ok();
}

Task<Status> CountUpOrDown(Call call, const Command& command) {
  CountRule rule;
  rule.down = command.verb == Verb::kDecr;
  rule.delta = command.delta;
  const auto counted = co_await call.store.Update(call.op, call.key, rule);
  if (!counted.ok()) co_return counted.status();
  const bool hit = rule.outcome != RuleOutcome::kNotFound;
  Counters& counters = call.counters;
  Counters::Add(rule.down ? (hit ? counters.decr_hits : counters.decr_misses)
                          : (hit ? counters.incr_hits : counters.incr_misses));
  if (command.quiet) co_return Status::Ok();
  AppendLine(rule.outcome == RuleOutcome::kDone ? rule.result()
             : hit ? "CLIENT_ERROR cannot increment or decrement non-numeric value"
                   : "NOT_FOUND",
             &call.out);
  co_return Status::Ok();
}

Task<Status> Touch(Call call, const Command& command) {
  FetchRule rule;
  rule.expiry_ms = ExpiryMs(command.exptime, call.store.NowMs());
  rule.with_data = false;
  const auto touched = co_await call.store.Update(call.op, call.key, rule);
  if (!touched.ok()) co_return touched.status();
  const bool hit = rule.outcome == RuleOutcome::kDone;
  Counters::Add(hit ? call.counters.touch_hits : call.counters.touch_misses);
  if (!command.quiet) AppendLine(hit ? "TOUCHED" : "NOT_FOUND", &call.out);
  co_return Status::Ok();
}

Task<Status> Delete(Call call, const Command& command) {
  DeleteRule rule;
  const auto deleted = co_await call.store.Update(call.op, call.key, rule);
  if (!deleted.ok()) co_return deleted.status();
  const bool hit = rule.outcome == RuleOutcome::kDone;
  Counters::Add(hit ? call.counters.delete_hits : call.counters.delete_misses);
  if (!command.quiet) AppendLine(hit ? "DELETED" : "NOT_FOUND", &call.out);
  co_return Status::Ok();
}

}  // namespace

Task<Status> ExecuteWrite(Call call, const Command& command) {
  MakeTreeKey(command.key, &call.key);
  switch (command.verb) {
    case Verb::kIncr:
    case Verb::kDecr: {
      const Status status = co_await CountUpOrDown(call, command);
      co_return status;
    }
    case Verb::kTouch: {
      const Status status = co_await Touch(call, command);
      co_return status;
    }
    case Verb::kDelete: {
      const Status status = co_await Delete(call, command);
      co_return status;
    }
    default: {
      const Status status = co_await Store(call, command);
      co_return status;
    }
  }
}

Task<Status> DeleteOutdated(Call call, const Command& command) {
  MakeTreeKey(command.key, &call.key);
  DeleteRule rule;
  const auto deleted = co_await call.store.Update(call.op, call.key, rule);
  co_return deleted.ok() ? Status::Ok() : deleted.status();
}

}  // namespace farleaf::server::memcached
