// Read-modify-writes.
#include <algorithm>
#include <utility>

#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

/// Of several changes, while each waits its turn.
constexpr size_t kPacedTogetherMax = 8;

/// Whether it comes to the same if the key is there, whatever its expiry, and if it is not, and that is a change: then it is decided, and
/// nothing has to be known.
bool DecidesBlindly(const ModifyEntryFunction& modify, ModifyAction* action,
                    NewEntry* replacement) {
  NewEntry if_absent;
  const ModifyAction absent = modify(std::nullopt, &if_absent);
  for (const uint64_t expires_ms : {UINT64_MAX, uint64_t{0}}) {
    *replacement = {.value = {}, .expires_ms = expires_ms};
    *action = modify(CurrentEntry{.value = {}, .expires_ms = expires_ms}, replacement);
    const bool writes_the_same = *action == ModifyAction::kWrite &&
                                 absent == ModifyAction::kWrite && if_absent == *replacement;
    const bool deletes = *action == ModifyAction::kDelete && absent != ModifyAction::kWrite;
    if (!writes_the_same && !deletes) return false;
  }
  return true;
}

}  // namespace

// Who has not looked at the value puts another one in its place, as a put does: what it was to expire at is gone with it.
Task<Result<ModifyResult>> LsmStore::Modify(OpContext& op, std::string_view key,
                                            const ModifyFunction& modify, CurrentValue use) {
  const bool keeps_expiry = use == CurrentValue::kRead;
  return ModifyEntry(
      op, key,
      [&modify, keeps_expiry](const std::optional<CurrentEntry>& current, NewEntry* replacement) {
        if (!keeps_expiry) replacement->expires_ms = 0;
        return modify(current ? std::optional(current->value) : std::nullopt, &replacement->value);
      },
      use);
}

Task<Result<ModifyResult>> LsmStore::ModifyEntry(OpContext& op, std::string_view key,
                                                 ModifyEntryFunction modify, CurrentValue use) {
  return ModifyOne(op, key, std::move(modify), use, nullptr);
}

Task<Result<ModifyResult>> LsmStore::ModifyOne(OpContext& op, std::string_view key,
                                               ModifyEntryFunction modify, CurrentValue use,
                                               Together* together) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  const Wanted wanted = use == CurrentValue::kRead ? Wanted::kValue : Wanted::kPresence;
  NewEntry replacement;
  for (;;) {
    // It may turn out to be a delete.
    Status admitted = co_await Admit(op, 1, storage::Reserve::kLogs);
    if (!admitted.ok()) co_return admitted;
    Found found;
    const uint64_t flushes_before = View().flushes;
    auto there = co_await Find(op, Places(), key, kSequenceMax, wanted, &found);
    Seen seen{View().flushes, found.newest_in_memory};
    if (seen.flushes != flushes_before) continue;  // it may have been looked up in an older view

    ModifyResult result;
    if (there.ok()) {
      result.existed = *there;
      std::optional<CurrentEntry> current;
      if (*there) {
        current.emplace(CurrentEntry{.value = {}, .expires_ms = found.entry.expires_ms});
        if (wanted == Wanted::kValue) current->value = found.entry.value;
      }
      replacement.value.clear();
      replacement.expires_ms = current ? current->expires_ms : 0;
      result.action = modify(current, &replacement);
      const bool deletes_nothing = result.action == ModifyAction::kDelete && !*there;
      if (result.action == ModifyAction::kKeep || deletes_nothing) {
        if (together != nullptr) {
          together->unchanged = true;
          co_return result;
        }
        Status safe = co_await AfterNoChange(op, key);
        if (!safe.ok()) co_return safe;
        co_return result;
      }
    } else {
      result.existed = true;
      const bool blind = wanted == Wanted::kPresence && IsUnreadable(there.status()) &&
                         DecidesBlindly(modify, &result.action, &replacement);
      if (!blind) co_return there.status();
    }

    Change change{.kind = ChangeKind::kDelete, .key = key};
    Committed committed;
    OpenValues::Use open;
    if (result.action == ModifyAction::kWrite) {
      if (room_.closed()) co_return room_.Refuse();
      change.kind = ChangeKind::kPut;
      change.value = replacement.value;
      change.expires_ms = replacement.expires_ms;
      FARLEAF_CO_RETURN_IF_ERROR(CheckChange(change));
      if (change.value.size() >= options_.value_separation_bytes) {
        open.Begin(&open_values_, *value_log_, op.worker.number());
        Status appended =
            co_await AppendValue(op.worker, key, change.value, &change.pointer, &committed, {});
        if (!appended.ok()) co_return appended;
        change.kind = ChangeKind::kPutPointer;
        change.value = {};
      }
    }
    const CommitOutcome outcome = TryCommit(op.worker, {&change, 1}, &seen, &committed);
    if (outcome != CommitOutcome::kDone) NoteUnnamed({&change, 1});
    if (outcome != CommitOutcome::kDone && committed.sealed) log_work_.Notify();
    if (outcome == CommitOutcome::kChanged) continue;
    if (outcome == CommitOutcome::kFailed) co_return recovery_log_->failure();
    if (outcome == CommitOutcome::kNoRoom) {
      const bool deletes = change.kind == ChangeKind::kDelete;
      const From from = deletes ? From(storage::Reserve::kLogs) : std::nullopt;
      Status room = co_await AwaitCommitRoom(op.worker, op.deadline_ns, from);
      if (!room.ok()) co_return room;
      continue;
    }
    CountUserBytes({&change, 1});
    open.End();
    if (together != nullptr) {
      if (NoteCommit(committed)) co_await op.worker.Sleep(0);
      together->Note(committed);
      co_return result;
    }
    Status after = co_await AfterCommit(op, committed);
    if (!after.ok()) co_return after;
    co_return result;
  }
}

// ---- Several

void LsmStore::Together::Note(const Committed& one) {
  if (!committed) committed.emplace();
  (*committed)[0] = std::max((*committed)[0], one.recovery.end);
  (*committed)[1] = std::max((*committed)[1], one.values_end);
}

// They are committed one by one, so in their order. Whoever reads one of them meanwhile waits as any reader does; what is durable of them after a crash is
// a prefix, as of the log. Those that are done are not kept waiting for one that would wait before it is made.
Task<size_t> LsmStore::ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                                      CurrentValue use, KeyChanges& changes) {
  const bool keeps_expiry = use == CurrentValue::kRead;
  Together together;
  struct Made {
    ModifyResult result;
    bool unchanged;
  };
  std::vector<Made> made;
  made.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && MayHaveToWait()) break;
    if (i >= kPacedTogetherMax && WaitsItsTurn()) break;
    const ModifyEntryFunction modify = [&changes, i, keeps_expiry](
                                           const std::optional<CurrentEntry>& current,
                                           NewEntry* replacement) {
      if (!keeps_expiry) replacement->expires_ms = 0;
      return changes.Decide(i, current ? std::optional(current->value) : std::nullopt,
                            &replacement->value);
    };
    together.unchanged = false;
    const auto modified = co_await ModifyOne(op, keys[i], modify, use, &together);
    if (!modified.ok()) break;
    made.push_back({*modified, together.unchanged});
  }
  Status acknowledged, seen;
  const bool waits = DurabilityOf(op) != Durability::kLocal || deps_.mirror != nullptr;
  if (together.committed && waits) {
    acknowledged = co_await AwaitAcknowledged(op, *together.committed);
  }
  const bool some_unchanged = std::ranges::any_of(made, &Made::unchanged);
  if (some_unchanged) seen = co_await AfterNoChange(op, std::nullopt);
  // Nothing was done: whoever asks for the first by itself hears why, or asks another node.
  if (!together.committed && !seen.ok()) co_return 0;
  for (size_t i = 0; i < made.size(); ++i) {
    // What needs no change may have seen one of these.
    const Status& settled = made[i].unchanged && acknowledged.ok() ? seen : acknowledged;
    changes.Done(i, settled.ok() ? Result<ModifyResult>(made[i].result) : settled);
  }
  co_return made.size();
}

}  // namespace farleaf::index::lsm
