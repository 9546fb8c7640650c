// Clients of Redis' and of memcached's protocol, several requests on their way at a time, on a few keys that they
// share at two compute servers of one pool: what they were answered must be linearizable per key, whoever asked where
// and in which protocol.
//
// What answers leave of the checkers' operations: memcached's cas number stands for the value that it came with, which
// nobody else writes; whoever is told that it has another, or that the value is no number, saw something else there.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/linearizability.h"
#include "test/support/record_dialect.h"
#include "test/support/record_servers.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using Protocol = RecordDialect::Protocol;

enum class Command : uint8_t {
  kGet,
  kSet,
  kAdd,      ///< if there is nothing
  kReplace,  ///< if there is something
  kDelete,
  kTake,       ///< Redis': a delete that tells what was there
  kExchange,   ///< Redis': a set that tells it; memcached's: if there is what this client saw last
  kIncrement,  ///< by 1; of nothing, Redis makes 1
};
constexpr uint64_t kCommands = 8;
using Counts = std::array<uint64_t, kCommands>;

/// One answer of either protocol.
struct Answer {
  std::string line;  ///< without its end; with a value, what is in front of that
  std::optional<std::string> value;
};

/// Takes it off the front of `answers`; an empty line where there is none.
Answer TakeAnswer(Protocol protocol, std::string* answers) {
  const auto take = [answers](size_t bytes) {
    std::string text = answers->substr(0, bytes);
    answers->erase(0, bytes + 2);
    return text;
  };
  const auto line = [&] { return take(std::min(answers->find("\r\n"), answers->size())); };
  Answer answer{line(), std::nullopt};
  const bool redis = protocol == Protocol::kRedis;
  if (redis ? answer.line.starts_with('$') && answer.line != "$-1"
            : answer.line.starts_with("VALUE ")) {
    // "$BYTES", or "VALUE KEY FLAGS BYTES CAS".
    size_t begin = 1;
    for (int word = 0; !redis && word < 3; ++word) begin = answer.line.find(' ', begin) + 1;
    answer.value = take(std::stoull(answer.line.substr(begin)));
    if (!redis) {
      EXPECT_EQ(line(), "END");
    }
  }
  return answer;
}

/// A client, what it asks, and what it was answered.
class RecordingPeer {
 public:
  RecordingPeer(const std::string& url, Protocol protocol, uint64_t number, uint64_t seed,
                HistoryClock* clock)
      : dialect_{protocol}, client_(url), number_(number), random_(seed), clock_(clock) {}

  void Run(uint64_t operations, uint64_t keys) {
    while (asked_ < operations) {
      std::vector<Asked> together;
      std::string requests;
      const uint64_t invoked = clock_->Tick();
      for (uint64_t i = 0, count = 1 + random_.Below(kTogetherMax); i < count; ++i) {
        together.push_back(Next("key" + std::to_string(random_.Below(keys))));
        requests += together.back().request;
      }
      std::string answers = dialect_.Ask(client_, requests);
      const uint64_t returned = clock_->Tick();
      for (Asked& each : together) {
        each.record.invoked = invoked;
        each.record.returned = returned;
        const Answer answer = TakeAnswer(dialect_.protocol, &answers);
        if (dialect_.redis()) {
          JudgeRedis(answer, &each);
        } else {
          JudgeMemcached(answer, &each);
        }
        history.operations.push_back(std::move(each.record));
      }
      EXPECT_EQ(answers, "");
    }
  }
  uint64_t count(Command command) const { return done_[static_cast<size_t>(command)]; }

  History history;

 private:
  static constexpr uint64_t kTogetherMax = 5;

  struct Asked {
    Command command;
    Operation record;
    std::string request, value,
        expected = "";  ///< what is written; of an exchange, instead of what
  };

  /// Never the same twice, but for numbers; some so large that they are kept out of line.
  std::string NewValue() {
    const uint64_t id = number_ * 1'000'000 + asked_;
    if (random_.OneIn(3)) return std::to_string(id * 10'000);
    std::string text = "v" + std::to_string(id) + ".";
    if (random_.OneIn(10)) text.resize(3'000, '.');
    return text;
  }
  Asked Next(const std::string& key) {
    Asked asked{static_cast<Command>(random_.Below(kCommands)), {}, "", NewValue()};
    asked.record.key = key;
    asked.record.argument = asked.value;
    ++asked_;
    asked.request = dialect_.redis() ? RedisRequest(asked, key) : MemcachedRequest(&asked, key);
    return asked;
  }

  static std::string RedisRequest(const Asked& asked, const std::string& key) {
    const std::string set = "SET " + key + " " + asked.value;
    switch (asked.command) {
      case Command::kGet:
        return "GET " + key + "\r\n";
      case Command::kSet:
        return set + "\r\n";
      case Command::kAdd:
        return "SETNX " + key + " " + asked.value + "\r\n";
      case Command::kReplace:
        return set + " XX\r\n";
      case Command::kDelete:
        return "DEL " + key + "\r\n";
      case Command::kTake:
        return "GETDEL " + key + "\r\n";
      case Command::kExchange:
        return set + " GET\r\n";
      case Command::kIncrement:
        return "INCR " + key + "\r\n";
    }
    return "";
  }
  std::string MemcachedRequest(Asked* asked, const std::string& key) {
    const auto seen = seen_.find(key);
    if (asked->command == Command::kTake ||
        (asked->command == Command::kExchange && seen == seen_.end())) {
      asked->command = Command::kGet;
    }
    const std::string head = " " + key + " 0 0 " + std::to_string(asked->value.size()),
                      body = "\r\n" + asked->value + "\r\n";
    switch (asked->command) {
      case Command::kSet:
        return "set" + head + body;
      case Command::kAdd:
        return "add" + head + body;
      case Command::kReplace:
        return "replace" + head + body;
      case Command::kDelete:
        return "delete " + key + "\r\n";
      case Command::kExchange:
        asked->expected = seen->second.value;
        return "cas" + head + " " + seen->second.cas + body;
      case Command::kIncrement:
        return "incr " + key + " 1\r\n";
      default:
        return "gets " + key + "\r\n";
    }
  }

  // What the answers say, as operations that the checker knows.
  static void Saw(Operation* record, std::optional<std::string> value) {
    record->kind = OpKind::kGet;
    record->value = std::move(value);
  }
  static void Told(Operation* record, OpKind kind, bool existed) {
    record->kind = kind;
    record->existed = existed;
  }
  static void Changed(Operation* record, std::optional<std::string> from,
                      std::optional<std::string> to) {
    record->kind = OpKind::kModify;
    record->value = std::move(from);
    record->argument_after = std::move(to);
  }
  static void SawAnother(Operation* record, const std::string& than) {
    record->kind = OpKind::kDeleteIf;
    record->argument = than;
    record->existed = true;
  }
  /// One of the two that are due.
  void ExpectOneOf(const Answer& answer, const char* yes, const char* no) {
    EXPECT_TRUE(answer.line == yes || answer.line == no) << answer.line;
  }
  void Count(Command command) { ++done_[static_cast<size_t>(command)]; }

  void JudgeRedis(const Answer& answer, Asked* asked) {
    Operation* const record = &asked->record;
    const bool is_nil = answer.line == "$-1";
    if (answer.line != ":0" && !is_nil && !answer.line.starts_with('-')) Count(asked->command);
    switch (asked->command) {
      case Command::kGet:
        EXPECT_TRUE(answer.value || is_nil) << answer.line;
        return Saw(record, answer.value);
      case Command::kSet:
        EXPECT_EQ(answer.line, "+OK");
        record->kind = OpKind::kSet;
        return;
      case Command::kAdd:
        ExpectOneOf(answer, ":0", ":1");
        return Told(record, OpKind::kInsert, answer.line == ":0");
      case Command::kReplace:
        ExpectOneOf(answer, "+OK", "$-1");
        return Told(record, OpKind::kUpdate, !is_nil);
      case Command::kDelete:
        ExpectOneOf(answer, ":0", ":1");
        return Told(record, OpKind::kDelete, answer.line == ":1");
      case Command::kTake:
        EXPECT_TRUE(answer.value || is_nil) << answer.line;
        return Changed(record, answer.value, std::nullopt);
      case Command::kExchange:
        EXPECT_TRUE(answer.value || is_nil) << answer.line;
        return Changed(record, answer.value, asked->value);
      case Command::kIncrement: {
        if (answer.line == "-ERR value is not an integer or out of range")
          return SawAnother(record, "");
        EXPECT_TRUE(answer.line.starts_with(':')) << answer.line;
        const std::string sum = answer.line.substr(1);
        const uint64_t before = std::stoull(sum) - 1;  // nobody writes 0
        return Changed(record, before == 0 ? std::nullopt : std::optional(std::to_string(before)),
                       sum);
      }
    }
  }
  void JudgeMemcached(const Answer& answer, Asked* asked) {
    Operation* const record = &asked->record;
    const bool stored = answer.line == "STORED", is_absent = answer.line == "NOT_FOUND";
    if (stored || answer.value || answer.line == "DELETED") Count(asked->command);
    switch (asked->command) {
      case Command::kSet:
        EXPECT_TRUE(stored) << answer.line;
        record->kind = OpKind::kSet;
        return;
      case Command::kAdd:
        ExpectOneOf(answer, "STORED", "NOT_STORED");
        return Told(record, OpKind::kInsert, !stored);
      case Command::kReplace:
        ExpectOneOf(answer, "STORED", "NOT_STORED");
        return Told(record, OpKind::kUpdate, stored);
      case Command::kDelete:
        ExpectOneOf(answer, "DELETED", "NOT_FOUND");
        return Told(record, OpKind::kDelete, !is_absent);
      case Command::kExchange:
        if (stored) return Changed(record, asked->expected, asked->value);
        ExpectOneOf(answer, "EXISTS", "NOT_FOUND");
        if (is_absent) return Saw(record, std::nullopt);
        return SawAnother(record, asked->expected);
      case Command::kIncrement: {
        if (is_absent) return Saw(record, std::nullopt);
        if (answer.line == "CLIENT_ERROR cannot increment or decrement non-numeric value")
          return SawAnother(record, "");
        const uint64_t sum = std::strtoull(answer.line.c_str(), nullptr, 10);
        EXPECT_GT(sum, 1u) << answer.line;
        Count(Command::kIncrement);
        return Changed(record, std::to_string(sum - 1), std::to_string(sum));
      }
      default:
        EXPECT_TRUE(answer.value || answer.line == "END") << answer.line;
        if (answer.value && answer.value->starts_with('v'))
          seen_[record->key] = {*answer.value, answer.line.substr(answer.line.rfind(' ') + 1)};
        return Saw(record, answer.value);
    }
  }

  struct Seen {
    std::string value, cas;
  };
  const RecordDialect dialect_;
  TextClient client_;
  const uint64_t number_;
  Random random_;
  HistoryClock* const clock_;
  uint64_t asked_ = 0;
  Counts done_{};
  std::map<std::string, Seen> seen_;
};

struct Load {
  /// Which protocols: the i-th client has the i-th, and so on again.
  std::vector<Protocol> protocols = {Protocol::kRedis, Protocol::kMemcached};
  uint64_t clients = 6, operations = 150, keys = 4;
  uint64_t seed = 1;
};

/// Adds to `done` how often each command did something.
void RecordLoad(const Load& load, Counts* done) {
  SCOPED_TRACE("seed " + std::to_string(load.seed));
  server::NativeServerOptions options;
  const server::WallClock
      wall;  // one that goes on: of a key that was deleted, no cas number comes again
  options.wall_clock = &wall;
  // Every other time verbs suspend, and end in any order.
  TwoComputeServers servers(options, load.seed % 2 == 0 ? load.seed : 0);
  HistoryClock clock;
  std::vector<std::unique_ptr<RecordingPeer>> peers;
  for (uint64_t i = 0; i < load.clients; ++i) {
    // Of each protocol there are some at both servers.
    const size_t kinds = load.protocols.size(), server = i / kinds;
    const Protocol protocol = load.protocols[i % kinds];
    peers.push_back(std::make_unique<RecordingPeer>(
        protocol == Protocol::kRedis ? servers.redis_url(server) : servers.memcached_url(server),
        protocol, i + 1, load.seed * 100 + i, &clock));
  }
  std::vector<std::thread> threads;
  for (auto& peer : peers) {
    threads.emplace_back([&] { peer->Run(load.operations, load.keys); });
  }
  for (auto& thread : threads) thread.join();
  History history;
  for (auto& peer : peers) {
    for (size_t i = 0; i < kCommands; ++i) (*done)[i] += peer->count(static_cast<Command>(i));
    history.Add(std::move(peer->history));
  }
  EXPECT_GE(history.operations.size(), load.clients * load.operations);
  const Verdict order = CheckLinearizable(history);
  EXPECT_TRUE(order.ok) << order.why;
}

/// Some seeds, and more until each command of the protocols has done something: whether what a client saw last is still there
/// when it exchanges it is up to the threads.
void RunSeeds(Load load) {
  const uint64_t seeds = Amount{.small = 2, .usual = 8, .large = 60};
  constexpr uint64_t kMoreSeedsMax = 100;
  const bool all_memcached = load.protocols == std::vector{Protocol::kMemcached};
  Counts done{};
  const auto idle = [&]() -> std::optional<size_t> {
    for (size_t i = 0; i < kCommands; ++i) {
      if (all_memcached && static_cast<Command>(i) == Command::kTake) continue;
      if (done[i] == 0) return i;
    }
    return std::nullopt;
  };
  for (load.seed = 1; load.seed <= seeds || idle(); ++load.seed) {
    ASSERT_LE(load.seed, seeds + kMoreSeedsMax) << "command " << *idle() << " never did anything";
    RecordLoad(load, &done);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RecordHistoryTest, HotKeysOfRedisAreLinearizable) {
  RunSeeds({.protocols = {Protocol::kRedis}});
}

TEST(RecordHistoryTest, HotKeysOfMemcachedAreLinearizable) {
  RunSeeds({.protocols = {Protocol::kMemcached}});
}

TEST(RecordHistoryTest, HotKeysOfBothAreLinearizable) { RunSeeds({}); }

TEST(RecordHistoryTest, ManyKeysOfBothAreLinearizable) {
  RunSeeds({.operations = 400, .keys = 100});
}

}  // namespace
}  // namespace farleaf::test
