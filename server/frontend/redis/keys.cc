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

}  // namespace

Task<Status> Delete(Call call) {
  int64_t deleted = 0;
  for (size_t i = 1; i < call.count(); ++i) {
    DeleteRule rule;
    MakeTreeKey(call.at(i), &call.key);
    call.op.deadline_ns = call.environment.DeadlineNs();
    const auto updated = co_await call.store().Update(call.op, call.key, rule);
    if (!updated.ok()) co_return updated.status();
    deleted += rule.outcome == RuleOutcome::kDone;
  }
  call.reply.Integer(deleted);
  co_return Status::Ok();
}

Task<Status> Exists(Call call) {
  int64_t found = 0;
  for (size_t i = 1; i < call.count(); ++i) {
    call.op.deadline_ns = call.environment.DeadlineNs();
    const auto record = co_await Find(call, call.at(i));
    if (!record.ok()) co_return record.status();
    found += record->has_value();
  }
  call.reply.Integer(found);
  co_return Status::Ok();
}

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
