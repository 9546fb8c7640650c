#include <algorithm>

#include "benchmark/ycsb/operation_loop.h"

namespace farleaf::ycsb {

namespace {

using dsm::FabricCounts;
using dsm::OpContext;
using dsm::Task;
using dsm::Worker;

constexpr uint64_t kSleepNsMax = 50 * kNsPerMs;  // so that a stop is noticed
constexpr uint64_t kBlockedSleepNs = kNsPerUs;
constexpr uint64_t kUpkeepNsMax = 2 * kNsPerSecond, kUpkeepPauseNs = 10 * kNsPerMs;

void Take(Result<bool>&& result, Operation* operation) {
  operation->status = result.status();
  operation->found = result.ok() && *result;
}

/// Of a blind one nobody knows whether the key was there: as expected, then.
Task<void> Write(OperationLoop& deps, OpContext& op, Operation& operation) {
  const bool updates = operation.kind == OpKind::kUpdate;
  if (deps.blind_writes) {
    Status stored = co_await deps.index.BlindPut(op, operation.key, operation.value);
    operation.found = stored.ok() && updates;
    operation.status = std::move(stored);
  } else if (updates) {
    auto updated = co_await deps.index.Update(op, operation.key, operation.value);
    Take(std::move(updated), &operation);
  } else {
    auto inserted = co_await deps.index.Insert(op, operation.key, operation.value);
    operation.found = inserted.ok() && !*inserted;
    operation.status = inserted.status();
  }
}

Task<void> ReadModifyWrite(OperationLoop& deps, OpContext& op, Operation& operation) {
  struct Context {
    OperationSource* source;
    Operation* operation;
  } context{&deps.source, &operation};
  Context* const context_pointer = &context;
  const index::ModifyFunction modify = [context_pointer](std::optional<std::string_view> current,
                                                         std::string* replacement) {
    Operation& own = *context_pointer->operation;
    if (!current) return index::ModifyAction::kKeep;
    own.found_value.assign(*current);
    return context_pointer->source->Modify(own, *current, replacement) ? index::ModifyAction::kWrite
                                                                       : index::ModifyAction::kKeep;
  };
  auto result = co_await deps.index.ReadModifyWrite(op, operation.key, modify);
  operation.status = result.status();
  operation.found = result.ok() && result->existed;
}

}  // namespace

Task<void> WaitUntilDue(Worker& worker, OperationSource& source, uint64_t due_ns) {
  uint64_t now_ns = worker.clock().NowNs();
  while (now_ns < due_ns && !source.stopped()) {
    const uint64_t left_ns = due_ns - now_ns;
    const uint64_t awake_ns = source.awake_before_due_ns();
    const uint64_t sleep_ns = left_ns > awake_ns ? std::min(left_ns - awake_ns, kSleepNsMax) : 0;
    co_await worker.Sleep(sleep_ns);
    now_ns = worker.clock().NowNs();
  }
}

Task<void> WaitUntilUnblocked(Worker& worker, const OperationSource& source,
                              const Operation& operation) {
  // Not 0: in virtual time nothing would pass.
  while (source.Blocked(operation) && !source.stopped()) co_await worker.Sleep(kBlockedSleepNs);
}

Task<void> RunOperations(OperationLoop deps) {
  constexpr uint64_t kYieldEvery = 256;  // operations that may not have waited for anything
  Operation operation;
  for (uint64_t begun = 1; deps.source.Next(&operation); ++begun) {
    if (begun % kYieldEvery == 0) co_await deps.worker.Sleep(0);
    if (operation.due_ns != 0) co_await WaitUntilDue(deps.worker, deps.source, operation.due_ns);
    if (deps.source.Blocked(operation)) {
      co_await WaitUntilUnblocked(deps.worker, deps.source, operation);
    }
    if (!deps.source.Begin(&operation)) break;
    OpContext op{deps.worker, *operation.counts, operation.deadline_ns};
    switch (operation.kind) {
      case OpKind::kRead: {
        auto found = co_await deps.index.Get(op, operation.key, &operation.found_value);
        Take(std::move(found), &operation);
        break;
      }
      case OpKind::kUpdate:
      case OpKind::kInsert:
        co_await Write(deps, op, operation);
        break;
      case OpKind::kScan: {
        const index::ScanRange range{.start = operation.key,
                                     .end = std::nullopt,
                                     .limit = operation.scan_length,
                                     .direction = index::ScanDirection::kForward};
        Status scanned = co_await deps.index.Scan(op, range, &operation.rows);
        operation.status = std::move(scanned);
        break;
      }
      case OpKind::kReadModifyWrite:
        co_await ReadModifyWrite(deps, op, operation);
        break;
    }
    deps.source.Done(operation);
  }
}

namespace {

class IndexSession final : public Session {
 public:
  IndexSession(index::RangeIndex& index, std::unique_ptr<Worker> worker, bool blind_writes)
      : index_(index), worker_(std::move(worker)), blind_writes_(blind_writes) {}

  Status Run(OperationSource& source, uint64_t in_flight) override {
    for (uint64_t i = 0; i < in_flight; ++i) {
      worker_->Spawn(RunOperations({index_, *worker_, source, blind_writes_}));
    }
    worker_->RunUntilIdle();
    worker_->Run(KeepUp(index_, *worker_));
    return Status::Ok();
  }

 private:
  /// What is left behind it keeps the pool from being left, and is told then.
  static Task<void> KeepUp(index::RangeIndex& index, Worker& worker) {
    FabricCounts counts;
    OpContext op{worker, counts, worker.clock().NowNs() + kUpkeepNsMax};
    Status kept = co_await index.Upkeep(op);
    while (!kept.ok() && kept.code() != StatusCode::kFenced && !op.expired()) {
      co_await worker.Sleep(kUpkeepPauseNs);
      kept = co_await index.Upkeep(op);
    }
  }

  index::RangeIndex& index_;
  std::unique_ptr<Worker> worker_;
  const bool blind_writes_;
};

}  // namespace

Result<std::unique_ptr<Session>> IndexTarget::OpenSession() {
  auto worker = OpenWorker();
  if (!worker.ok()) return worker.status();
  return std::unique_ptr<Session>(
      std::make_unique<IndexSession>(index(), std::move(*worker), blind_writes()));
}

}  // namespace farleaf::ycsb
