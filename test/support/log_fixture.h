// A recovery log and a value log on any storage, and what tests do with them.
//
// Thread rule: LogsUnderTest as what it holds; the calls with a worker in their name run on it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/worker.h"
#include "index/lsm/commit_record.h"
#include "index/lsm/log.h"
#include "index/lsm/log_group.h"
#include "index/lsm/log_replay.h"

namespace farleaf::test {

/// Workers without a pool worth mentioning.
class BareWorkers {
 public:
  std::unique_ptr<dsm::Worker> New() { return New(&clock); }
  std::unique_ptr<dsm::Worker> New(const Clock* its_clock) {
    std::lock_guard lock(mutex_);
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::move(*fabric_->OpenTransport()), &epochs, its_clock, 1});
  }
  dsm::EpochDomain epochs;
  MonotonicClock clock;

 private:
  std::mutex mutex_;
  std::unique_ptr<dsm::LocalFabric> fabric_ =
      std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
};

/// Remembers which log has which segments, as a manifest does.
class CountingSource final : public index::lsm::SegmentSource {
 public:
  dsm::Task<Result<index::lsm::SegmentId>> Take(dsm::Worker&, index::lsm::LogKind log) override {
    std::lock_guard lock(mutex_);
    const auto id = static_cast<index::lsm::SegmentId>(++last_);
    granted_[log].push_back(id);
    co_return id;
  }
  void GiveUp(index::lsm::LogKind log, index::lsm::SegmentId id) override { Drop(log, {id}); }
  std::vector<index::lsm::SegmentId> granted(index::lsm::LogKind log) {
    std::lock_guard lock(mutex_);
    return granted_[log];
  }
  void Drop(index::lsm::LogKind log, const std::vector<index::lsm::SegmentId>& ids) {
    std::lock_guard lock(mutex_);
    for (const auto id : ids) std::erase(granted_[log], id);
  }

 private:
  std::mutex mutex_;  // guards all below
  uint64_t last_ = 0;
  std::map<index::lsm::LogKind, std::vector<index::lsm::SegmentId>> granted_;
};

struct LogsOptions {
  uint64_t epoch = 7;
  uint32_t buffers_max = 8;
  index::lsm::Sequence next_sequence = 1;
  index::lsm::Durability durability = index::lsm::Durability::kSynced;
};

class LogsUnderTest {
 public:
  LogsUnderTest(index::storage::Storage* storage, CountingSource* source, dsm::EpochDomain* epochs,
                const LogsOptions& options)
      : buffers(options.buffers_max),
        recovery({storage, source, &buffers, epochs},
                 {index::lsm::LogKind::kRecovery, options.epoch, options.next_sequence}),
        values({storage, source, &buffers, epochs}, {index::lsm::LogKind::kValues, options.epoch}),
        group(storage, {&recovery, &values}, options.durability) {}

  /// Appends a value, awaiting room as often as needed.
  dsm::Task<Status> AppendValue(dsm::Worker& worker, std::string key, std::string value,
                                index::lsm::ValuePointer* pointer,
                                index::lsm::LogGroup::Positions* positions) {
    index::lsm::Log::Appended appended;
    for (;;) {
      const auto outcome = values.AppendValue(key, value, pointer, &appended);
      if (outcome == index::lsm::Log::Outcome::kAppended) break;
      if (outcome == index::lsm::Log::Outcome::kFailed) co_return values.failure();
      Status status = co_await group.Room(worker, values, std::nullopt);
      if (!status.ok()) co_return status;
    }
    (*positions)[1] = appended.end;
    co_return Status::Ok();
  }
  dsm::Task<Status> AppendCommit(dsm::Worker& worker, const index::lsm::CommitWriter& commit,
                                 index::lsm::Sequence* first,
                                 index::lsm::LogGroup::Positions* positions) {
    index::lsm::Log::Appended appended;
    for (;;) {
      const auto outcome = recovery.AppendCommit(commit.payload(), commit.changes(), &appended,
                                                 [](index::lsm::Sequence) {});
      if (outcome == index::lsm::Log::Outcome::kAppended) break;
      if (outcome == index::lsm::Log::Outcome::kFailed) co_return recovery.failure();
      Status status = co_await group.Room(worker, recovery, std::nullopt);
      if (!status.ok()) co_return status;
    }
    *first = appended.first;
    (*positions)[0] = appended.end;
    co_return Status::Ok();
  }

  index::lsm::LogBuffers buffers;
  index::lsm::Log recovery, values;
  index::lsm::LogGroup group;
};

}  // namespace farleaf::test
