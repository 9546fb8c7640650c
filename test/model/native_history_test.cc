// Clients of the native protocol at two compute servers on one pool, while the servers' view changes again
// and again: what they were answered must be linearizable per key, compare-and-set and add included.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>

#include "client/session.h"
#include "dsm/base/random.h"
#include "server/frontend/native_server.h"
#include "test/support/linearizability.h"
#include "test/support/pool_hosts.h"
#include "test/support/ruled_host.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using client::CompareAndSetResult;
using client::ConditionOutcome;

/// Two compute servers, each with a pool and caches of its own, whose verbs end late; `seed` decides when.
class TwoServers {
 public:
  explicit TwoServers(uint64_t seed) : hosts_(2, seed) {
    for (size_t i = 0; i < 2; ++i) {
      viewed_.push_back(std::make_unique<RuledHost>(&hosts_.host(i)));
      server::NativeServerOptions options;
      options.listen = {"127.0.0.1:0"};
      auto started = server::NativeServer::Start(viewed_.back().get(), &clock_, options);
      FARLEAF_CHECK(started.ok(), started.status());
      servers_.push_back(std::move(*started));
    }
  }
  std::unique_ptr<client::Session> Connect(size_t server) {
    auto session =
        client::Session::Connect(servers_[server % 2]->urls()[0], {.deadline_ms = 60'000});
    FARLEAF_CHECK(session.ok(), session.status());
    return std::move(*session);
  }
  void set_view(uint32_t view) {
    for (const auto& host : viewed_) host->set_view(view);
  }

 private:
  MonotonicClock clock_;
  PoolHosts hosts_;
  std::vector<std::unique_ptr<RuledHost>> viewed_;
  std::vector<std::unique_ptr<server::NativeServer>> servers_;
};

/// What a thread has started and been answered. Numbers and texts share the keys: an add may find a text.
class RecordingSession {
 public:
  RecordingSession(std::unique_ptr<client::Session> session, std::string name, uint64_t seed,
                   HistoryClock* clock)
      : session_(std::move(session)),
        tree_(*session_->OpenTree("t")),
        name_(std::move(name)),
        random_(seed),
        clock_(clock) {}

  void Run(uint64_t operations, uint64_t keys) {
    for (uint64_t i = 0; i < operations; ++i) {
      Start("key" + std::to_string(random_.Below(keys)), i);
      while (session_->pending() > 5) session_->Poll(1'000);
    }
    while (session_->pending() > 0) session_->Poll(1'000);
  }
  std::vector<Operation> operations() const { return {operations_.begin(), operations_.end()}; }
  uint64_t failures() const { return failures_; }

 private:
  Operation* Begin(OpKind kind, const std::string& key, std::string argument) {
    Operation& record = operations_.emplace_back();
    record.kind = kind;
    record.key = key;
    record.argument = std::move(argument);
    record.invoked = clock_->Tick();
    return &record;
  }
  void End(Operation* record, const Status& status) {
    record->returned = clock_->Tick();
    if (status.ok()) return;
    record->outcome = Outcome::kFailed;
    // What the server says of a text, or of a counter that is not there, is an answer.
    failures_ +=
        status.code() != StatusCode::kInvalidArgument && status.code() != StatusCode::kNotFound;
  }

  void Start(const std::string& key, uint64_t i) {
    // Mostly one that somebody wrote lately.
    const std::string value = name_ + std::to_string(i);
    switch (random_.Below(8)) {
      case 0:
      case 1: {
        Operation* const record = Begin(OpKind::kGet, key, "");
        tree_.GetAsync(key, [this, record](Result<client::Value> found) {
          if (found.ok()) record->value = seen_ = *found;
          End(record, found.status());
        });
        return;
      }
      case 2: {
        Operation* const record = Begin(OpKind::kInsert, key, client::CounterValue(0));
        tree_.InsertAsync(key, record->argument, [this, record](Result<bool> stored) {
          record->existed = stored.ok() && !*stored;
          End(record, stored.status());
        });
        return;
      }
      case 3: {
        Operation* const record = Begin(OpKind::kDelete, key, "");
        tree_.DeleteAsync(key, [this, record](Result<bool> existed) {
          record->existed = existed.ok() && *existed;
          End(record, existed.status());
        });
        return;
      }
      case 4:
      case 5:
        return StartAdd(key, 1 + static_cast<int64_t>(random_.Below(3)));
      default:
        StartCompareAndSet(key, seen_.value_or("none"), value);
    }
  }
  void StartAdd(const std::string& key, int64_t delta) {
    Operation* const record = Begin(OpKind::kModify, key, "");
    tree_.AddAsync(key, delta, std::nullopt, [this, record, delta](Result<int64_t> sum) {
      if (sum.ok()) {
        record->value = client::CounterValue(*sum - delta);
        record->argument_after = seen_ = client::CounterValue(*sum);
      }
      End(record, sum.status());
    });
  }
  void StartCompareAndSet(const std::string& key, const std::string& expected,
                          const std::string& value) {
    Operation* const record = Begin(OpKind::kModify, key, "");
    tree_.CompareAndSetAsync(key, expected, value,
                             [this, record, expected, value](Result<CompareAndSetResult> result) {
                               if (result.ok() && result->outcome == ConditionOutcome::kDone) {
                                 record->value = expected;
                                 record->argument_after = seen_ = value;
                               } else if (result.ok()) {
                                 record->value = record->argument_after = result->current;
                                 if (result->current) seen_ = result->current;
                               }
                               End(record, result.status());
                             });
  }

  std::unique_ptr<client::Session> session_;
  client::SessionTree tree_;
  const std::string name_;
  Random random_;
  HistoryClock* const clock_;
  std::deque<Operation> operations_;  // stay where they are
  std::optional<std::string> seen_;
  uint64_t failures_ = 0;
};

void RecordUnderChangingViews(uint64_t seed, uint64_t operations, uint64_t keys) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  TwoServers servers(seed);
  ASSERT_TRUE(servers.Connect(0)->CreateTree({.name = "t"}).ok());
  HistoryClock clock;
  std::vector<std::unique_ptr<RecordingSession>> sessions;
  for (uint64_t i = 0; i < 4; ++i) {
    sessions.push_back(std::make_unique<RecordingSession>(
        servers.Connect(i), std::string(1, static_cast<char>('A' + i)), seed * 100 + i, &clock));
  }
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (uint32_t view = 2; !stop; ++view) {
      servers.set_view(view);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::thread> threads;
  for (auto& session : sessions) {
    threads.emplace_back([&] { session->Run(operations, keys); });
  }
  for (auto& thread : threads) thread.join();
  stop = true;
  changer.join();
  History history;
  for (auto& session : sessions) {
    EXPECT_EQ(session->failures(), 0u);
    for (Operation& each : session->operations()) history.operations.push_back(std::move(each));
  }
  EXPECT_EQ(history.operations.size(), sessions.size() * operations);
  const Verdict order = CheckLinearizable(history);
  EXPECT_TRUE(order.ok) << order.why;
}

TEST(NativeHistoryTest, ReadModifyWritesUnderChangingViewsAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 12, .large = 100};
  for (uint64_t seed = 1; seed <= seeds; ++seed) RecordUnderChangingViews(seed, 400, 40);
}

TEST(NativeHistoryTest, HotKeysUnderChangingViewsAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 12, .large = 100};
  for (uint64_t seed = 1; seed <= seeds; ++seed) RecordUnderChangingViews(seed, 150, 3);
}

}  // namespace
}  // namespace farleaf::test
