// The meta commands: mg, ms, md, ma, me.
#include <algorithm>

#include "server/frontend/memcached/execute.h"
#include "server/records/string_rules.h"

namespace farleaf::server::memcached {

using dsm::Task;

namespace {

constexpr std::string_view kBadKey = "CLIENT_ERROR error decoding key";

/// What the flags of an answer speak of.
struct Answered {
  const Record* record = nullptr;  ///< null: only the key and the opaque
  uint64_t now_ms = 0;
};

void AppendTimeToLive(const Record& record, uint64_t now_ms, std::string* out) {
  if (record.expiry_ms == 0) {
    out->append("-1");
  } else {
    AppendNumber((std::max(record.expiry_ms, now_ms) - now_ms) / 1'000, out);
  }
}

/// The flags that are answered, in the order in which they were asked for, each behind a space.
void AppendFlags(const Command& command, Answered answered, std::string* out) {
  for (std::string_view rest = command.meta.text;;) {
    const std::string_view word = TakeWord(&rest);
    if (word.empty()) return;
    const char letter = word[0];
    if (letter == 'O') {
      out->append(" ").append(word);
    } else if (letter == 'k') {
      out->append(" k").append(command.key).append(command.meta.has('b') ? " b" : "");
    } else if (answered.record != nullptr &&
               std::string_view("cfst").find(letter) != std::string_view::npos) {
      const Record& record = *answered.record;
      out->append(" ").push_back(letter);
      if (letter == 'c') AppendNumber(record.cas, out);
      if (letter == 'f') AppendNumber(record.flags, out);
      if (letter == 's') AppendNumber(record.data.size(), out);
      if (letter == 't') AppendTimeToLive(record, answered.now_ms, out);
    }
  }
}

void AppendCode(std::string_view code, const Command& command, Answered answered,
                std::string* out) {
  out->append(code);
  AppendFlags(command, answered, out);
  out->append("\r\n");
}

/// The tree's key. False: it is not what the flag b promises.
bool MakeKey(const Command& command, std::string* buffer) {
  if (!command.meta.has('b')) {
    MakeTreeKey(command.key, buffer);
    return true;
  }
  std::string decoded;
  if (!DecodeBase64(command.key, &decoded) || decoded.empty()) return false;
  MakeTreeKey(decoded, buffer);
  return true;
}

void AppendFetched(const Call& call, const Command& command, const FetchRule& rule) {
  const Answered answered{&rule.found, call.store.NowMs()};
  if (command.meta.has('v')) {
    call.out.append("VA ");
    AppendNumber(rule.found.data.size(), &call.out);
  } else {
    call.out.append("HD");
  }
  AppendFlags(command, answered, &call.out);
  if (rule.won_before) call.out.append(" Z");
  if (rule.found.stale) call.out.append(" X");
  if (rule.won) call.out.append(" W");
  call.out.append("\r\n");
  if (command.meta.has('v')) call.out.append(rule.found.data).append("\r\n");
}

/// Reads; writes only where the flags ask for something that changes the record.
Task<Status> MetaGet(Call call, const Command& command) {
  const MetaFlags& meta = command.meta;
  const uint64_t now_ms = call.store.NowMs();
  FetchRule rule;
  if (meta.has('T')) rule.expiry_ms = ExpiryMs(meta.ttl, now_ms);
  if (meta.has('N')) rule.create_expiry_ms = ExpiryMs(meta.vivify_ttl, now_ms);
  if (meta.has('R')) rule.renew_before_ms = ExpiryMs(meta.renew_ttl, now_ms);
  rule.next_cas = meta.next_cas;
  bool found = false;
  if (!rule.expiry_ms) {
    const auto read = co_await call.store.Get(call.op, call.key, &call.value, &rule.found);
    if (!read.ok()) co_return read.status();
    found = *read && rule.found.type == RecordType::kString;
    rule.won_before = found && rule.found.won;
  }
  if (found ? NeedsWrite(rule, rule.found) : rule.expiry_ms || rule.create_expiry_ms) {
    const auto fetched = co_await call.store.Update(call.op, call.key, rule);
    if (!fetched.ok()) co_return fetched.status();
    found = rule.outcome == RuleOutcome::kDone;
    if (fetched->action == RecordAction::kWrite) rule.found.cas = fetched->cas;
  }
  Counters::Add(call.counters.keys_got);
  Counters::Add(found && !rule.created ? call.counters.get_hits : call.counters.get_misses);
  if (found) {
    AppendFetched(call, command, rule);
  } else if (!command.quiet) {
    AppendCode("EN", command, {}, &call.out);
  }
  co_return Status::Ok();
}

std::optional<StoreMode> ModeOf(const MetaFlags& meta) {
  if (!meta.has('M')) return StoreMode::kSet;
  switch (meta.mode) {
    case 'E':
    case 'e':
      return StoreMode::kAdd;
    case 'A':
    case 'a':
      return StoreMode::kAppend;
    case 'P':
    case 'p':
      return StoreMode::kPrepend;
    case 'R':
    case 'r':
      return StoreMode::kReplace;
    case 'S':
    case 's':
      return StoreMode::kSet;
    default:
      return std::nullopt;
  }
}

std::string_view CodeOf(RuleOutcome outcome) {
  switch (outcome) {
    case RuleOutcome::kDone:
      return "HD";
    case RuleOutcome::kExists:
      return "EX";
    case RuleOutcome::kNotFound:
      return "NF";
    default:
      return "NS";
  }
}

Task<Status> MetaSet(Call call, const Command& command) {
  const MetaFlags& meta = command.meta;
  const uint64_t now_ms = call.store.NowMs();
  const auto mode = ModeOf(meta);
  if (!mode) {
    AppendLine("CLIENT_ERROR invalid mode for ms M token", &call.out);
    co_return Status::Ok();
  }
  StoreRule rule;
  rule.mode = *mode;
  if (meta.has('C')) rule.compare_cas = meta.compare_cas;
  rule.accept_older = meta.has('I');
  rule.next_cas = meta.next_cas;
  rule.flags = meta.client_flags;
  rule.expiry_ms = ExpiryMs(meta.ttl, now_ms);
  if (meta.has('N')) rule.create_expiry_ms = ExpiryMs(meta.vivify_ttl, now_ms);
  rule.data = command.value;
  rule.data_bytes_max = call.value_bytes_max;
  const auto stored = co_await call.store.Update(call.op, call.key, rule);
  if (!stored.ok()) co_return stored.status();
  if (rule.outcome == RuleOutcome::kTooLarge) {
    AppendLine(kTooLarge, &call.out);
  } else if (rule.outcome != RuleOutcome::kDone || !command.quiet) {
    Record record;
    record.cas = stored->cas;
    record.data = command.value;
    const bool done = rule.outcome == RuleOutcome::kDone;
    AppendCode(CodeOf(rule.outcome), command, {done ? &record : nullptr, now_ms}, &call.out);
  }
  co_return Status::Ok();
}

Task<Status> MetaDelete(Call call, const Command& command) {
  const MetaFlags& meta = command.meta;
  DeleteRule rule;
  if (meta.has('C')) rule.compare_cas = meta.compare_cas;
  rule.next_cas = meta.next_cas;
  rule.invalidate = meta.has('I');
  if (meta.has('T')) rule.expiry_ms = ExpiryMs(meta.ttl, call.store.NowMs());
  const auto deleted = co_await call.store.Update(call.op, call.key, rule);
  if (!deleted.ok()) co_return deleted.status();
  const bool missed = rule.outcome == RuleOutcome::kNotFound;
  Counters::Add(missed ? call.counters.delete_misses : call.counters.delete_hits);
  if (!command.quiet || rule.outcome == RuleOutcome::kExists) {
    AppendCode(CodeOf(rule.outcome), command, {}, &call.out);
  }
  co_return Status::Ok();
}

/// Sets whether it counts down. False: there is no such mode.
bool SetDirection(const MetaFlags& meta, CountRule* rule) {
  if (!meta.has('M')) return true;
  rule->down = std::string_view("Dd-").find(meta.mode) != std::string_view::npos;
  return rule->down || std::string_view("Ii+").find(meta.mode) != std::string_view::npos;
}

Task<Status> MetaArithmetic(Call call, const Command& command) {
  const MetaFlags& meta = command.meta;
  const uint64_t now_ms = call.store.NowMs();
  CountRule rule;
  if (!SetDirection(meta, &rule)) {
    AppendLine("CLIENT_ERROR invalid mode for ma M token", &call.out);
    co_return Status::Ok();
  }
  rule.delta = meta.delta;
  rule.initial = meta.initial;
  if (meta.has('C')) rule.compare_cas = meta.compare_cas;
  rule.next_cas = meta.next_cas;
  if (meta.has('N')) rule.create_expiry_ms = ExpiryMs(meta.vivify_ttl, now_ms);
  if (meta.has('T')) rule.expiry_ms = ExpiryMs(meta.ttl, now_ms);
  const auto counted = co_await call.store.Update(call.op, call.key, rule);
  if (!counted.ok()) co_return counted.status();
  const bool missed = rule.outcome == RuleOutcome::kNotFound;
  Counters& counters = call.counters;
  Counters::Add(rule.down ? (missed ? counters.decr_misses : counters.decr_hits)
                          : (missed ? counters.incr_misses : counters.incr_hits));
  if (rule.outcome == RuleOutcome::kNotANumber) {
    AppendLine("CLIENT_ERROR cannot increment or decrement non-numeric value", &call.out);
    co_return Status::Ok();
  }
  if (rule.outcome != RuleOutcome::kDone) {
    if (!command.quiet || !missed) AppendCode(CodeOf(rule.outcome), command, {}, &call.out);
    co_return Status::Ok();
  }
  if (command.quiet) co_return Status::Ok();
  rule.stored.cas = counted->cas;
  rule.stored.data = rule.result();
  if (!meta.has('v')) {
    AppendCode("HD", command, {&rule.stored, now_ms}, &call.out);
    co_return Status::Ok();
  }
  call.out.append("VA ");
  AppendNumber(rule.digit_count, &call.out);
  AppendCode("", command, {&rule.stored, now_ms}, &call.out);
  AppendLine(rule.result(), &call.out);
  co_return Status::Ok();
}

/// What there is to know of a record but its data.
Task<Status> MetaDebug(Call call, const Command& command) {
  Record record;
  const auto found = co_await call.store.Get(call.op, call.key, &call.value, &record);
  if (!found.ok()) co_return found.status();
  if (!*found) {
    AppendLine("EN", &call.out);
    co_return Status::Ok();
  }
  call.out.append("ME ").append(command.key).append(" exp=");
  AppendTimeToLive(record, call.store.NowMs(), &call.out);
  call.out.append(" cas=");
  AppendNumber(record.cas, &call.out);
  call.out.append(" size=");
  AppendNumber(record.data.size(), &call.out);
  call.out.append("\r\n");
  co_return Status::Ok();
}

}  // namespace

Task<Status> ExecuteMeta(Call call, const Command& command) {
  if (!MakeKey(command, &call.key)) {
    AppendLine(kBadKey, &call.out);
    co_return Status::Ok();
  }
  switch (command.verb) {
    case Verb::kMetaGet: {
      const Status status = co_await MetaGet(call, command);
      co_return status;
    }
    case Verb::kMetaSet: {
      const Status status = co_await MetaSet(call, command);
      co_return status;
    }
    case Verb::kMetaDelete: {
      const Status status = co_await MetaDelete(call, command);
      co_return status;
    }
    case Verb::kMetaArithmetic: {
      const Status status = co_await MetaArithmetic(call, command);
      co_return status;
    }
    default: {
      const Status status = co_await MetaDebug(call, command);
      co_return status;
    }
  }
}

}  // namespace farleaf::server::memcached
