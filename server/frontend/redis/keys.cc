// Commands on keys, whatever is behind them.
#include "server/frontend/redis/commands.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

/// What there is of a key; nullopt: it is not there.
Task<Result<std::optional<Record>>> Find(Call call, std::string_view key) {
  Record record;
  MakeTreeKey(key, &call.key);
  const auto got = co_await call.store().Get(call.op, call.key, &call.value, &record);
  if (!got.ok()) co_return got.status();
  if (!*got) co_return std::optional<Record>();
  co_return std::optional<Record>(record);
}

/// Empty if all is well.
std::string_view ParseExpireOptions(const Call& call, ExpiryRule* rule) {
  for (size_t i = 3; i < call.count(); ++i) {
    const std::string_view word = call.at(i);
    bool* const option = IsWord(word, "nx")   ? &rule->only_without
                         : IsWord(word, "xx") ? &rule->only_with
                         : IsWord(word, "gt") ? &rule->only_later
                         : IsWord(word, "lt") ? &rule->only_sooner
                                              : nullptr;
    if (option == nullptr) return "ERR Unsupported option";
    *option = true;
  }
  if (rule->only_without && (rule->only_with || rule->only_later || rule->only_sooner)) {
    return "ERR NX and XX, GT or LT options at the same time are not compatible";
  }
  if (rule->only_later && rule->only_sooner) {
    return "ERR GT and LT options at the same time are not compatible";
  }
  return {};
}

Task<Status> DeleteOne(Call call, size_t i, int64_t* deleted) {
  DeleteRule rule;
  std::string key;
  MakeTreeKey(call.at(i), &key);
  const auto updated = co_await call.store().Update(call.op, key, rule);
  *deleted += updated.ok() && rule.outcome == RuleOutcome::kDone;
  co_return updated.status();
}

Task<Status> FindOne(Call call, size_t i, int64_t* found) {
  std::string key, value;
  Record record;
  MakeTreeKey(call.at(i), &key);
  const auto got = co_await call.store().Get(call.op, key, &value, &record);
  *found += got.ok() && *got;
  co_return got.status();
}

/// Answers how many keys `one` has counted.
Task<Status> CountKeys(Call call, Task<Status> (*one)(Call, size_t, int64_t*)) {
  int64_t count = 0;
  const NumberedStep each = [&](size_t i) { return one(call, i, &count); };
  const Status done = co_await ForEachElement(call, {1}, Repeated::kAnyOrder, each);
  if (!done.ok()) co_return done;
  call.reply.Integer(count);
  co_return Status::Ok();
}

}  // namespace

Task<Status> Delete(Call call) { return CountKeys(call, DeleteOne); }

Task<Status> Exists(Call call) { return CountKeys(call, FindOne); }

Task<Status> Expire(Call call) {
  const std::string name = LowerCase(call.at(0));
  const TimeForm form{.in_seconds = name[0] != 'p', .absolute = name.ends_with("at")};
  ExpiryRule rule;
  int64_t time = 0;
  if (!ParseInteger(call.at(2), &time)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  if (const std::string_view wrong = ParseExpireOptions(call, &rule); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  const auto expiry_ms = ExpiryMs(time, form, call.store().NowMs());
  if (!expiry_ms) {
    call.reply.Error("ERR invalid expire time in '" + name + "' command");
    co_return Status::Ok();
  }
  rule.expiry_ms = *expiry_ms;
  MakeTreeKey(call.at(1), &call.key);
  const auto updated = co_await call.store().Update(call.op, call.key, rule);
  if (!updated.ok()) co_return updated.status();
  call.reply.Integer(rule.done ? 1 : 0);
  co_return Status::Ok();
}

Task<Status> Persist(Call call) {
  ExpiryRule rule;
  rule.only_with = true;
  MakeTreeKey(call.at(1), &call.key);
  const auto updated = co_await call.store().Update(call.op, call.key, rule);
  if (!updated.ok()) co_return updated.status();
  call.reply.Integer(rule.done ? 1 : 0);
  co_return Status::Ok();
}

Task<Status> TimeToLive(Call call) {
  constexpr int64_t kNoKey = -2, kNever = -1;
  const std::string name = LowerCase(call.at(0));
  const bool in_ms = name[0] == 'p', absolute = name.ends_with("time");
  const auto record = co_await Find(call, call.at(1));
  if (!record.ok()) co_return record.status();
  if (!record->has_value()) {
    call.reply.Integer(kNoKey);
  } else if (const uint64_t expiry_ms = (*record)->expiry_ms; expiry_ms == 0) {
    call.reply.Integer(kNever);
  } else {
    const uint64_t now_ms = call.store().NowMs();
    const uint64_t ms = absolute ? expiry_ms : expiry_ms > now_ms ? expiry_ms - now_ms : 0;
    call.reply.Integer(static_cast<int64_t>(in_ms ? ms : (ms + 500) / 1'000));
  }
  co_return Status::Ok();
}

Task<Status> Type(Call call) {
  const auto record = co_await Find(call, call.at(1));
  if (!record.ok()) co_return record.status();
  call.reply.Simple(record->has_value() ? TypeName((*record)->type) : "none");
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
