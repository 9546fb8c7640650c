// History: what concurrent clients did to an index and what it answered, for the checkers in
// test/support/linearizability.h.
//
// Each coroutine that issues operations one after another has a RecordingClient of its own. Times
// are ticks of one HistoryClock: an operation that was invoked at a later tick than another one's
// return came after it in real time.
//
// Thread rule: HistoryClock is thread-safe; a RecordingClient belongs to one coroutine, and its
// records are read when that has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/range_index.h"

namespace farleaf::test {

/// For messages: quoted, long values cut, unprintable bytes as hex; "absent" if there is none.
std::string Printable(std::string_view bytes);
std::string Printable(const std::optional<std::string>& value);

class HistoryClock {
 public:
  uint64_t Tick() { return ticks_.fetch_add(1) + 1; }

 private:
  std::atomic<uint64_t> ticks_{0};
};

enum class OpKind : uint8_t { kGet, kInsert, kPut, kSet, kUpdate, kDelete, kDeleteIf, kModify };

enum class Outcome : uint8_t {
  kDone,
  kFailed,   ///< did not happen
  kUnknown,  ///< may have happened, or happen at any later time, or never
};

/// One operation on one key. What it saw and did:
///   kGet       value: what was found
///   kInsert…   argument: the value to store; existed: whether the key was there before
///   kSet       a put that does not tell whether the key was there before
///   kDeleteIf  argument: the expected value; deleted: whether it was
///   kModify    value: what the function was given last, argument_after: what it left
/// With Outcome::kUnknown only key, kind, argument, and of kModify value and argument_after, count.
struct Operation {
  static constexpr uint64_t kNever = UINT64_MAX;

  OpKind kind = OpKind::kGet;
  Outcome outcome = Outcome::kDone;
  std::string key;
  std::string argument;
  bool existed = false;
  bool deleted = false;
  std::optional<std::string> value;
  std::optional<std::string> argument_after;
  uint64_t invoked = 0;
  uint64_t returned = kNever;

  std::string ToString() const;
};

/// A scan that ended ok.
struct ScanRecord {
  std::string start;
  std::optional<std::string> end;
  uint64_t limit = UINT64_MAX;
  index::ScanDirection direction = index::ScanDirection::kForward;
  std::vector<index::KeyValue> rows;
  uint64_t invoked = 0;
  uint64_t returned = 0;
};

struct History {
  std::map<std::string, std::string> initial;  ///< before the first operation
  std::vector<Operation> operations;
  std::vector<ScanRecord> scans;

  void Add(History&& other) {
    std::move(other.operations.begin(), other.operations.end(), std::back_inserter(operations));
    std::move(other.scans.begin(), other.scans.end(), std::back_inserter(scans));
  }
};

/// Issues operations to an index and records them. Each call answers the operation's Status. An
/// operation may be abandoned before its end (Abandon): the client's process has crashed.
class RecordingClient {
 public:
  using Task = index::Task<Status>;

  RecordingClient(index::RangeIndex* index, HistoryClock* clock) : index_(index), clock_(clock) {}
  RecordingClient(RecordingClient&&) = default;

  Task Get(index::OpContext& op, std::string key) {
    Operation record = Begin(OpKind::kGet, std::move(key), "");
    pending_ = &record;
    std::string value;
    auto found = co_await index_->Get(op, record.key, &value);
    if (found.ok() && *found) record.value = std::move(value);
    co_return End(std::move(record), found.status());
  }

  /// Recorded as a kGet a key.
  Task MultiGet(index::OpContext& op, std::vector<std::string> keys) {
    std::vector<Operation> records;
    std::vector<std::string_view> views(keys.begin(), keys.end());
    for (const std::string& key : keys) records.push_back(Begin(OpKind::kGet, key, ""));
    std::vector<std::optional<std::string>> values;
    Status status = co_await index_->MultiGet(op, views, &values);
    for (size_t i = 0; i < records.size(); ++i) {
      if (status.ok()) records[i].value = std::move(values[i]);
      Record(std::move(records[i]), status);
    }
    co_return status;
  }

  Task Insert(index::OpContext& op, std::string key, std::string value) {
    Operation record = Begin(OpKind::kInsert, std::move(key), std::move(value));
    pending_ = &record;
    auto stored = co_await index_->Insert(op, record.key, record.argument);
    record.existed = stored.ok() && !*stored;
    co_return End(std::move(record), stored.status());
  }

  Task Put(index::OpContext& op, std::string key, std::string value) {
    Operation record = Begin(OpKind::kPut, std::move(key), std::move(value));
    pending_ = &record;
    auto is_new = co_await index_->Put(op, record.key, record.argument);
    record.existed = is_new.ok() && !*is_new;
    co_return End(std::move(record), is_new.status());
  }

  Task BlindPut(index::OpContext& op, std::string key, std::string value) {
    Operation record = Begin(OpKind::kSet, std::move(key), std::move(value));
    pending_ = &record;
    Status stored = co_await index_->BlindPut(op, record.key, record.argument);
    co_return End(std::move(record), std::move(stored));
  }

  Task Update(index::OpContext& op, std::string key, std::string value) {
    Operation record = Begin(OpKind::kUpdate, std::move(key), std::move(value));
    pending_ = &record;
    auto stored = co_await index_->Update(op, record.key, record.argument);
    record.existed = stored.ok() && *stored;
    co_return End(std::move(record), stored.status());
  }

  Task Delete(index::OpContext& op, std::string key) {
    Operation record = Begin(OpKind::kDelete, std::move(key), "");
    pending_ = &record;
    auto existed = co_await index_->Delete(op, record.key);
    record.existed = existed.ok() && *existed;
    co_return End(std::move(record), existed.status());
  }

  Task DeleteIf(index::OpContext& op, std::string key, std::string expected) {
    Operation record = Begin(OpKind::kDeleteIf, std::move(key), std::move(expected));
    pending_ = &record;
    auto result = co_await index_->DeleteIf(op, record.key, record.argument);
    record.existed = result.ok() && *result != index::DeleteIfResult::kAbsent;
    record.deleted = result.ok() && *result == index::DeleteIfResult::kDeleted;
    co_return End(std::move(record), result.status());
  }

  /// Appends `suffix` to the value, or stores it if the key is absent. kAppendOrDelete: deletes a
  /// key that is there.
  enum class Change : uint8_t { kAppend, kAppendOrDelete };
  Task Modify(index::OpContext& op, std::string key, std::string suffix, Change change) {
    Operation record = Begin(OpKind::kModify, std::move(key), std::move(suffix));
    bool called = false;
    const index::ModifyFunction modify = [this, &record, &called, change](
                                             std::optional<std::string_view> current,
                                             std::string* replacement) {
      called = true;
      pending_ = &record;  // before, it cannot have happened
      record.value = current;
      if (current && change == Change::kAppendOrDelete) {
        record.argument_after.reset();
        return index::ModifyAction::kDelete;
      }
      replacement->assign(current.value_or(""));
      replacement->append(record.argument);
      record.argument_after = *replacement;
      return index::ModifyAction::kWrite;
    };
    auto result = co_await index_->ReadModifyWrite(op, record.key, modify);
    if (!called && !result.ok()) co_return result.status();  // it cannot have happened
    co_return End(std::move(record), result.status());
  }

  /// The operation that runs, if one does, has not been answered, and will not be: it may have happened,
  /// or may happen yet. Whatever its coroutine does from here on is not recorded.
  void Abandon() {
    if (pending_ != nullptr) {
      Operation record = *pending_;
      record.outcome = Outcome::kUnknown;
      record.returned = Operation::kNever;
      history_.operations.push_back(std::move(record));
    }
    pending_ = nullptr;
    abandoned_ = true;
  }

  Task Scan(index::OpContext& op, ScanRecord scan) {
    scan.invoked = clock_->Tick();
    index::ScanRange range;
    range.start = scan.start;
    if (scan.end) range.end = *scan.end;
    range.limit = scan.limit;
    range.direction = scan.direction;
    Status status = co_await index_->Scan(op, range, &scan.rows);
    scan.returned = clock_->Tick();
    if (status.ok() && !abandoned_) history_.scans.push_back(std::move(scan));
    co_return status;
  }

  History& history() { return history_; }

 private:
  Operation Begin(OpKind kind, std::string key, std::string argument) {
    Operation record;
    record.kind = kind;
    record.key = std::move(key);
    record.argument = std::move(argument);
    record.invoked = clock_->Tick();
    return record;
  }
  Status End(Operation record, const Status& status) {
    Record(std::move(record), status);
    return status;
  }
  void Record(Operation record, const Status& status) {
    pending_ = nullptr;
    if (abandoned_) return;
    record.returned = clock_->Tick();
    if (!status.ok()) {
      record.outcome = status.code() == StatusCode::kUnknown ? Outcome::kUnknown : Outcome::kFailed;
      if (record.outcome == Outcome::kUnknown) record.returned = Operation::kNever;
    }
    history_.operations.push_back(std::move(record));
  }

  index::RangeIndex* index_;
  HistoryClock* clock_;
  History history_;
  const Operation* pending_ = nullptr;  ///< in the frame of the operation that runs
  bool abandoned_ = false;
};

}  // namespace farleaf::test
