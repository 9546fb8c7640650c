#include "server/records/record_store.h"

#include <algorithm>

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;
using index::ModifyAction;

namespace {

constexpr uint64_t kDeleteInPassingNs = 50 * kNsPerMs;

/// One attempt after the other, with what the last one came to.
struct Attempt {
  RecordRule* rule = nullptr;
  uint64_t now_ns = 0;
  RecordUpdate update;
  Status failure;

  ModifyAction Run(std::optional<std::string_view> value, std::string* replacement) {
    update = {};
    failure = Status::Ok();
    const uint64_t now_ms = now_ns / kNsPerMs;
    std::optional<Record> current;
    uint64_t last_cas = 0;
    if (value) {
      auto parsed = ParseRecord(*value);
      if (!parsed.ok()) {
        failure = parsed.status();
        return ModifyAction::kKeep;
      }
      last_cas = parsed->cas;
      if (!IsExpired(*parsed, now_ms)) current = *parsed;
    }
    return Decide(current, last_cas, value ? ModifyAction::kDelete : ModifyAction::kKeep,
                  replacement);
  }

  /// The same of what cannot be read, whatever it is. REQUIRES: rule->blind().
  ModifyAction RunBlindly(std::string* replacement) {
    return Decide(Record(), 0, ModifyAction::kDelete, replacement);
  }

  /// `drop`: what deletes what is there.
  ModifyAction Decide(const std::optional<Record>& current, uint64_t last_cas, ModifyAction drop,
                      std::string* replacement) {
    const uint64_t now_ms = now_ns / kNsPerMs;
    update = {};
    failure = Status::Ok();
    Record next;
    std::string_view tail;
    update.action = rule->Decide(current ? &*current : nullptr, &next, &tail);
    switch (update.action) {
      case RecordAction::kKeep:
        return current ? ModifyAction::kKeep : drop;  // what has expired goes, for nothing
      case RecordAction::kDelete:
        return drop;
      case RecordAction::kWrite:
        break;
    }
    if (next.cas == 0) next.cas = std::max(last_cas + 1, now_ns);
    update.cas = next.cas;
    if (IsExpired(next, now_ms)) return drop;
    AppendRecord(next, tail, replacement);
    return ModifyAction::kWrite;
  }
};

class KeepWhatLives final : public RecordRule {
  RecordAction Decide(const Record*, Record*, std::string_view*) override {
    return RecordAction::kKeep;
  }
};

}  // namespace

namespace {
index::ModifyFunction FunctionOf(Attempt* attempt) {
  return [attempt](std::optional<std::string_view> current, std::string* replacement) {
    return attempt->Run(current, replacement);
  };
}
Result<RecordUpdate> OutcomeOf(const Attempt& attempt) {
  if (!attempt.failure.ok()) return attempt.failure;
  return attempt.update;
}
}  // namespace

Task<Result<RecordUpdate>> RecordStore::Update(OpContext& op, std::string_view key,
                                               RecordRule& rule) const {
  Attempt attempt{&rule, wall_->NowNs(), {}, {}};
  const index::ModifyFunction modify = FunctionOf(&attempt);
  const auto done = co_await tree_->ReadModifyWrite(op, key, modify);
  if (done.ok()) co_return OutcomeOf(attempt);
  const StatusCode why = done.status().code();
  if (!rule.blind() || (why != StatusCode::kCorruption && why != StatusCode::kIoError)) {
    co_return done.status();
  }
  const index::ModifyFunction blindly = [&attempt](std::optional<std::string_view>,
                                                   std::string* replacement) {
    return attempt.RunBlindly(replacement);
  };
  const auto hidden = co_await tree_->Modify(op, key, blindly, index::CurrentValue::kPresenceOnly);
  if (!hidden.ok()) co_return hidden.status();
  co_return OutcomeOf(attempt);
}

namespace {

class Updates final : public index::KeyChanges {
 public:
  Updates(RecordChanges& changes, uint64_t now_ns)
      : KeyChanges(&changes.room()), changes_(changes), attempt_{nullptr, now_ns, {}, {}} {}

  ModifyAction Decide(size_t number, std::optional<std::string_view> current,
                      std::string* replacement) override {
    attempt_.rule = &changes_.RuleOf(number);
    // No two have the same cas, also where another server deletes the key in between.
    ++attempt_.now_ns;
    return attempt_.Run(current, replacement);
  }
  void Done(size_t number, const Result<index::ModifyResult>& result) override {
    changes_.Done(number, result.ok() ? OutcomeOf(attempt_) : result.status());
  }

 private:
  RecordChanges& changes_;
  Attempt attempt_;
};

/// As Updates, where all are decided before the first is done.
class UpdatesTogether final : public index::KeyChanges {
 public:
  UpdatesTogether(RecordChanges& changes, size_t count, uint64_t now_ns)
      : KeyChanges(&changes.room()), changes_(changes), count_(count), now_ns_(now_ns) {}

  ModifyAction Decide(size_t number, std::optional<std::string_view> current,
                      std::string* replacement) override {
    attempts_.resize(count_);  // not before: many an index does nothing of this
    Attempt& attempt = attempts_[number];
    attempt.rule = &changes_.RuleOf(number);
    attempt.now_ns = ++now_ns_;  // no two have the same cas
    return attempt.Run(current, replacement);
  }
  void Done(size_t number, const Result<index::ModifyResult>& result) override {
    changes_.Done(number, result.ok() ? OutcomeOf(attempts_[number]) : result.status());
  }

 private:
  RecordChanges& changes_;
  const size_t count_;
  uint64_t now_ns_;
  std::vector<Attempt> attempts_;
};

}  // namespace

Task<size_t> RecordStore::UpdateTogether(OpContext& op, std::span<const std::string_view> keys,
                                         RecordChanges& changes) const {
  UpdatesTogether updates(changes, keys.size(), wall_->NowNs());
  const size_t done = co_await tree_->ModifyTogether(op, keys, index::CurrentValue::kRead, updates);
  co_return done;
}

size_t RecordStore::UpdateAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                 RecordChanges& changes) const {
  Updates updates(changes, wall_->NowNs());
  return tree_->ModifyAtOnce(op, keys, index::CurrentValue::kRead, updates);
}

Task<Status> RecordStore::DeleteExpired(OpContext& op, std::string_view key) const {
  KeepWhatLives rule;
  const auto done = co_await Update(op, key, rule);
  co_return done.ok() ? Status::Ok() : done.status();
}

Task<bool> RecordStore::DeleteInPassing(OpContext& op, std::string_view key) const {
  OpContext brief{op.worker, op.counts,
                  std::min(op.deadline_ns, op.worker.clock().NowNs() + kDeleteInPassingNs)};
  const Status deleted = co_await DeleteExpired(brief, key);
  co_return deleted.ok();
}

Task<Result<bool>> RecordStore::Get(OpContext& op, std::string_view key, std::string* value,
                                    Record* record) const {
  const Result<bool> found = co_await tree_->Get(op, key, value);
  if (!found.ok() || !*found) co_return found;
  auto parsed = ParseRecord(*value);
  if (!parsed.ok()) co_return parsed.status();
  if (parsed->expiry_ms != 0 && IsExpired(*parsed, NowMs())) {
    (void)co_await DeleteInPassing(op, key);
    co_return false;
  }
  *record = *parsed;
  co_return true;
}

namespace {

/// Makes records of what a tree tells, and notes what has expired.
class Reader final : public index::ValueVisitor {
 public:
  Reader(RecordVisitor& visitor, const RecordStore& store, std::vector<size_t>* expired)
      : visitor_(visitor), store_(store), expired_(expired) {}

  void Visit(size_t number, std::optional<std::string_view> value) override {
    if (!value) return visitor_.Visit(number, nullptr, Status::Ok());
    const auto parsed = ParseRecord(*value);
    if (!parsed.ok()) return visitor_.Visit(number, nullptr, parsed.status());
    if (!Expired(*parsed)) return visitor_.Visit(number, &*parsed, Status::Ok());
    expired_->push_back(number);
    visitor_.Visit(number, nullptr, Status::Ok());
  }

 private:
  // The clock is read for those only that expire at all: it is not free.
  bool Expired(const Record& record) {
    if (record.expiry_ms == 0) return false;
    if (now_ms_ == 0) now_ms_ = store_.NowMs();
    return IsExpired(record, now_ms_);
  }

  RecordVisitor& visitor_;
  const RecordStore& store_;
  std::vector<size_t>* const expired_;
  uint64_t now_ms_ = 0;
};

}  // namespace

Task<Status> RecordStore::Visit(OpContext& op, std::span<const std::string_view> keys,
                                RecordVisitor& visitor) const {
  std::vector<size_t> expired;
  Reader reader(visitor, *this, &expired);
  const Status visited = co_await tree_->VisitValues(op, keys, reader);
  for (const size_t number : expired) {
    const bool deleted = co_await DeleteInPassing(op, keys[number]);
    if (!deleted) break;
  }
  co_return visited;
}

size_t RecordStore::VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                RecordVisitor& visitor, std::vector<size_t>* expired) const {
  Reader reader(visitor, *this, expired);
  return tree_->VisitAtOnce(op, keys, reader);
}

Task<Status> RecordStore::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                   std::vector<std::optional<std::string>>* values,
                                   std::vector<std::optional<Record>>* records) const {
  const Status got = co_await tree_->MultiGet(op, keys, values);
  if (!got.ok()) co_return got;
  records->assign(keys.size(), std::nullopt);
  const uint64_t now_ms = NowMs();
  bool deletes = true;  // as long as that does not have to wait
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!(*values)[i]) continue;
    auto parsed = ParseRecord(*(*values)[i]);
    if (!parsed.ok()) co_return parsed.status();
    if (!IsExpired(*parsed, now_ms)) {
      (*records)[i] = *parsed;
    } else if (deletes) {
      deletes = co_await DeleteInPassing(op, keys[i]);
    }
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server
