// Redis' protocol on one connection over a map, of which a test sees, fails and holds back each operation.
#include <gtest/gtest.h>

#include <coroutine>
#include <utility>

#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

struct RedisPeerTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
};

TEST_F(RedisPeerTest, GetsThatFollowOneAnotherAreOneMultiGet) {
  RedisPeer peer(worker.get(), {});
  uint64_t calls = 0;
  peer.index().set_before([&calls](dsm::OpContext&) -> dsm::Task<Status> {
    ++calls;
    co_return Status::Ok();
  });
  const std::string stream = Request({"GET", "a"}) + Request({"GET", "b"}) + "GET c\r\nGET d\r\n" +
                             Request({"SET", "a", "x"}) + Request({"GET", "a"});
  EXPECT_EQ(peer.Exchange(stream, SIZE_MAX), "$-1\r\n$-1\r\n$-1\r\n$-1\r\n+OK\r\n$1\r\nx\r\n");
  EXPECT_EQ(calls, 6u);
}

TEST_F(RedisPeerTest, AFailureIsToldOnOneLineAndTheConnectionGoesOn) {
  RedisPeer peer(worker.get(), {});
  bool down = true;
  peer.index().set_before([&down](dsm::OpContext&) -> dsm::Task<Status> {
    co_return down ? Status::Unavailable("memory server 3\r\nlost") : Status::Ok();
  });
  const std::string lost = "-ERR unavailable: memory server 3  lost\r\n";
  EXPECT_EQ(
      peer.Ask(Request({"GET", "a"}) + Request({"GET", "b"}) + "SET a 1\r\nMGET a b\r\nDBSIZE\r\n"),
      lost + lost + lost + lost + lost);
  down = false;
  EXPECT_EQ(peer.Ask("GET a\r\n"), "$-1\r\n");
}

/// Holds operations of a tree back, and lets all that are held go on at once: round by round, as on a network whose
/// round trips all take the same time.
struct Gate {
  std::vector<std::coroutine_handle<>> held;

  struct Held {
    Gate* gate;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) { gate->held.push_back(h); }
    void await_resume() const noexcept {}
  };
  static dsm::Task<Status> Pass(dsm::OpContext&, Gate* gate) {
    co_await Held{gate};
    co_return Status::Ok();
  }
};

struct RedisRoundsTest : RedisPeerTest {
  Gate gate;
  std::unique_ptr<RedisPeer> peer =
      std::make_unique<RedisPeer>(worker.get(), server::redis::Limits());

  RedisRoundsTest() {
    peer->index().set_before([this](dsm::OpContext& op) { return Gate::Pass(op, &gate); });
  }
  /// How many operations on the tree ran one behind the other, each with all that ran beside it.
  int Rounds(std::string_view request, std::string_view answer) {
    const size_t before = peer->received().size();
    int rounds = 0;
    peer->Send(&request, SIZE_MAX);
    while (!gate.held.empty()) {
      ++rounds;
      for (const auto handle : std::exchange(gate.held, {})) worker->ResumeSoon(handle);
      peer->Receive(0);
    }
    peer->Receive(SIZE_MAX);
    EXPECT_EQ(std::string_view(peer->received()).substr(before), answer);
    return rounds;
  }
};

// On memory that answers at once, too: 16 side by side, and some of each in a turn.
TEST_F(RedisRoundsTest, ALongCommandLeavesTurnsToOthers) {
  peer->index().set_before({});
  std::vector<std::string> mset = {"MSET"};
  for (int i = 0; i < 5'000; ++i) {
    mset.push_back("k" + std::to_string(i));
    mset.push_back("x");
  }
  const std::string request = Request(mset);
  std::string_view rest = request;
  while (!rest.empty()) {
    const auto space = peer->connection().InputSpace();
    const size_t piece = std::min(rest.size(), space.size());
    std::copy_n(rest.data(), piece, reinterpret_cast<char*>(space.data()));
    rest.remove_prefix(piece);
    peer->connection().InputArrived(piece);
  }
  EXPECT_EQ(peer->connection().output(), "");
  int turns = 0;
  while (peer->connection().output().empty() && turns < 1'000) {
    worker->RunOnce(dsm::Worker::Idle::kReturn);
    ++turns;
  }
  EXPECT_GE(turns, 4);
  EXPECT_EQ(peer->connection().output(), "+OK\r\n");
}

// An operation is a read (one round trip) or a read-modify-write (two).
TEST_F(RedisRoundsTest, WhatTouchesManyKeysOrMembersDoesSoSideBySide) {
  std::string mset = "MSET", del = "DEL", hset = "HSET h", hdel = "HDEL h", zadd = "ZADD z",
              zrem = "ZREM z";
  for (int i = 0; i < 16; ++i) {
    const std::string n = std::to_string(i);
    mset += " key" + n + " x";
    del += " key" + n;
    hset += " field" + n + " x";
    hdel += " field" + n;
    zadd += " " + n + " member" + n;
    zrem += " member" + n;
  }
  const std::string end = "\r\n";
  EXPECT_EQ(Rounds(mset + end, "+OK\r\n"), 1);
  EXPECT_EQ(Rounds(del + end, ":16\r\n"), 1);
  EXPECT_EQ(Rounds(hset + end, ":16\r\n"), 3) << "head, hold, insert";
  EXPECT_EQ(Rounds(hset + end, ":0\r\n"), 2) << "head, write";
  EXPECT_EQ(Rounds(hdel + end, ":16\r\n"), 3) << "head, delete, release";
  EXPECT_EQ(Rounds(zadd + end, ":16\r\n"), 4) << "head, hold, claim, exchange";
  EXPECT_EQ(Rounds(zrem + end, ":16\r\n"), 4) << "head, delete, disclaim, release";
  // Named twice: in the order of the arguments.
  EXPECT_EQ(Rounds("MSET a 1 b 1 a 2\r\n", "+OK\r\n"), 3);
  EXPECT_EQ(Rounds("GET a\r\n", "$1\r\n2\r\n"), 1);
}

// The room of a long request is given back while a retrieval at its end waits, and a line was taken behind it.
TEST_F(RedisRoundsTest, ALineBehindRetrievalsAtTheEndOfALongRequestIsRun) {
  std::vector<std::string> mset = {"MSET"};
  for (int i = 0; i < 40'000; ++i) {
    mset.push_back("k" + std::to_string(100'000 + i));
    mset.push_back("x");
  }
  const std::string stream = Request(mset) + Request({"GET", "k100000"}) + "get k100001\r\n";
  std::string_view rest = stream;
  while (rest.size() > 60'000) ASSERT_TRUE(peer->Send(&rest, 50'000));
  Rounds(rest, "+OK\r\n$1\r\nx\r\n$1\r\nx\r\n");
  Rounds(Request({"GET", "k139999"}), "$1\r\nx\r\n");
}

}  // namespace
}  // namespace farleaf::test
