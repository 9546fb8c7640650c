// Clients of three servers, whose ranges of keys move between them again and again: no operation fails, none goes to a
// server that does not have its keys, and what was answered is linearizable per key, and right for scans.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "dsm/base/random.h"
#include "server/frontend/native_server.h"
#include "test/support/linearizability.h"
#include "test/support/map_tree_host.h"
#include "test/support/ranged_host.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using client::CompareAndSetResult;
using client::ConditionOutcome;

std::string RangeKey(uint64_t i) { return "key" + std::to_string(100 + i); }

/// Three servers over one set of trees, each with a map of its own, which all are given one after the other.
class MovingRanges {
 public:
  static constexpr size_t kServers = 3;

  enum class Pace : uint8_t { kAtOnce, kSomeHeldUp };

  MovingRanges(uint64_t seed, uint64_t keys, Pace pace) : random_(seed), keys_(keys) {
    trees_.Add("t");
    for (size_t i = 0; i < kServers; ++i) {
      hosts_.push_back(std::make_unique<RangedHost>(&trees_));
      if (pace == Pace::kSomeHeldUp) hosts_.back()->HoldSomeUp();
      server::NativeServerOptions options;
      options.listen = {"127.0.0.1:0"};
      // Fewer than clients have under way: batches are cut by pauses, and views change in these.
      if (i == 0) options.connection.in_flight_max = 4;
      auto started = server::NativeServer::Start(hosts_.back().get(), &clock_, options);
      FARLEAF_CHECK(started.ok(), started.status());
      servers_.push_back(std::move(*started));
    }
    Move();
  }
  const std::string& url(size_t i) const { return servers_[i % kServers]->urls()[0]; }
  uint64_t moves() const { return view_ - 1; }
  uint64_t misrouted() const {
    uint64_t all = 0;
    for (const auto& host : hosts_) all += host->misrouted();
    return all;
  }
  uint64_t operations(size_t i) const { return hosts_[i]->operations(); }

  /// To a map that is drawn; servers hear of it in an order that is drawn, too.
  void Move() {
    RangedHost::Ranges ranges;
    std::string start;
    for (uint64_t key = 0; key < keys_; key += 1 + random_.Below(keys_)) {
      // At times nobody is known.
      const bool nobody = random_.Below(8) == 0;
      ranges.push_back({key == 0 ? "" : RangeKey(key), nobody ? "" : url(random_.Below(kServers))});
    }
    // By an empty URL the one range is whoever's that is asked: not of a cluster.
    if (ranges.size() == 1) ranges.front().url = url(0);
    ++view_;
    const size_t first = random_.Below(kServers);
    for (size_t i = 0; i < kServers; ++i) {
      const size_t server = (first + i) % kServers;
      hosts_[server]->SetMap(url(server), view_, ranges);
      std::this_thread::sleep_for(std::chrono::microseconds(random_.Below(300)));
    }
  }

 private:
  const MonotonicClock clock_;
  Random random_;
  const uint64_t keys_;
  MapTreeHost trees_{&clock_};
  std::vector<std::unique_ptr<RangedHost>> hosts_;
  std::vector<std::unique_ptr<server::NativeServer>> servers_;
  uint32_t view_ = 1;
};

/// A thread's operations, some of them under way at a time, and what they were answered.
class RecordingThread {
 public:
  RecordingThread(client::Client* client, std::string name, uint64_t seed, HistoryClock* clock)
      : tree_(*client->OpenTree("t")), name_(std::move(name)), random_(seed), clock_(clock) {}

  /// Before each operation `may_go_on` is waited for.
  void Run(uint64_t operations, uint64_t keys, std::atomic<uint64_t>* done,
           const std::function<bool()>& may_go_on) {
    for (uint64_t i = 0; i < operations; ++i) {
      while (!may_go_on()) std::this_thread::yield();
      ++running_;
      Start(random_.Below(keys), keys, i);
      while (running_ > 4) std::this_thread::yield();
      ++*done;
    }
    while (running_ > 0) std::this_thread::yield();
  }
  /// When it has run.
  History history() const {
    History all;
    all.operations.assign(operations_.begin(), operations_.end());
    all.scans.assign(scans_.begin(), scans_.end());
    return all;
  }
  uint64_t failures() const { return failures_; }
  const std::string& why() const { return why_; }

 private:
  Operation* Begin(OpKind kind, uint64_t key, std::string argument) {
    Operation& record = operations_.emplace_back();
    record.kind = kind;
    record.key = RangeKey(key);
    record.argument = std::move(argument);
    record.invoked = clock_->Tick();
    return &record;
  }
  void End(Operation* record, const Status& status) {
    record->returned = clock_->Tick();
    if (!status.ok()) record->outcome = Outcome::kFailed;
    Ended(status);
  }
  // What the server says of a text, or of a counter that is not there, is an answer.
  void Ended(const Status& status) {
    if (!status.ok() && status.code() != StatusCode::kInvalidArgument &&
        status.code() != StatusCode::kNotFound) {
      if (failures_++ == 0) why_ = status.ToString();
    }
    --running_;
  }

  void Start(uint64_t key, uint64_t keys, uint64_t i) {
    const std::string value = name_ + std::to_string(i);
    switch (random_.Below(10)) {
      case 0:
      case 1: {
        Operation* const record = Begin(OpKind::kGet, key, "");
        return tree_.GetAsync(record->key, [this, record](Result<client::Value> found) {
          if (found.ok()) record->value = *found;
          End(record, found.status());
        });
      }
      case 2: {
        Operation* const record = Begin(OpKind::kInsert, key, client::CounterValue(0));
        return tree_.InsertAsync(record->key, record->argument,
                                 [this, record](Result<bool> stored) {
                                   record->existed = stored.ok() && !*stored;
                                   End(record, stored.status());
                                 });
      }
      case 3: {
        Operation* const record = Begin(OpKind::kDelete, key, "");
        return tree_.DeleteAsync(record->key, [this, record](Result<bool> existed) {
          record->existed = existed.ok() && *existed;
          End(record, existed.status());
        });
      }
      case 4: {
        Operation* const record = Begin(OpKind::kPut, key, value);
        return tree_.PutAsync(record->key, value, [this, record](Result<bool> is_new) {
          record->existed = is_new.ok() && !*is_new;
          End(record, is_new.status());
        });
      }
      case 5:
      case 6:
        return StartAdd(key, 1 + static_cast<int64_t>(random_.Below(3)));
      case 7:
        return StartMultiGet(keys);
      case 8:
        return StartScan(keys);
      default:
        return StartCompareAndSet(key, client::CounterValue(static_cast<int64_t>(random_.Below(4))),
                                  value);
    }
  }
  void StartAdd(uint64_t key, int64_t delta) {
    Operation* const record = Begin(OpKind::kModify, key, "");
    tree_.AddAsync(record->key, delta, std::nullopt, [this, record, delta](Result<int64_t> sum) {
      if (sum.ok()) {
        record->value = client::CounterValue(*sum - delta);
        record->argument_after = client::CounterValue(*sum);
      }
      End(record, sum.status());
    });
  }
  void StartCompareAndSet(uint64_t key, const std::string& expected, const std::string& value) {
    Operation* const record = Begin(OpKind::kModify, key, "");
    tree_.CompareAndSetAsync(record->key, expected, value,
                             [this, record, expected, value](Result<CompareAndSetResult> result) {
                               if (result.ok() && result->outcome == ConditionOutcome::kDone) {
                                 record->value = expected;
                                 record->argument_after = value;
                               } else if (result.ok()) {
                                 record->value = record->argument_after = result->current;
                               }
                               End(record, result.status());
                             });
  }
  /// Recorded as a get a key.
  void StartMultiGet(uint64_t keys) {
    std::vector<Operation*> records;
    std::vector<std::string> asked;
    for (uint64_t i = 0; i < 5; ++i) {
      records.push_back(Begin(OpKind::kGet, random_.Below(keys), ""));
      asked.push_back(records.back()->key);
    }
    running_ += records.size() - 1;
    tree_.MultiGetAsync(asked, [this, records](Result<client::Values> values) {
      for (size_t i = 0; i < records.size(); ++i) {
        if (values.ok()) records[i]->value = (*values)[i];
        End(records[i], values.status());
      }
    });
  }
  void StartScan(uint64_t keys) {
    ScanRecord& record = scans_.emplace_back();
    if (random_.Below(2) == 0) record.start = RangeKey(random_.Below(keys));
    if (random_.Below(2) == 0) record.end = RangeKey(random_.Below(keys));
    if (random_.Below(2) == 0) record.limit = 1 + random_.Below(keys);
    const bool reverse = random_.Below(2) == 0;
    if (reverse) record.direction = index::ScanDirection::kReverse;
    record.invoked = clock_->Tick();
    tree_.ScanAsync(
        {.start = record.start, .end = record.end, .limit = record.limit, .reverse = reverse},
        [this, at = &record](Result<client::Rows> rows) {
          at->returned = clock_->Tick();
          if (rows.ok()) {
            for (client::KeyValue& row : *rows) {
              at->rows.push_back({std::move(row.key), std::move(row.value)});
            }
          }
          Ended(rows.status());
        });
  }

  client::Tree tree_;
  const std::string name_;
  Random random_;
  HistoryClock* const clock_;
  // Each is written by this thread until it is started, and by the client's from then on; they stay where they are.
  std::deque<Operation> operations_;
  std::deque<ScanRecord> scans_;
  std::atomic<uint64_t> running_{0}, failures_{0};
  std::string why_;
};

void RecordWhileRangesMove(uint64_t seed, uint64_t operations, uint64_t keys) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  MovingRanges cluster(seed, keys, MovingRanges::Pace::kSomeHeldUp);
  HistoryClock clock;
  std::vector<std::unique_ptr<client::Client>> clients;
  std::vector<std::unique_ptr<RecordingThread>> recorders;
  for (uint64_t i = 0; i < 4; ++i) {
    // Two threads a client.
    if (i % 2 == 0) {
      auto connected = client::Client::Connect(cluster.url(i), {.deadline_ms = 60'000});
      ASSERT_TRUE(connected.ok()) << connected.status();
      clients.push_back(std::move(*connected));
    }
    recorders.push_back(std::make_unique<RecordingThread>(
        clients.back().get(), std::string(1, static_cast<char>('A' + i)), seed * 100 + i, &clock));
  }
  std::atomic<bool> stop{false};
  // There are operations under each map, and a move before there are too many: neither a slow machine nor a busy one sees only one of
  // the two.
  constexpr uint64_t kLeast = 40, kMost = 120;
  std::atomic<uint64_t> done{0}, moved_at{0};
  std::thread mover([&] {
    for (; !stop; std::this_thread::yield()) {
      if (done < moved_at + kLeast) continue;
      cluster.Move();
      moved_at = done.load();
    }
  });
  const auto may_go_on = [&] { return done < moved_at + kMost; };
  std::vector<std::thread> threads;
  for (auto& recorder : recorders) {
    threads.emplace_back([&] { recorder->Run(operations, keys, &done, may_go_on); });
  }
  for (auto& thread : threads) thread.join();
  stop = true;
  mover.join();
  History history;
  for (auto& recorder : recorders) {
    EXPECT_EQ(recorder->failures(), 0u) << recorder->why();
    history.Add(recorder->history());
  }
  EXPECT_EQ(cluster.misrouted(), 0u);
  EXPECT_GT(cluster.moves(), 5u);
  for (size_t i = 0; i < MovingRanges::kServers; ++i) EXPECT_GT(cluster.operations(i), 0u);
  const Verdict order = CheckLinearizable(history);
  EXPECT_TRUE(order.ok) << order.why;
  const Verdict scans = CheckScans(history);
  EXPECT_TRUE(scans.ok) << scans.why;
}

TEST(MovingRangesTest, NoOperationFailsOrGoesAstrayAndAllAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 10, .large = 100};
  for (uint64_t seed = 1; seed <= seeds; ++seed) RecordWhileRangesMove(seed, 500, 60);
}

TEST(MovingRangesTest, HotKeysThatMoveAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 10, .large = 100};
  for (uint64_t seed = 1; seed <= seeds; ++seed) RecordWhileRangesMove(seed, 250, 6);
}

// Each compare-and-set succeeds behind the one on its key that was started before it, and only there: they are begun in the
// order of their start, by whatever server, each once. There are several keys, so that the client hears of a new map from
// another server than the one that it has sent operations of a key to.
TEST(MovingRangesTest, OperationsOfOneThreadOnOneKeyAreBegunInTheirOrder) {
  constexpr uint64_t kChains = 6;
  MovingRanges cluster(7, kChains, MovingRanges::Pace::kAtOnce);
  auto connected = client::Client::Connect(cluster.url(0), {.deadline_ms = 60'000});
  ASSERT_TRUE(connected.ok()) << connected.status();
  auto tree = *(*connected)->OpenTree("t");
  for (uint64_t key = 0; key < kChains; ++key) ASSERT_TRUE(tree.Put(RangeKey(key), "0").ok());
  const uint64_t links = Amount{.small = 6'000, .usual = 30'000, .large = 300'000};
  std::atomic<uint64_t> done{0}, failed{0};
  for (uint64_t i = 0; i < links; ++i) {
    const uint64_t link = i / kChains;
    tree.CompareAndSetAsync(RangeKey(i % kChains), std::to_string(link), std::to_string(link + 1),
                            [&](Result<CompareAndSetResult> result) {
                              ++(result.ok() && *result == ConditionOutcome::kDone ? done : failed);
                            });
    if (i % 100 == 0) cluster.Move();
  }
  while (done + failed < links) std::this_thread::yield();
  EXPECT_EQ(failed, 0u);
  for (uint64_t key = 0; key < kChains; ++key) {
    EXPECT_EQ(**tree.Get(RangeKey(key)), std::to_string(links / kChains));
  }
}

}  // namespace
}  // namespace farleaf::test
