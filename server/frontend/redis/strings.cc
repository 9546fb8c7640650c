// Commands on strings.
#include <fmt/format.h>

#include <algorithm>

#include "server/frontend/redis/commands.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

constexpr size_t kBatchKeys = 64;
constexpr std::string_view kStringTooLarge =
    "ERR string exceeds maximum allowed size (redis_value_bytes_max)";

std::string InvalidExpiry(const Call& call) {
  return "ERR invalid expire time in '" + LowerCase(call.at(0)) + "' command";
}

/// An option that says when a key expires, with its argument: EX, PX, EXAT, PXAT. False: it is none.
struct ExpiryOption {
  bool given = false;
  uint64_t expiry_ms = 0;
  std::string wrong;  ///< not empty: it is one, and this is to be answered
};
bool TakeExpiry(const Call& call, size_t* at, ExpiryOption* option) {
  const std::string_view word = call.at(*at);
  TimeForm form;
  if (IsWord(word, "ex") || IsWord(word, "exat")) {
    form.in_seconds = true;
  } else if (!IsWord(word, "px") && !IsWord(word, "pxat")) {
    return false;
  }
  form.absolute = word.size() == 4;
  if (option->given || *at + 1 >= call.count()) return false;
  option->given = true;
  int64_t time = 0;
  if (!ParseInteger(call.at(++*at), &time)) {
    option->wrong = kNotAnInteger;
    return true;
  }
  const auto expiry_ms = time > 0 ? ExpiryMs(time, form, call.store().NowMs()) : std::nullopt;
  if (!expiry_ms) {
    option->wrong = InvalidExpiry(call);
  } else {
    option->expiry_ms = *expiry_ms;
  }
  return true;
}

Task<Result<bool>> Update(Call call, std::string_view key, RecordRule& rule) {
  MakeTreeKey(key, &call.key);
  const auto updated = co_await call.store().Update(call.op, call.key, rule);
  if (!updated.ok()) co_return updated.status();
  co_return true;
}

/// What a rule came to, if it was not done.
void AppendOutcome(RuleOutcome outcome, Reply* reply) {
  switch (outcome) {
    case RuleOutcome::kWrongType:
      return reply->Error(kWrongType);
    case RuleOutcome::kTooLarge:
      return reply->Error(kStringTooLarge);
    case RuleOutcome::kNotANumber:
      return reply->Error(kNotAnInteger);
    default:
      return reply->Null();
  }
}

/// Of SET; empty if all is well.
std::string ParseSetOptions(const Call& call, SetRule* rule) {
  ExpiryOption expiry;
  for (size_t i = 3; i < call.count(); ++i) {
    const std::string_view word = call.at(i);
    if (IsWord(word, "nx") && rule->when != SetRule::When::kPresent) {
      rule->when = SetRule::When::kAbsent;
    } else if (IsWord(word, "xx") && rule->when != SetRule::When::kAbsent) {
      rule->when = SetRule::When::kPresent;
    } else if (IsWord(word, "keepttl") && !expiry.given) {
      rule->keep_expiry = true;
    } else if (IsWord(word, "get")) {
      rule->fetch = true;
    } else if (rule->keep_expiry || !TakeExpiry(call, &i, &expiry)) {
      return std::string(kSyntaxError);
    } else if (!expiry.wrong.empty()) {
      return expiry.wrong;
    }
  }
  rule->expiry_ms = expiry.expiry_ms;
  return {};
}

/// The value, or what else the rule came to.
void AppendValue(RuleOutcome outcome, std::string_view value, Reply* reply) {
  if (outcome == RuleOutcome::kDone) return reply->Bulk(value);
  AppendOutcome(outcome, reply);
}
/// Likewise the value's length.
void AppendLength(RuleOutcome outcome, uint64_t bytes, Reply* reply) {
  if (outcome == RuleOutcome::kDone) return reply->Integer(static_cast<int64_t>(bytes));
  AppendOutcome(outcome, reply);
}

}  // namespace

Task<Status> Set(Call call) {
  SetRule rule;
  if (const std::string wrong = ParseSetOptions(call, &rule); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  rule.data = call.at(2);
  const auto set = co_await Update(call, call.at(1), rule);
  if (!set.ok()) co_return set.status();
  if (rule.outcome == RuleOutcome::kWrongType) {
    call.reply.Error(kWrongType);
  } else if (rule.fetch && rule.existed) {
    call.reply.Bulk(rule.old);
  } else if (rule.fetch || rule.outcome == RuleOutcome::kNotStored) {
    call.reply.Null();
  } else {
    call.reply.Ok();
  }
  co_return Status::Ok();
}

Task<Status> SetNx(Call call) {
  SetRule rule;
  rule.when = SetRule::When::kAbsent;
  rule.data = call.at(2);
  const auto set = co_await Update(call, call.at(1), rule);
  if (!set.ok()) co_return set.status();
  call.reply.Integer(rule.outcome == RuleOutcome::kDone ? 1 : 0);
  co_return Status::Ok();
}

Task<Status> SetEx(Call call) {
  const TimeForm form{.in_seconds = IsWord(call.at(0), "setex")};
  SetRule rule;
  int64_t time = 0;
  if (!ParseInteger(call.at(2), &time)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  const auto expiry_ms = time > 0 ? ExpiryMs(time, form, call.store().NowMs()) : std::nullopt;
  if (!expiry_ms) {
    call.reply.Error(InvalidExpiry(call));
    co_return Status::Ok();
  }
  rule.expiry_ms = *expiry_ms;
  rule.data = call.at(3);
  const auto set = co_await Update(call, call.at(1), rule);
  if (!set.ok()) co_return set.status();
  call.reply.Ok();
  co_return Status::Ok();
}

Task<Status> GetSet(Call call) {
  SetRule rule;
  rule.fetch = true;
  rule.data = call.at(2);
  const auto set = co_await Update(call, call.at(1), rule);
  if (!set.ok()) co_return set.status();
  if (rule.outcome == RuleOutcome::kDone && rule.existed) {
    call.reply.Bulk(rule.old);
  } else {
    AppendOutcome(rule.outcome, &call.reply);
  }
  co_return Status::Ok();
}

Task<Status> GetDel(Call call) {
  TakeRule rule;
  const auto taken = co_await Update(call, call.at(1), rule);
  if (!taken.ok()) co_return taken.status();
  AppendValue(rule.outcome, rule.data, &call.reply);
  co_return Status::Ok();
}

Task<Status> GetEx(Call call) {
  ExpiryOption expiry;
  bool persists = false;
  for (size_t i = 2; i < call.count(); ++i) {
    if (IsWord(call.at(i), "persist") && !expiry.given && !persists) {
      persists = true;
    } else if (persists || !TakeExpiry(call, &i, &expiry)) {
      expiry.wrong = kSyntaxError;
    }
    if (expiry.wrong.empty()) continue;
    call.reply.Error(expiry.wrong);
    co_return Status::Ok();
  }
  FetchRule rule;
  if (persists || expiry.given) {
    rule.expiry_ms = expiry.expiry_ms;
    const auto fetched = co_await Update(call, call.at(1), rule);
    if (!fetched.ok()) co_return fetched.status();
  } else {
    MakeTreeKey(call.at(1), &call.key);
    const auto got = co_await call.store().Get(call.op, call.key, &call.value, &rule.found);
    if (!got.ok()) co_return got.status();
    rule.outcome = !*got                                    ? RuleOutcome::kNotFound
                   : rule.found.type == RecordType::kString ? RuleOutcome::kDone
                                                            : RuleOutcome::kWrongType;
  }
  AppendValue(rule.outcome, rule.found.data, &call.reply);
  co_return Status::Ok();
}

Task<Status> MultiGet(Call call) {
  std::vector<std::string> tree_keys;
  std::vector<std::string_view> keys;
  std::vector<std::optional<std::string>> values;
  std::vector<std::optional<Record>> records;
  const size_t count = call.count() - 1;
  call.reply.Array(count);
  for (size_t begin = 0; begin < count; begin += kBatchKeys) {
    const size_t end = std::min(begin + kBatchKeys, count);
    tree_keys.resize(end - begin);
    keys.clear();
    for (size_t i = begin; i < end; ++i) {
      MakeTreeKey(call.at(i + 1), &tree_keys[i - begin]);
      keys.push_back(tree_keys[i - begin]);
    }
    call.op.deadline_ns = call.environment.DeadlineNs();
    const Status got = co_await call.store().MultiGet(call.op, keys, &values, &records);
    if (!got.ok()) co_return got;
    for (const auto& record : records) {
      const bool hit = record && record->type == RecordType::kString;
      Counters::Add(hit ? call.environment.counters().key_hits
                        : call.environment.counters().key_misses);
      if (hit) {
        call.reply.Bulk(record->data);
      } else {
        call.reply.Null();
      }
    }
    if (call.reply.size() > call.limits.reply_bytes_max) break;  // told by the connection
  }
  co_return Status::Ok();
}

namespace {
/// Of argument `i`, and its value behind it.
Task<Status> SetOne(Call call, size_t i) {
  SetRule rule;
  std::string key;
  rule.data = call.at(i + 1);
  MakeTreeKey(call.at(i), &key);
  const auto set = co_await call.store().Update(call.op, key, rule);
  co_return set.status();
}
}  // namespace

Task<Status> MultiSet(Call call) {
  if (call.count() % 2 == 0) {
    call.reply.Error("ERR wrong number of arguments for 'mset' command");
    co_return Status::Ok();
  }
  const NumberedStep one = [&call](size_t i) { return SetOne(call, i); };
  const Status done = co_await ForEachElement(call, {1, 2}, Repeated::kInOrder, one);
  if (!done.ok()) co_return done;
  call.reply.Ok();
  co_return Status::Ok();
}

Task<Status> Append(Call call) {
  StoreRule rule;
  rule.mode = StoreMode::kAppend;
  rule.data = call.at(2);
  rule.create_expiry_ms = 0;
  rule.data_bytes_max = call.limits.value_bytes_max;
  const auto appended = co_await Update(call, call.at(1), rule);
  if (!appended.ok()) co_return appended.status();
  AppendLength(rule.outcome, rule.stored_bytes, &call.reply);
  co_return Status::Ok();
}

Task<Status> StringLength(Call call) {
  Record record;
  MakeTreeKey(call.at(1), &call.key);
  const auto got = co_await call.store().Get(call.op, call.key, &call.value, &record);
  if (!got.ok()) co_return got.status();
  if (*got && record.type != RecordType::kString) {
    call.reply.Error(kWrongType);
  } else {
    call.reply.Integer(*got ? static_cast<int64_t>(record.data.size()) : 0);
  }
  co_return Status::Ok();
}

Task<Status> Increment(Call call) {
  IncrementRule rule;
  if (call.count() == 3 && !ParseInteger(call.at(2), &rule.delta)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  const bool down = IsWord(call.at(0), "decr") || IsWord(call.at(0), "decrby");
  if (down && __builtin_sub_overflow(int64_t{0}, rule.delta, &rule.delta)) {
    call.reply.Error("ERR decrement would overflow");
    co_return Status::Ok();
  }
  const auto counted = co_await Update(call, call.at(1), rule);
  if (!counted.ok()) co_return counted.status();
  if (rule.outcome == RuleOutcome::kDone) {
    call.reply.Integer(rule.result);
  } else if (rule.outcome == RuleOutcome::kTooLarge) {
    call.reply.Error("ERR increment or decrement would overflow");
  } else {
    AppendOutcome(rule.outcome, &call.reply);
  }
  co_return Status::Ok();
}

Task<Status> IncrementByFloat(Call call) {
  IncrementFloatRule rule;
  if (!ParseLongDouble(call.at(2), &rule.delta)) {
    call.reply.Error(kNotAFloat);
    co_return Status::Ok();
  }
  const auto counted = co_await Update(call, call.at(1), rule);
  if (!counted.ok()) co_return counted.status();
  if (rule.outcome == RuleOutcome::kDone) {
    call.reply.Bulk(rule.result);
  } else if (rule.outcome == RuleOutcome::kWrongType) {
    call.reply.Error(kWrongType);
  } else {
    call.reply.Error(rule.outcome == RuleOutcome::kTooLarge
                         ? "ERR increment would produce NaN or Infinity"
                         : kNotAFloat);
  }
  co_return Status::Ok();
}

Task<Status> GetRange(Call call) {
  int64_t first = 0, last = 0;
  if (!ParseInteger(call.at(2), &first) || !ParseInteger(call.at(3), &last)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  Record record;
  MakeTreeKey(call.at(1), &call.key);
  const auto got = co_await call.store().Get(call.op, call.key, &call.value, &record);
  if (!got.ok()) co_return got.status();
  if (*got && record.type != RecordType::kString) {
    call.reply.Error(kWrongType);
    co_return Status::Ok();
  }
  const auto size = *got ? static_cast<int64_t>(record.data.size()) : 0;
  const bool nothing = first < 0 && last < 0 && first > last;
  first = std::max<int64_t>(first < 0 ? first + size : first, 0);
  last = std::min<int64_t>(std::max<int64_t>(last < 0 ? last + size : last, 0), size - 1);
  if (nothing || size == 0 || first > last) {
    call.reply.Bulk({});
  } else {
    call.reply.Bulk(
        record.data.substr(static_cast<size_t>(first), static_cast<size_t>(last - first + 1)));
  }
  co_return Status::Ok();
}

Task<Status> SetRange(Call call) {
  int64_t offset = 0;
  if (!ParseInteger(call.at(2), &offset)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  if (offset < 0) {
    call.reply.Error("ERR offset is out of range");
    co_return Status::Ok();
  }
  SpliceRule rule;
  rule.offset = static_cast<uint64_t>(offset);
  rule.data = call.at(3);
  rule.data_bytes_max = call.limits.value_bytes_max;
  const auto spliced = co_await Update(call, call.at(1), rule);
  if (!spliced.ok()) co_return spliced.status();
  AppendLength(rule.outcome, rule.stored_bytes, &call.reply);
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
