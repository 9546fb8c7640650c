// Commands on hashes: a field is an entry of its own in the tree.
#include <algorithm>

#include "server/frontend/redis/collections.h"
#include "server/frontend/redis/commands.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

using dsm::Task;
using index::CurrentValue;
using index::ModifyAction;

// ---- Of all collections

Task<Result<Opened>> OpenCollection(Call call, RecordType type) {
  const CollectionStore collections(&call.store());
  const auto opened = co_await collections.Open(call.op, call.at(1), type);
  if (opened.ok() && opened->presence == Presence::kOther) call.reply.Error(kWrongType);
  co_return opened;
}

Task<Status> NextPiece(Call call, PieceScan* scan) {
  if (call.environment.thread().stopping()) co_return Status::Unavailable("the server is stopping");
  call.op.deadline_ns = call.environment.DeadlineNs();
  const Status scanned = co_await scan->Next(call.op);
  co_return scanned;
}

PieceScan::Range EntriesOf(std::string_view key, uint64_t generation, EntryKind kind) {
  const std::string prefix = MemberPrefix(key, generation, kind);
  return {.start = prefix, .end = EndOfPrefix(prefix)};
}

Task<Result<int64_t>> CountEntries(Call call, PieceScan::Range range) {
  range.content = index::ScanContent::kKeys;
  PieceScan scan(&call.store().tree(), std::move(range));
  int64_t count = 0;
  while (!scan.done()) {
    const Status scanned = co_await NextPiece(call, &scan);
    if (!scanned.ok()) co_return scanned;
    count += static_cast<int64_t>(scan.rows().size());
    co_await call.op.worker.Sleep(0);  // others' turn, where no verb suspends
  }
  co_return count;
}

namespace {

Task<Result<MemberUpdate>> UpdateField(Call call, std::string_view field,
                                       const MemberFunction& modify, CurrentValue current) {
  const CollectionStore collections(&call.store());
  const auto updated =
      co_await collections.Update(call.op, call.at(1), RecordType::kHash, field, modify, current);
  co_return updated;
}

/// Whether all of them fit; if not, that is answered.
bool FieldsFit(Call& call, size_t first, size_t step) {
  for (size_t i = first; i < call.count(); i += step) {
    if (MemberFits(call.at(1), call.at(i))) continue;
    call.reply.Error(kMemberTooLong);
    return false;
  }
  return true;
}

std::string FieldKey(const Call& call, const Opened& opened, std::string_view field) {
  return MemberPrefix(call.at(1), opened.generation, EntryKind::kField).append(field);
}

/// Of argument `i`, and its value behind it.
Task<Status> SetField(Call call, size_t i, Tally* added) {
  const std::string_view value = call.at(i + 1);
  const MemberFunction put = [&value](std::optional<std::string_view>, std::string* replacement) {
    replacement->assign(value);
    return ModifyAction::kWrite;
  };
  const auto updated = co_await UpdateField(call, call.at(i), put, CurrentValue::kPresenceOnly);
  if (updated.ok()) added->Add(updated->presence, !updated->existed);
  co_return updated.status();
}

Task<Status> DeleteField(Call call, size_t i, Tally* deleted) {
  if (!MemberFits(call.at(1), call.at(i))) co_return Status::Ok();
  const MemberFunction remove = [](std::optional<std::string_view> current, std::string*) {
    return current ? ModifyAction::kDelete : ModifyAction::kKeep;
  };
  const auto updated = co_await UpdateField(call, call.at(i), remove, CurrentValue::kPresenceOnly);
  if (updated.ok()) deleted->Add(updated->presence, updated->existed);
  co_return updated.status();
}

}  // namespace

Task<Status> HashSet(Call call) {
  const bool tells_ok = IsWord(call.at(0), "hmset");
  if (call.count() % 2 != 0) {
    call.reply.Error("ERR wrong number of arguments for '" + LowerCase(call.at(0)) + "' command");
    co_return Status::Ok();
  }
  if (!FieldsFit(call, 2, 2)) co_return Status::Ok();
  Tally added;
  const NumberedStep set = [&](size_t i) { return SetField(call, i, &added); };
  const Status done = co_await ForEachElement(call, {2, 2}, Repeated::kInOrder, set);
  if (!done.ok()) co_return done;
  if (tells_ok && !added.wrong_type) {
    call.reply.Ok();
  } else {
    added.Answer(&call.reply);
  }
  co_return Status::Ok();
}

Task<Status> HashSetNx(Call call) {
  if (!FieldsFit(call, 2, 2)) co_return Status::Ok();
  const std::string_view value = call.at(3);
  const std::string_view* const at = &value;
  const MemberFunction insert = [at](std::optional<std::string_view> current,
                                     std::string* replacement) {
    if (current) return ModifyAction::kKeep;
    replacement->assign(*at);
    return ModifyAction::kWrite;
  };
  const auto updated = co_await UpdateField(call, call.at(2), insert, CurrentValue::kPresenceOnly);
  if (!updated.ok()) co_return updated.status();
  if (updated->presence == Presence::kOther) {
    call.reply.Error(kWrongType);
  } else {
    call.reply.Integer(updated->existed ? 0 : 1);
  }
  co_return Status::Ok();
}

Task<Status> HashGet(Call call) {
  const auto opened = co_await OpenCollection(call, RecordType::kHash);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther) co_return Status::Ok();
  const bool only_whether = IsWord(call.at(0), "hexists"),
             only_size = IsWord(call.at(0), "hstrlen");
  bool found = false;
  if (opened->presence == Presence::kHere && MemberFits(call.at(1), call.at(2))) {
    const std::string key = FieldKey(call, *opened, call.at(2));
    const auto got = co_await call.store().tree().Get(call.op, key, &call.value);
    if (!got.ok()) co_return got.status();
    found = *got;
  }
  if (only_whether) {
    call.reply.Integer(found ? 1 : 0);
  } else if (only_size) {
    call.reply.Integer(found ? static_cast<int64_t>(call.value.size()) : 0);
  } else if (found) {
    call.reply.Bulk(call.value);
  } else {
    call.reply.Null();
  }
  co_return Status::Ok();
}

Task<Status> HashMultiGet(Call call) {
  constexpr size_t kBatch = 64;
  const auto opened = co_await OpenCollection(call, RecordType::kHash);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther || !FieldsFit(call, 2, 1)) co_return Status::Ok();
  call.reply.Array(call.count() - 2);
  std::vector<std::string> field_keys;
  std::vector<std::optional<std::string>> values;
  for (size_t begin = 2; begin < call.count(); begin += kBatch) {
    const size_t end = std::min(begin + kBatch, call.count());
    field_keys.clear();
    values.assign(end - begin, std::nullopt);
    for (size_t i = begin; i < end; ++i) field_keys.push_back(FieldKey(call, *opened, call.at(i)));
    if (opened->presence == Presence::kHere) {
      const std::vector<std::string_view> keys(field_keys.begin(), field_keys.end());
      call.op.deadline_ns = call.environment.DeadlineNs();
      const Status got = co_await call.store().tree().MultiGet(call.op, keys, &values);
      if (!got.ok()) co_return got;
    }
    for (const auto& value : values) {
      if (value) {
        call.reply.Bulk(*value);
      } else {
        call.reply.Null();
      }
    }
    if (call.reply.size() > call.limits.reply_bytes_max) break;  // told by the connection
  }
  co_return Status::Ok();
}

Task<Status> HashGetAll(Call call) {
  const bool keys = !IsWord(call.at(0), "hvals"), values = !IsWord(call.at(0), "hkeys");
  const auto opened = co_await OpenCollection(call, RecordType::kHash);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther) co_return Status::Ok();
  const size_t at = call.reply.size();
  size_t fields = 0;
  if (opened->presence == Presence::kHere) {
    const size_t prefix = MemberPrefix(call.at(1), opened->generation, EntryKind::kField).size();
    PieceScan::Range range = EntriesOf(call.at(1), opened->generation, EntryKind::kField);
    if (!values) range.content = index::ScanContent::kKeys;
    PieceScan scan(&call.store().tree(), std::move(range));
    while (!scan.done() && call.reply.size() <= call.limits.reply_bytes_max) {
      const Status scanned = co_await NextPiece(call, &scan);
      if (!scanned.ok()) co_return scanned;
      for (const index::KeyValue& row : scan.rows()) {
        if (keys) call.reply.Bulk(std::string_view(row.key).substr(prefix));
        if (values) call.reply.Bulk(row.value);
        ++fields;
      }
    }
  }
  call.reply.Head(keys && values ? Reply::Kind::kMap : Reply::Kind::kArray, at, fields);
  co_return Status::Ok();
}

Task<Status> HashDelete(Call call) {
  Tally deleted;
  const NumberedStep remove = [&](size_t i) { return DeleteField(call, i, &deleted); };
  const Status done = co_await ForEachElement(call, {2}, Repeated::kAnyOrder, remove);
  if (!done.ok()) co_return done;
  deleted.Answer(&call.reply);
  co_return Status::Ok();
}

Task<Status> HashIncrement(Call call) {
  int64_t delta = 0;
  if (!ParseInteger(call.at(3), &delta)) {
    call.reply.Error(kNotAnInteger);
    co_return Status::Ok();
  }
  if (!FieldsFit(call, 2, 2)) co_return Status::Ok();
  struct Sum {
    int64_t delta, result = 0;
    bool is_number = true, overflows = false;
  } sum{delta};
  Sum* const at = &sum;
  const MemberFunction add = [at](std::optional<std::string_view> current,
                                  std::string* replacement) {
    int64_t number = 0;
    at->is_number = !current || ParseSigned(*current, &number);
    at->overflows = __builtin_add_overflow(number, at->delta, &at->result);
    if (!at->is_number || at->overflows) return ModifyAction::kKeep;
    *replacement = std::to_string(at->result);
    return ModifyAction::kWrite;
  };
  const auto updated = co_await UpdateField(call, call.at(2), add, CurrentValue::kRead);
  if (!updated.ok()) co_return updated.status();
  if (updated->presence == Presence::kOther) {
    call.reply.Error(kWrongType);
  } else if (!sum.is_number) {
    call.reply.Error("ERR hash value is not an integer");
  } else if (sum.overflows) {
    call.reply.Error("ERR increment or decrement would overflow");
  } else {
    call.reply.Integer(sum.result);
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
