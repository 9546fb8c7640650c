// LsmLogTest: both logs on a MemoryStorage, with the calls that a test makes of them.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/lsm/log_reader.h"
#include "test/support/log_fixture.h"
#include "test/support/memory_storage.h"

namespace farleaf::index::lsm {

inline std::string PutsOf(const CommitReader& commit) {
  CommitReader reader = commit;
  Change change;
  std::string text;
  while (reader.Next(&change)) {
    text += std::string(change.key) + "=" + std::string(change.value) + ";";
  }
  return text;
}

struct LsmLogTest : ::testing::Test {
  LsmLogTest() { Open({}); }
  void Open(test::LogsOptions options) {
    logs.reset();
    logs.emplace(&storage, &source, &workers.epochs, options);
  }
  Status Append(const std::string& key, const std::string& value) {
    CommitWriter commit;
    commit.Add({.kind = ChangeKind::kPut, .key = key, .value = value});
    return worker->Run(logs->AppendCommit(*worker, commit, &first, &positions));
  }
  Status AppendValue(const std::string& key, const std::string& value) {
    return worker->Run(logs->AppendValue(*worker, key, value, &pointer, &positions));
  }
  Status AppendPointer(const std::string& key) {
    CommitWriter commit;
    commit.Add({.kind = ChangeKind::kPutPointer, .key = key, .pointer = pointer});
    return worker->Run(logs->AppendCommit(*worker, commit, &first, &positions));
  }
  Status Sync() { return worker->Run(logs->group.Sync(*worker, positions)); }
  Status Flush() { return worker->Run(logs->group.Flush(*worker)); }
  Result<ReplayReport> ReplayAll(Sequence flushed = 0, uint64_t epoch = 7, Sequence durable = 0) {
    replayed.clear();
    return worker->Run(
        Replay(*worker, storage, {epoch, source.granted(LogKind::kRecovery), flushed, {}, durable},
               [this](CommitReader commit) {
                 replayed.push_back(std::to_string(commit.first()) + ":" + PutsOf(commit));
                 return Status::Ok();
               }));
  }
  std::string ReadBack(const std::string& key) {
    auto value = worker->Run(ReadValue(*worker, storage, 7, pointer, key));
    return value.ok() ? *value : value.status().ToString();
  }
  /// Goes on after a replay, as a store does.
  void Recover(const ReplayReport& report) {
    source.Drop(LogKind::kRecovery, report.unused);
    positions = {};
    Open({.next_sequence = report.last + 1});
  }

  test::BareWorkers workers;
  test::MemoryStorage storage;
  test::CountingSource source;
  std::unique_ptr<dsm::Worker> worker = workers.New();
  std::optional<test::LogsUnderTest> logs;
  Sequence first = 0;
  ValuePointer pointer;
  LogGroup::Positions positions{};
  std::vector<std::string> replayed;
};

}  // namespace farleaf::index::lsm
