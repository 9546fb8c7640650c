// memcached's protocol without sockets: what it answers, however the bytes come; of one server over a map, and of two
// compute servers on one pool, of which now the one is asked, now the other.
#include <gtest/gtest.h>

#include "server/records/string_rules.h"
#include "test/support/memcached_peer.h"
#include "test/support/memcached_table.h"
#include "test/support/record_members.h"

namespace farleaf::test {
namespace {

using MemcachedPeers = MemberPeers<MemcachedPeer, server::memcached::Limits>;

struct MemcachedProtocolTest : RecordMembersTest {
  size_t asked = 0;

  /// A stream to a connection of its own, which finds no keys: each to the other member than the one before.
  std::string Ask(std::string_view stream, size_t piece_bytes = SIZE_MAX,
                  server::memcached::Limits limits = {}) {
    const std::string answers = Connect(limits)->Exchange(stream, piece_bytes);
    Clear();
    return answers;
  }
  std::unique_ptr<MemcachedPeer> Connect(server::memcached::Limits limits = {}) {
    const size_t i = asked++;
    return std::make_unique<MemcachedPeer>(members.worker(i), limits, members.tree(i));
  }
  void Clear() { ASSERT_EQ(Connect()->Ask("flush_all\r\n"), "OK\r\n"); }
};
INSTANTIATE_TEST_SUITE_P(Members, MemcachedProtocolTest, kAllRecordMembers, RecordMembersName);

/// Over a map, of which a test sees, fails and counts each operation.
struct MemcachedPeerTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
};

TEST_P(MemcachedProtocolTest, EveryRowOfTheTables) {
  for (size_t first = 0; first < members.count(); ++first) {
    for (const auto& table : {ClassicTable(), MetaTable(), OwnTable()}) {
      MemcachedPeers peers(&members, {}, first);
      for (const auto& [request, answer] : table) {
        const std::string answered = peers.Ask(request);
        EXPECT_TRUE(Matches(answer, answered)) << request << answered;
      }
      Clear();
    }
  }
}

TEST_F(MemcachedPeerTest, AKeyHasNoSpaceAndNoControlCharacterAtAnyPlace) {
  using server::memcached::IsKey;
  for (size_t bytes = 1; bytes <= 20; ++bytes) {
    for (size_t at = 0; at < bytes; ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string key(bytes, '!');
        key[at] = static_cast<char>(c);
        EXPECT_EQ(IsKey(key), c > ' ' && c != 0x7f) << bytes << ' ' << at << ' ' << c;
      }
    }
  }
  EXPECT_FALSE(IsKey(""));
  EXPECT_TRUE(IsKey(std::string(250, '\xff')));
  EXPECT_FALSE(IsKey(std::string(251, 'a')));
}

TEST_P(MemcachedProtocolTest, TheAnswersAreTheSameHoweverTheBytesAreCut) {
  for (const auto& table : {ClassicTable(), MetaTable(), OwnTable()}) {
    std::string all;
    for (const auto& row : table) all += row.request;
    const std::string expected = Ask(all);
    for (const size_t bytes : {1, 2, 3, 5, 7, 64, 1000}) {
      EXPECT_EQ(Ask(all, bytes), expected) << bytes;
    }
  }
}

// Split in two at every byte: no place is special.
TEST_P(MemcachedProtocolTest, OneCutAtEachByteChangesNothing) {
  for (const std::string stream : {"set a 1 0 4\r\nab\r\n\r\nget a b\r\nms b 2 c\r\nxy\r\nmg b "
                                   "v\r\nincr a 1 noreply\r\nbad\r\nmn\r\n",
                                   "set a 0 0 9999999\r\n", "gets a\nget b\n\nversion\n"}) {
    const std::string expected = Ask(stream);
    for (size_t cut = 0; cut <= stream.size(); ++cut) {
      const auto peer = Connect();
      std::string_view first = std::string_view(stream).substr(0, cut);
      std::string_view second = std::string_view(stream).substr(cut);
      while (peer->Send(&first, SIZE_MAX)) peer->Receive(SIZE_MAX);
      while (peer->Send(&second, SIZE_MAX)) peer->Receive(SIZE_MAX);
      peer->End();
      EXPECT_EQ(peer->received(), expected) << cut;
      Clear();
    }
  }
}

TEST_P(MemcachedProtocolTest, ValueThatIsTooLargeIsSkippedAndItsKeyIsGone) {
  const server::memcached::Limits limits{.value_bytes_max = 100};
  const std::string large(101, 'x'), fits(100, 'y');
  const std::string stream = "set a 0 0 1\r\n1\r\nset a 0 0 101\r\n" + large + "\r\nget a\r\n" +
                             "add b 0 0 101\r\n" + large + "\r\nset b 0 0 100\r\n" + fits +
                             "\r\nappend b 0 0 1\r\nz\r\nms b 101\r\n" + large + "\r\nmg b\r\n";
  for (const size_t bytes : {size_t{1}, size_t{50}, SIZE_MAX}) {
    EXPECT_EQ(Ask(stream, bytes, limits),
              "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n"
              "SERVER_ERROR object too large for cache\r\nSTORED\r\n"
              "SERVER_ERROR object too large for cache\r\n"
              "SERVER_ERROR object too large for cache\r\nEN\r\n");
  }
}

TEST_P(MemcachedProtocolTest, BinaryProtocolAndLongLinesAreToldAndCutOff) {
  for (const size_t bytes : {size_t{1}, SIZE_MAX}) {
    const auto binary = Connect();
    EXPECT_EQ(binary->Exchange(std::string("mn\r\n\x80\x0a\0\0\0\0mn\r\n", 14), bytes),
              "MN\r\nCLIENT_ERROR the binary protocol is not spoken here; use the text or meta "
              "protocol\r\n");
    EXPECT_FALSE(binary->connection().failure().ok());
    const auto endless = Connect({.line_bytes_max = 3'000});
    EXPECT_EQ(endless->Exchange("mn\r\nget " + std::string(4'000, 'k'), bytes),
              "MN\r\nCLIENT_ERROR line too long\r\n");
    EXPECT_FALSE(endless->connection().failure().ok());
  }
}

TEST_P(MemcachedProtocolTest, QuitEndsTheConnectionBehindTheAnswersBeforeIt) {
  EXPECT_EQ(Ask("mn\r\nquit\r\nmn\r\n"), "MN\r\n");
}

// The client does not read: neither output nor input grows beyond what the limits say.
TEST_P(MemcachedProtocolTest, SlowReaderHoldsUpOnlyItself) {
  constexpr size_t kOutMax = 10'000, kValue = 1'000, kKeys = 500;
  const auto writer = Connect(), peer = Connect({.out_bytes_max = kOutMax});
  std::string stream, get = "get";
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string key = "k" + std::to_string(i);
    stream += "set " + key + " 0 0 " + std::to_string(kValue) + " noreply\r\n" +
              std::string(kValue, 'v') + "\r\n";
    get += " " + key;
  }
  EXPECT_EQ(writer->Ask(stream), "");
  get += "\r\n";
  std::string_view rest = get;
  ASSERT_TRUE(peer->Send(&rest, SIZE_MAX));
  size_t largest = 0, turns = 0;
  while (!peer->connection().output().empty()) {
    largest = std::max(largest, peer->connection().output().size());
    peer->Receive(kOutMax / 3);
    ++turns;
  }
  // One batch of 64 keys is taken before their size is known.
  EXPECT_LE(largest, kOutMax + 64 * (kValue + 50));
  EXPECT_GT(turns, kKeys * kValue / kOutMax);
  EXPECT_TRUE(peer->received().ends_with("\r\nEND\r\n"));
  EXPECT_GT(peer->received().size(), kKeys * kValue);
}

TEST_P(MemcachedProtocolTest, AnAbandonedSlowReaderLeavesNothingRunning) {
  const auto peer = Connect({.out_bytes_max = 100});
  std::string stream = "set k 0 0 1000 noreply\r\n" + std::string(1000, 'v') + "\r\nget";
  for (int i = 0; i < 300; ++i) stream += " k";
  stream += "\r\n";
  EXPECT_EQ(peer->AbandonBehind(stream), 1u);
  EXPECT_EQ(peer->connection().in_flight(), 0u);
  EXPECT_TRUE(peer->connection().finished());
}

TEST_P(MemcachedProtocolTest, ExpiryIsKeptToTheMillisecondAndTheSpaceComesBack) {
  MemcachedPeers peers(&members, {});
  const auto ask = [&](std::string_view request) { return peers.Ask(request); };
  const auto advance_ms = [&](uint64_t ms) { peers.AdvanceNs(ms * kNsPerMs); };
  EXPECT_EQ(ask("set a 0 10 1\r\nx\r\nset b 0 10 1\r\ny\r\nset c 0 0 1\r\nz\r\n"),
            "STORED\r\nSTORED\r\nSTORED\r\n");
  advance_ms(9'999);
  EXPECT_EQ(ask("mg a t\r\nget a\r\ntouch b 20\r\n"),
            "HD t0\r\nVALUE a 0 1\r\nx\r\nEND\r\nTOUCHED\r\n");
  advance_ms(1);
  EXPECT_EQ(members.Records(1).size(), 3u);
  EXPECT_EQ(ask("get a b c\r\n"), "VALUE b 0 1\r\ny\r\nVALUE c 0 1\r\nz\r\nEND\r\n");
  EXPECT_EQ(members.Records(1).size(), 2u) << "whoever meets it deletes it";
  advance_ms(20'000);
  EXPECT_EQ(ask("incr b 1\r\nappend b 0 0 1\r\nx\r\nreplace b 0 0 1\r\nx\r\ntouch b 5\r\nmg b\r\n"),
            "NOT_FOUND\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_FOUND\r\nEN\r\n");
  EXPECT_EQ(members.Records(1).size(), 1u);
  // Seconds since 1970, beyond 30 days.
  const uint64_t now_s = peers.Next().wall().NowNs() / kNsPerSecond;
  EXPECT_EQ(ask("set d 0 " + std::to_string(now_s + 100) + " 1\r\nx\r\nmg d t\r\n"),
            "STORED\r\nHD t100\r\n");
}

TEST_P(MemcachedProtocolTest, CasGrowsWithEveryChangeAlsoBehindADelete) {
  MemcachedPeers peers(&members, {});
  uint64_t last = 0;
  const auto cas_after = [&](const std::string& request) {
    peers.Ask(request);
    const std::string answer = peers.Ask("mg a c\r\n");
    return std::stoull(answer.substr(answer.rfind("HD c") + 4));
  };
  for (const char* change :
       {"set a 0 0 1\r\n1\r\n", "set a 0 0 1\r\n1\r\n", "incr a 1\r\n", "append a 0 0 1\r\n1\r\n",
        "prepend a 0 0 1\r\n1\r\n", "ma a\r\n", "md a I\r\n", "ms a 1\r\n1\r\n"}) {
    const uint64_t cas = cas_after(change);
    EXPECT_GT(cas, last) << change;
    last = cas;
  }
  EXPECT_EQ(cas_after("touch a 100\r\n"), last) << "the data is the same";
  peers.AdvanceNs(1'000);
  EXPECT_GT(cas_after("delete a\r\nset a 0 0 1\r\n1\r\n"), last);
}

TEST_F(MemcachedPeerTest, RetrievalsThatFollowOneAnotherAreOneMultiGet) {
  MemcachedPeer peer(worker.get(), {});
  uint64_t calls = 0;
  std::string stream = "get a\r\ngets b c\r\nget d\r\nset a 0 0 1\r\nx\r\nget a\r\n";
  peer.index().set_before([&calls](dsm::OpContext&) -> dsm::Task<Status> {
    ++calls;
    co_return Status::Ok();
  });
  EXPECT_EQ(peer.Exchange(stream, SIZE_MAX),
            "END\r\nEND\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
  EXPECT_EQ(calls, 4u + 1 + 1) << "of the map, a key each";
}

TEST_F(MemcachedPeerTest, AFailureIsToldOnOneLineAndTheConnectionGoesOn) {
  MemcachedPeer peer(worker.get(), {});
  bool down = true;
  peer.index().set_before([&down](dsm::OpContext&) -> dsm::Task<Status> {
    co_return down ? Status::Unavailable("memory server 3\r\nlost") : Status::Ok();
  });
  const std::string lost = "SERVER_ERROR unavailable: memory server 3  lost\r\n";
  std::string_view rest =
      "get a b\r\nget c\r\nset a 0 0 1\r\nx\r\nset a 0 0 1 noreply\r\nx\r\nmg a q\r\n";
  while (peer.Send(&rest, SIZE_MAX)) peer.Receive(SIZE_MAX);
  EXPECT_EQ(peer.received(), lost + lost + lost + lost);
  down = false;
  rest = "get a\r\n";
  while (peer.Send(&rest, SIZE_MAX)) peer.Receive(SIZE_MAX);
  EXPECT_TRUE(peer.received().ends_with("lost\r\nEND\r\n"));
}

TEST_F(MemcachedPeerTest, WhatIsNoRecordIsToldAndNotTouched) {
  MemcachedPeer peer(worker.get(), {});
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  ASSERT_TRUE(worker->Run(peer.index().Put(op, "\x01z", "not a record")).ok());
  EXPECT_EQ(peer.Exchange("get z\r\nset z 0 0 1\r\nx\r\n", SIZE_MAX),
            "SERVER_ERROR corruption: a record of 12 bytes\r\n"
            "SERVER_ERROR corruption: a record of 12 bytes\r\n");
  EXPECT_EQ(peer.index().Content().at("\x01z"), "not a record");
}

TEST_F(MemcachedPeerTest, RecordsParseToWhatTheyWere) {
  using server::Record;
  Record record;
  record.stale = record.won = true;
  record.flags = 0x01020304;
  record.expiry_ms = 1ull << 41;
  record.cas = UINT64_MAX - 1;
  record.data = "da";
  std::string text;
  server::AppendRecord(record, "ta", &text);
  ASSERT_EQ(text.size(), server::kRecordHeaderBytes + 4);
  const auto parsed = server::ParseRecord(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->data, "data");
  EXPECT_EQ(parsed->flags, record.flags);
  EXPECT_EQ(parsed->expiry_ms, record.expiry_ms);
  EXPECT_EQ(parsed->cas, record.cas);
  EXPECT_TRUE(parsed->stale && parsed->won);
  for (size_t bytes = 0; bytes < server::kRecordHeaderBytes; ++bytes) {
    EXPECT_FALSE(server::ParseRecord(text.substr(0, bytes)).ok()) << bytes;
  }
  for (int type : {0, 4, 255}) {
    text[0] = static_cast<char>(type);
    EXPECT_FALSE(server::ParseRecord(text).ok()) << type;
  }
}

}  // namespace
}  // namespace farleaf::test
