// Compute servers killed with SIGKILL at random moments while Redis' clients write through them: a SET that was
// acknowledged is there at the other server, one that was not may be, nobody at the other one waits for longer than
// a bound (kill_bounds.h), and the pool stays whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/fault/kill_bounds.h"
#include "test/support/process.h"
#include "test/support/record_dialect.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

/// A client that sets ever higher numbers under keys of its own, some at once, and remembers which were acknowledged. Its
/// keys lie between those of the others, so that they share leaves.
class SetLoad {
 public:
  static constexpr uint64_t kOwners = 3, kKeys = 300, kTogether = 6;

  explicit SetLoad(uint64_t owner) : owner_(owner) {}
  ~SetLoad() { Stop(); }

  /// Until it is stopped, or the server is lost.
  void Start(const std::string& url) {
    stop_ = false;
    running_ = true;
    thread_ = std::jthread([this, url] {
      test::TextClient client(url);
      while (!stop_ && SetEach(client)) {
      }
      running_ = false;
    });
  }
  void Stop() {
    stop_ = true;
    Join();
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  bool running() const { return running_; }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t longest_wait_ms() const { return longest_wait_ns_ / kNsPerMs; }
  /// What servers have answered that is no acknowledgement.
  const std::string& refusals() const { return refusals_; }

  // REQUIRES: it does not run.
  /// Each key has what was acknowledged, or what was sent behind it and has had no answer.
  void ExpectAllAt(const std::string& url) {
    test::TextClient client(url);
    for (uint64_t i = 0; i < kKeys; ++i) {
      const std::string found = dialect_.Ask(client, dialect_.Get(KeyOf(i)));
      EXPECT_TRUE(found == AnswerOf(i, keys_[i].acknowledged) ||
                  found == AnswerOf(i, keys_[i].sent))
          << KeyOf(i) << ": acknowledged " << keys_[i].acknowledged << ", sent " << keys_[i].sent
          << ", found " << found.substr(0, 40);
    }
  }
  void SetAllAt(const std::string& url) {
    test::TextClient client(url);
    EXPECT_TRUE(SetEach(client));
  }
  /// Of the keys, those of which it is not known whether the last SET has happened.
  uint64_t unknown() const {
    return static_cast<uint64_t>(std::count_if(
        keys_.begin(), keys_.end(), [](const Key& key) { return key.sent != key.acknowledged; }));
  }

 private:
  struct Key {
    uint64_t acknowledged = 0, sent = 0;  // 0: none
  };

  std::string KeyOf(uint64_t i) const {
    return "key" + std::to_string(100'000 + i * kOwners + owner_);
  }
  /// Some are so large that they are kept out of line.
  static std::string ValueOf(uint64_t i, uint64_t number) {
    std::string value = std::to_string(number);
    value.resize(i % 8 == 0 ? 3'000 : 60, '.');
    return value;
  }
  std::string AnswerOf(uint64_t i, uint64_t number) const {
    return number == 0 ? dialect_.absent() : dialect_.Found(KeyOf(i), ValueOf(i, number));
  }

  /// False: the server is lost.
  bool SetEach(test::TextClient& client) {
    ++number_;
    for (uint64_t first = 0; first < kKeys; first += kTogether) {
      if (!SetSome(client, first)) return false;
    }
    return true;
  }
  bool SetSome(test::TextClient& client, uint64_t first) {
    std::string requests;
    for (uint64_t i = first; i < first + kTogether; ++i) {
      requests += dialect_.Set(KeyOf(i), ValueOf(i, number_));
      keys_[i].sent = number_;
    }
    const uint64_t begin_ns = clock_.NowNs();
    std::string answers = dialect_.Ask(client, requests);
    longest_wait_ns_ = std::max(longest_wait_ns_, clock_.NowNs() - begin_ns);
    for (uint64_t i = first; i < first + kTogether; ++i) {
      if (!answers.starts_with(dialect_.stored())) {
        if (answers.starts_with('-')) refusals_ += answers;
        return false;
      }
      answers.erase(0, dialect_.stored().size());
      keys_[i].acknowledged = number_;
      ++acknowledged_;
    }
    return true;
  }

  const uint64_t owner_;
  const test::RecordDialect dialect_{test::RecordDialect::Protocol::kRedis};
  const MonotonicClock clock_;
  std::array<Key, kKeys> keys_;
  uint64_t number_ = 0, longest_wait_ns_ = 0;
  std::string refusals_;
  std::atomic<bool> stop_{false}, running_{false};
  std::atomic<uint64_t> acknowledged_{0};
  std::jthread thread_;
};

struct RedisKillTest : ::testing::TestWithParam<std::string> {
  ProcessCluster cluster{{.fabric = GetParam(), .chunk = "64KiB", .lease_ms = kLeaseMs}};

  void SetUp() override { cluster.StartMemoryServers(); }
  struct Server {
    ComputeServerProcess process;
    std::string redis_url;
  };
  Server StartServer() {
    const std::string redis = FreeAddress();
    return {cluster.StartComputeServer({"--redis-listen", redis}), "redis://" + redis};
  }
};

TEST_P(RedisKillTest, WhatWasAcknowledgedIsAtTheOtherServer) {
  const uint64_t rounds = test::Amount{.small = 1, .usual = 2, .large = 25};
  constexpr uint64_t kSeed = 20'262;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  const Server survivor = StartServer();
  SetLoad other(0);
  std::array<SetLoad, 2> killed{SetLoad(1), SetLoad(2)};
  const auto acknowledged = [&] { return killed[0].acknowledged() + killed[1].acknowledged(); };
  uint64_t unknown = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Server victim = StartServer();
    const std::string id = victim.process.Id();
    other.Start(survivor.redis_url);
    for (SetLoad& load : killed) load.Start(victim.redis_url);
    const uint64_t kill_at = acknowledged() + 200 + random.Below(4'000);
    while (killed[0].running() && acknowledged() < kill_at) std::this_thread::yield();
    EXPECT_TRUE(killed[0].running() && killed[1].running());
    victim.process.process->Signal(SIGKILL);
    ASSERT_EQ(cluster.WaitFor(*victim.process.process).code, 128 + SIGKILL);
    for (SetLoad& load : killed) load.Join();
    for (SetLoad& load : killed) {
      unknown += load.unknown();
      load.ExpectAllAt(survivor.redis_url);
      // To every leaf that the dead had locked, beside the other one.
      load.SetAllAt(survivor.redis_url);
      load.ExpectAllAt(survivor.redis_url);
    }
    EXPECT_TRUE(other.running()) << other.refusals();
    other.Stop();
    other.ExpectAllAt(survivor.redis_url);

    const Ended recovered = cluster.RecoverMember(id);
    ASSERT_EQ(recovered.code, 0) << recovered.output;
    const Ended check = cluster.Control({"check"});
    EXPECT_EQ(check.code, 0) << check.output;
  }
  uint64_t longest_ms = other.longest_wait_ms();
  for (const SetLoad& load : killed) longest_ms = std::max(longest_ms, load.longest_wait_ms());
  EXPECT_LE(longest_ms, kBoundMs);
  EXPECT_EQ(other.refusals() + killed[0].refusals() + killed[1].refusals(), "");
  std::printf("%s: %llu acknowledged through the dead, %llu unanswered, the longest wait %llu ms\n",
              GetParam().c_str(), static_cast<unsigned long long>(acknowledged()),
              static_cast<unsigned long long>(unknown),
              static_cast<unsigned long long>(longest_ms));
  survivor.process.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*survivor.process.process, kPatienceMs);
  EXPECT_EQ(ended.code, 0) << ended.output;
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Fabric, RedisKillTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& fabric) { return fabric.param; });

}  // namespace
}  // namespace farleaf
