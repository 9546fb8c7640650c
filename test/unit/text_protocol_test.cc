// Requests and answers of Redis' protocol and memcached's, as bytes.
#include "benchmark/ycsb/text_protocol.h"

#include <gtest/gtest.h>

#include "dsm/base/random.h"

namespace farleaf::ycsb {
namespace {

using Outcome = Answer::Outcome;

struct Exchange {
  Request request;
  std::string sent, answered;
  Outcome outcome = Outcome::kDone;
  std::string value = {};
  uint64_t version = 0;
};

const std::string kBinary("\0\r\n x", 5);

std::vector<Exchange> RedisExchanges() {
  const std::string get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
  return {
      {{RequestKind::kProbe, {}, {}}, "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
      {{RequestKind::kLogin, {}, "p w"}, "*2\r\n$4\r\nAUTH\r\n$3\r\np w\r\n", "+OK\r\n"},
      {{RequestKind::kGet, "k", {}}, get, "$-1\r\n", Outcome::kMissing},
      {{RequestKind::kGet, "k", {}}, get, "$0\r\n\r\n"},
      {{RequestKind::kGet, "k", {}}, get, "$5\r\n" + kBinary + "\r\n", Outcome::kDone, kBinary},
      {{RequestKind::kInsert, kBinary, "v"},
       "*4\r\n$3\r\nSET\r\n$5\r\n" + kBinary + "\r\n$1\r\nv\r\n$2\r\nNX\r\n",
       "+OK\r\n"},
      {{RequestKind::kInsert, "k", ""},
       "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$2\r\nNX\r\n",
       "$-1\r\n",
       Outcome::kPresent},
      {{RequestKind::kReplace, "k", "v"},
       "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nXX\r\n",
       "+OK\r\n"},
      {{RequestKind::kReplace, "k", "v"},
       "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nXX\r\n",
       "$-1\r\n",
       Outcome::kMissing},
  };
}

std::vector<Exchange> MemcachedExchanges() {
  return {
      {{RequestKind::kProbe, {}, {}}, "version\r\n", "VERSION 1.6.18\r\n"},
      {{RequestKind::kLogin, {}, "p w"}, "set login 0 0 8\r\nycsb p w\r\n", "STORED\r\n"},
      {{RequestKind::kGet, "k", {}}, "get k\r\n", "END\r\n", Outcome::kMissing},
      {{RequestKind::kGet, "k", {}}, "get k\r\n", "VALUE k 0 0\r\n\r\nEND\r\n"},
      {{RequestKind::kGet, "k", {}},
       "get k\r\n",
       "VALUE k 0 5\r\n" + kBinary + "\r\nEND\r\n",
       Outcome::kDone,
       kBinary},
      {{RequestKind::kGetVersion, "k", {}},
       "gets k\r\n",
       "VALUE k 0 1 18446744073709551615\r\nv\r\nEND\r\n",
       Outcome::kDone,
       "v",
       UINT64_MAX},
      {{RequestKind::kGetVersion, "k", {}}, "gets k\r\n", "END\r\n", Outcome::kMissing},
      {{RequestKind::kInsert, "k", "v"}, "add k 0 0 1\r\nv\r\n", "STORED\r\n"},
      {{RequestKind::kInsert, "k", "v"}, "add k 0 0 1\r\nv\r\n", "NOT_STORED\r\n",
       Outcome::kPresent},
      {{RequestKind::kReplace, "k", "v"}, "replace k 0 0 1\r\nv\r\n", "STORED\r\n"},
      {{RequestKind::kReplace, "k", "v"}, "replace k 0 0 1\r\nv\r\n", "NOT_STORED\r\n",
       Outcome::kMissing},
      {{RequestKind::kReplaceVersion, "k", "v", 7}, "cas k 0 0 1 7\r\nv\r\n", "STORED\r\n"},
      {{RequestKind::kReplaceVersion, "k", "v", 7}, "cas k 0 0 1 7\r\nv\r\n", "EXISTS\r\n",
       Outcome::kDifferent},
      {{RequestKind::kReplaceVersion, "k", "v", 7}, "cas k 0 0 1 7\r\nv\r\n", "NOT_FOUND\r\n",
       Outcome::kMissing},
  };
}

struct TextProtocolTest : ::testing::TestWithParam<bool> {
  const bool redis = GetParam();
  const std::unique_ptr<TextProtocol> protocol =
      redis ? NewRedisProtocol() : NewMemcachedProtocol();
  const std::vector<Exchange> exchanges = redis ? RedisExchanges() : MemcachedExchanges();
};

TEST_P(TextProtocolTest, RequestsAreAppended) {
  std::string out, expected;
  for (const Exchange& exchange : exchanges) {
    protocol->AppendRequest(exchange.request, &out);
    expected += exchange.sent;
    EXPECT_EQ(out, expected);
  }
}

TEST_P(TextProtocolTest, AnswersAreReadWhenTheyAreWholeAndNotBefore) {
  for (const Exchange& exchange : exchanges) {
    const std::string& answered = exchange.answered;
    Answer answer;
    for (size_t bytes = 0; bytes < answered.size(); ++bytes) {
      const auto parsed =
          protocol->ParseAnswer(exchange.request, answered.substr(0, bytes), &answer);
      ASSERT_TRUE(parsed.ok()) << answered << bytes << parsed.status();
      EXPECT_EQ(*parsed, 0u) << answered << bytes;
    }
    const std::string more = answered + "$";
    const auto parsed = protocol->ParseAnswer(exchange.request, more, &answer);
    ASSERT_TRUE(parsed.ok()) << answered << parsed.status();
    EXPECT_EQ(*parsed, answered.size());
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.outcome, exchange.outcome) << answered;
    EXPECT_EQ(answer.value, exchange.value) << answered;
    EXPECT_EQ(answer.version, exchange.version) << answered;
  }
}

TEST_P(TextProtocolTest, AnswerToAnotherKindOfRequestIsCorruption) {
  const Request probe{.kind = RequestKind::kProbe}, get{.kind = RequestKind::kGet, .key = "k"},
      insert{.kind = RequestKind::kInsert, .key = "k", .value = "v"};
  const std::vector<std::pair<Request, std::string>> wrong =
      redis ? std::vector<std::pair<Request, std::string>>{{probe, "+OK\r\n"},
                                                           {probe, "$-1\r\n"},
                                                           {get, "+OK\r\n"},
                                                           {insert, "+PONG\r\n"},
                                                           {insert, "$1\r\nv\r\n"},
                                                           {insert, "$0\r\n"}}
            : std::vector<std::pair<Request, std::string>>{{probe, "STORED\r\n"},
                                                           {probe, "END\r\n"},
                                                           {get, "STORED\r\n"},
                                                           {get, "VALUE k 0 1 7\r\nv\r\nEND\r\n"},
                                                           {insert, "END\r\n"},
                                                           {insert, "EXISTS\r\n"},
                                                           {insert, "NOT_FOUND\r\n"}};
  for (const auto& [request, answered] : wrong) {
    Answer answer;
    const auto parsed = protocol->ParseAnswer(request, answered, &answer);
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption) << answered;
  }
}

TEST_P(TextProtocolTest, DamagedAnswersNeverReachBeyondTheirBytes) {
  const uint64_t seed = 20261125;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 20'000; ++round) {
    const Exchange& exchange = exchanges[random.Below(exchanges.size())];
    std::string bytes = exchange.answered;
    for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) {
      bytes[random.Below(bytes.size())] = "0123456789-+$: \r\nEVx"[random.Below(19)];
    }
    // In memory of its own, so that a sanitizer sees a read behind its end.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    Answer answer;
    const auto parsed =
        protocol->ParseAnswer(exchange.request, {exact.data(), exact.size()}, &answer);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption);
    } else {
      EXPECT_LE(*parsed, bytes.size()) << bytes;
      EXPECT_LE(answer.value.size(), bytes.size()) << bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, TextProtocolTest, ::testing::Bool(),
                         [](const auto& is_redis) {
                           return is_redis.param ? "Redis" : "Memcached";
                         });

}  // namespace
}  // namespace farleaf::ycsb
