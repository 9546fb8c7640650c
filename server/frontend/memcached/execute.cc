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
  buffer->clear();
  AppendTreeKey(key, buffer);
}
void AppendTreeKey(std::string_view key, std::string* out) {
  out->append(1, kUserKeySpace).append(key);
}

void AppendLine(std::string_view line, std::string* out) { out->append(line).append("\r\n"); }

void AppendNumber(uint64_t number, std::string* out) {
  char digits[20];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out->append(digits, static_cast<size_t>(end - digits));
}

void AppendValue(std::string_view key, const Record& record, ValueForm form, std::string* out) {
  out->append("VALUE ").append(key).push_back(' ');
  AppendNumber(record.flags, out);
  out->push_back(' ');
  AppendNumber(record.data.size(), out);
  if (form.with_cas) {
    out->push_back(' ');
    AppendNumber(record.cas, out);
  }
  out->append("\r\n").append(record.data).append("\r\n");
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
  for (std::string_view rest = command.keys;;) {
    const std::string_view key = TakeWord(&rest);
    if (key.empty()) break;
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

Task<Status> Count(Call call, const Command& command) {
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
      const Status status = co_await Count(call, command);
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
