#include "server/cluster/remote_tree.h"

#include <memory>
#include <utility>

#include "dsm/base/bytes.h"

namespace farleaf::server::cluster {

using client::Callback;
using client::CallOptions;
using client::SessionTree;
using client::protocol::ConditionOutcome;
using client::protocol::Opcode;
using dsm::OpContext;
using dsm::Task;
using index::CurrentValue;
using index::KeyValue;
using index::ModifyAction;
using index::ModifyFunction;
using index::ModifyResult;

namespace {

constexpr uint32_t kOvertakenMax = 1'000;
constexpr uint64_t kOvertakenPauseNs = 100'000;  // about what a request takes
constexpr uint64_t kDeletedAtOnce = 512;

Status Overtaken() {
  return Status::DeadlineExceeded(std::to_string(kOvertakenMax) +
                                  " changes by others came before it; nothing was done");
}

/// Spreads those that change one key.
uint64_t PauseNs(OpContext& op, uint32_t overtaken) {
  return op.worker.random().Below(kOvertakenPauseNs * std::min(overtaken, 10u));
}

}  // namespace

Task<Result<RemoteTree::Current>> RemoteTree::Read(OpContext& op, std::string_view key) {
  const StartFunction<client::Value> start = [key](SessionTree& tree, Callback<client::Value> done,
                                                   CallOptions call) {
    tree.GetAsync(key, std::move(done), call);
  };
  auto value = co_await peers_.Ask<client::Value>(op, at_, Kind::kRead, start);
  co_return value;
}

// A get waits for nothing. An exchange that no value takes part in waits as a change does; should one have just these bytes, it keeps them.
Task<Result<RemoteTree::Current>> RemoteTree::ReadToChange(OpContext& op, std::string_view key) {
  if (op.durability == WriteDurability::kOfStore) {
    auto current = co_await Read(op, key);
    co_return current;
  }
  std::string nobodys(sizeof(uint64_t), '\0');
  StoreLittle(reinterpret_cast<std::byte*>(nobodys.data()), op.worker.random().Next());
  const StartFunction<client::CompareAndSetResult> start =
      [key, &nobodys](SessionTree& tree, Callback<client::CompareAndSetResult> done,
                      CallOptions call) {
        tree.CompareAndSetAsync(key, nobodys, nobodys, std::move(done), call);
      };
  auto read = co_await peers_.Ask<client::CompareAndSetResult>(op, at_, Kind::kRead, start);
  // Done or not, it has changed nothing.
  if (read.status().code() == StatusCode::kUnknown) {
    const std::string why(read.status().message());
    if (op.expired()) co_return Status::DeadlineExceeded(why);
    co_return Status::Unavailable(why);
  }
  if (!read.ok()) co_return read.status();
  if (read->outcome == ConditionOutcome::kDone) co_return Current(std::move(nobodys));
  co_return std::move(read->current);
}

Task<Result<bool>> RemoteTree::Get(OpContext& op, std::string_view key, std::string* value) {
  auto current = co_await Read(op, key);
  if (!current.ok()) co_return current.status();
  if (*current) *value = std::move(**current);
  co_return current->has_value();
}

Task<Status> RemoteTree::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                  std::vector<std::optional<std::string>>* values) {
  values->clear();
  const std::vector<std::string> wanted(keys.begin(), keys.end());
  const StartFunction<client::Values> start =
      [&wanted](SessionTree& tree, Callback<client::Values> done, CallOptions call) {
        tree.MultiGetAsync(wanted, std::move(done), call);
      };
  auto got = co_await peers_.Ask<client::Values>(op, at_, Kind::kRead, start);
  if (!got.ok()) co_return got.status();
  *values = std::move(*got);
  co_return Status::Ok();
}

Task<Result<bool>> RemoteTree::Write(OpContext& op, Opcode opcode, std::string_view key,
                                     std::string_view value) {
  const StartFunction<bool> start = [opcode, key, value](SessionTree& tree, Callback<bool> done,
                                                         CallOptions call) {
    if (opcode == Opcode::kInsert) {
      tree.InsertAsync(key, value, std::move(done), call);
    } else if (opcode == Opcode::kUpdate) {
      tree.UpdateAsync(key, value, std::move(done), call);
    } else {
      tree.PutAsync(key, value, std::move(done), call);
    }
  };
  auto changed = co_await peers_.Ask<bool>(op, at_, Kind::kWrite, start);
  co_return changed;
}

Task<Result<bool>> RemoteTree::Remove(OpContext& op, std::string_view key) {
  const StartFunction<bool> start = [key](SessionTree& tree, Callback<bool> done,
                                          CallOptions call) {
    tree.DeleteAsync(key, std::move(done), call);
  };
  auto existed = co_await peers_.Ask<bool>(op, at_, Kind::kWrite, start);
  co_return existed;
}

Task<Status> RemoteTree::BlindPut(OpContext& op, std::string_view key, std::string_view value) {
  auto stored = co_await Write(op, Opcode::kPut, key, value);
  co_return stored.status();
}

// ---- Modify

Task<Result<ModifyResult>> RemoteTree::Modify(OpContext& op, std::string_view key,
                                              const ModifyFunction& modify, CurrentValue current) {
  return current == CurrentValue::kRead ? ModifyByValue(op, key, modify)
                                        : ModifyByPresence(op, key, modify);
}

/// What a function does that looks only at whether the key is there.
struct RemoteTree::Presence {
  explicit Presence(const ModifyFunction& modify)
      : absent(modify(std::nullopt, &if_absent)),
        present(modify(std::string_view(), &if_present)) {}
  bool WritesTheSame() const {
    return absent == ModifyAction::kWrite && present == ModifyAction::kWrite &&
           if_absent == if_present;
  }
  std::string if_absent, if_present;  // before the two below, which fill them
  ModifyAction absent, present;
};

Task<Result<ModifyResult>> RemoteTree::ModifyByPresence(OpContext& op, std::string_view key,
                                                        const ModifyFunction& modify) {
  const Presence wanted(modify);
  Result<std::optional<bool>> existed = std::optional<bool>();
  for (uint32_t overtaken = 0; !*existed; ++overtaken) {
    if (overtaken == kOvertakenMax) co_return Overtaken();
    if (overtaken > 0) co_await op.worker.Sleep(PauseNs(op, overtaken));
    existed = co_await TryBySide(op, key, wanted);
    if (!existed.ok()) co_return existed.status();
  }
  // The last call decides, as to what the function leaves behind.
  std::string last;
  ModifyResult result;
  result.existed = **existed;
  result.action = modify(result.existed ? std::optional(std::string_view()) : std::nullopt, &last);
  co_return result;
}

Task<Result<std::optional<bool>>> RemoteTree::TryBySide(OpContext& op, std::string_view key,
                                                        const Presence& wanted) {
  if (wanted.WritesTheSame()) {
    auto is_new = co_await Write(op, Opcode::kPut, key, wanted.if_absent);
    if (!is_new.ok()) co_return is_new.status();
    co_return std::optional(!*is_new);
  }
  if (wanted.absent == ModifyAction::kWrite) {
    auto stored = co_await Write(op, Opcode::kInsert, key, wanted.if_absent);
    if (!stored.ok()) co_return stored.status();
    if (*stored) co_return std::optional(false);
    if (wanted.present == ModifyAction::kKeep) co_return std::optional(true);
  }
  if (wanted.present == ModifyAction::kKeep) {
    auto current = co_await ReadToChange(op, key);
    if (!current.ok()) co_return current.status();
    co_return std::optional(current->has_value());
  }
  Result<bool> existed = false;
  if (wanted.present == ModifyAction::kWrite) {
    existed = co_await Write(op, Opcode::kUpdate, key, wanted.if_present);
  } else {
    existed = co_await Remove(op, key);
  }
  if (!existed.ok()) co_return existed.status();
  if (*existed) co_return std::optional(true);
  // Where something is stored if it is not there, it has gone since it was not stored.
  if (wanted.absent == ModifyAction::kWrite) co_return std::optional<bool>();
  co_return std::optional(false);
}

Task<Result<ModifyResult>> RemoteTree::ModifyByValue(OpContext& op, std::string_view key,
                                                     const ModifyFunction& modify) {
  auto current = co_await ReadToChange(op, key);
  if (!current.ok()) co_return current.status();
  for (uint32_t overtaken = 0; overtaken < kOvertakenMax; ++overtaken) {
    if (overtaken > 0) co_await op.worker.Sleep(PauseNs(op, overtaken));
    ModifyResult result;
    result.existed = current->has_value();
    std::string replacement;
    result.action = modify(
        result.existed ? std::optional<std::string_view>(**current) : std::nullopt, &replacement);
    const bool deletes_nothing = result.action == ModifyAction::kDelete && !result.existed;
    if (result.action == ModifyAction::kKeep || deletes_nothing) co_return result;
    const std::string* const value = result.action == ModifyAction::kWrite ? &replacement : nullptr;
    auto exchanged = co_await Exchange(op, key, &*current, value);
    if (!exchanged.ok()) co_return exchanged.status();
    if (*exchanged) co_return result;
  }
  co_return Overtaken();
}

Task<Result<bool>> RemoteTree::Exchange(OpContext& op, std::string_view key, Current* current,
                                        const std::string* value) {
  if (*current && value != nullptr) {
    const std::string_view expected = **current, wanted = *value;
    const StartFunction<client::CompareAndSetResult> start =
        [key, expected, wanted](SessionTree& tree, Callback<client::CompareAndSetResult> done,
                                CallOptions call) {
          tree.CompareAndSetAsync(key, expected, wanted, std::move(done), call);
        };
    auto set = co_await peers_.Ask<client::CompareAndSetResult>(op, at_, Kind::kWrite, start);
    if (!set.ok()) co_return set.status();
    if (set->outcome == ConditionOutcome::kDone) co_return true;
    *current = std::move(set->current);
    co_return false;
  }
  if (*current) {
    const std::string_view expected = **current;
    const StartFunction<ConditionOutcome> start =
        [key, expected](SessionTree& tree, Callback<ConditionOutcome> done, CallOptions call) {
          tree.DeleteIfAsync(key, expected, std::move(done), call);
        };
    auto deleted = co_await peers_.Ask<ConditionOutcome>(op, at_, Kind::kWrite, start);
    if (!deleted.ok()) co_return deleted.status();
    if (*deleted == ConditionOutcome::kDone) co_return true;
  } else {
    auto inserted = co_await Write(op, Opcode::kInsert, key, *value);
    if (!inserted.ok()) co_return inserted.status();
    if (*inserted) co_return true;
  }
  auto now = co_await ReadToChange(op, key);
  if (!now.ok()) co_return now.status();
  *current = std::move(*now);
  co_return false;
}

// ---- Ranges

// Rows are taken in on the link's thread, while this waits.
Task<Status> RemoteTree::Scan(OpContext& op, index::ScanRange range, std::vector<KeyValue>* rows) {
  rows->clear();
  client::ScanRange wanted{.start = std::string(range.start), .limit = range.limit};
  if (range.end) wanted.end = std::string(*range.end);
  wanted.reverse = range.direction == index::ScanDirection::kReverse;
  wanted.keys_only = range.content == index::ScanContent::kKeys;
  uint64_t bytes = 0;
  const client::PieceCallback take = [rows, &bytes, bytes_max = range.bytes_max](client::Rows got) {
    for (client::KeyValue& row : got) {
      if (bytes >= bytes_max) break;
      bytes += row.key.size() + row.value.size();
      rows->push_back({std::move(row.key), std::move(row.value)});
    }
    return bytes < bytes_max;
  };
  const StartFunction<uint64_t> start = [&wanted, &take](SessionTree& tree, Callback<uint64_t> done,
                                                         CallOptions call) {
    tree.ScanPiecesAsync(wanted, take, std::move(done), call);
  };
  auto scanned = co_await peers_.Ask<uint64_t>(op, at_, Kind::kRead, start);
  co_return scanned.status();
}

Task<Status> RemoteTree::DeleteRange(OpContext& op, std::string_view start, std::string_view end) {
  std::string from(start);
  std::vector<KeyValue> rows;
  for (;;) {
    index::ScanRange range{.start = from, .end = end, .limit = kDeletedAtOnce};
    range.content = index::ScanContent::kKeys;
    Status scanned = co_await Scan(op, range, &rows);
    if (!scanned.ok()) co_return scanned;
    Status removed = co_await RemoveAll(op, rows);
    if (!removed.ok() || rows.size() < kDeletedAtOnce) co_return removed;
    from = rows.back().key + '\0';
  }
}

Task<Status> RemoteTree::RemoveAll(OpContext& op, const std::vector<KeyValue>& rows) {
  if (rows.empty()) co_return Status::Ok();
  struct Deletes {
    size_t left;
    Status failure;
    Callback<bool> done;
  };
  const StartFunction<bool> start = [&rows](SessionTree& tree, Callback<bool> done,
                                            CallOptions call) {
    const auto deletes = std::make_shared<Deletes>(Deletes{rows.size(), {}, std::move(done)});
    // The last one's end may be the end of `rows`.
    const size_t count = rows.size();
    for (size_t i = 0; i < count; ++i) {
      const auto deleted = [deletes](Result<bool> each) {
        const bool worse = deletes->failure.ok() || each.status().code() == StatusCode::kUnknown;
        if (!each.ok() && worse) deletes->failure = each.status();
        if (--deletes->left > 0) return;
        deletes->done(deletes->failure.ok() ? Result<bool>(true) : deletes->failure);
      };
      tree.DeleteAsync(rows[i].key, deleted, call);
    }
  };
  auto removed = co_await peers_.Ask<bool>(op, at_, Kind::kWrite, start);
  op.counts.round_trips += rows.size() - 1;
  co_return removed.status();
}

}  // namespace farleaf::server::cluster
