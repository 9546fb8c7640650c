// memcached's protocol on one connection: what it answers, however the bytes come.
#include <gtest/gtest.h>

#include "server/records/string_rules.h"
#include "test/support/memcached_peer.h"
#include "test/support/memcached_table.h"

namespace farleaf::test {
namespace {

struct MemcachedProtocolTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());

  std::string Ask(std::string_view stream, size_t piece_bytes = SIZE_MAX,
                  server::memcached::Limits limits = {}) {
    MemcachedPeer peer(worker.get(), limits);
    return peer.Exchange(stream, piece_bytes);
  }
};

TEST_F(MemcachedProtocolTest, EveryRowOfTheTables) {
  for (const auto& table : {ClassicTable(), MetaTable(), OwnTable()}) {
    MemcachedPeer peer(worker.get(), {});
    for (const auto& [request, answer] : table) {
      std::string_view rest = request;
      const size_t before = peer.received().size();
      while (peer.Send(&rest, SIZE_MAX)) peer.Receive(SIZE_MAX);
      EXPECT_TRUE(Matches(answer, peer.received().substr(before)))
          << request << peer.received().substr(before);
    }
  }
}

TEST_F(MemcachedProtocolTest, AKeyHasNoSpaceAndNoControlCharacterAtAnyPlace) {
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

TEST_F(MemcachedProtocolTest, TheAnswersAreTheSameHoweverTheBytesAreCut) {
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
TEST_F(MemcachedProtocolTest, OneCutAtEachByteChangesNothing) {
  for (const std::string stream : {"set a 1 0 4\r\nab\r\n\r\nget a b\r\nms b 2 c\r\nxy\r\nmg b "
                                   "v\r\nincr a 1 noreply\r\nbad\r\nmn\r\n",
                                   "set a 0 0 9999999\r\n", "gets a\nget b\n\nversion\n"}) {
    const std::string expected = Ask(stream);
    for (size_t cut = 0; cut <= stream.size(); ++cut) {
      MemcachedPeer peer(worker.get(), {});
      std::string_view first = std::string_view(stream).substr(0, cut);
      std::string_view second = std::string_view(stream).substr(cut);
      while (peer.Send(&first, SIZE_MAX)) peer.Receive(SIZE_MAX);
      while (peer.Send(&second, SIZE_MAX)) peer.Receive(SIZE_MAX);
      peer.End();
      EXPECT_EQ(peer.received(), expected) << cut;
    }
  }
}

TEST_F(MemcachedProtocolTest, ValueThatIsTooLargeIsSkippedAndItsKeyIsGone) {
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

TEST_F(MemcachedProtocolTest, BinaryProtocolAndLongLinesAreToldAndCutOff) {
  for (const size_t bytes : {size_t{1}, SIZE_MAX}) {
    MemcachedPeer binary(worker.get(), {});
    EXPECT_EQ(binary.Exchange(std::string("mn\r\n\x80\x0a\0\0\0\0mn\r\n", 14), bytes),
              "MN\r\nCLIENT_ERROR the binary protocol is not spoken here; use the text or meta "
              "protocol\r\n");
    EXPECT_FALSE(binary.connection().failure().ok());
    MemcachedPeer endless(worker.get(), {.line_bytes_max = 3'000});
    EXPECT_EQ(endless.Exchange("mn\r\nget " + std::string(4'000, 'k'), bytes),
              "MN\r\nCLIENT_ERROR line too long\r\n");
    EXPECT_FALSE(endless.connection().failure().ok());
  }
}

TEST_F(MemcachedProtocolTest, QuitEndsTheConnectionBehindTheAnswersBeforeIt) {
  EXPECT_EQ(Ask("mn\r\nquit\r\nmn\r\n"), "MN\r\n");
}

// The client does not read: neither output nor input grows beyond what the limits say.
TEST_F(MemcachedProtocolTest, SlowReaderHoldsUpOnlyItself) {
  constexpr size_t kOutMax = 10'000, kValue = 1'000, kKeys = 500;
  MemcachedPeer peer(worker.get(), {.out_bytes_max = kOutMax});
  std::string stream, get = "get";
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string key = "k" + std::to_string(i);
    stream += "set " + key + " 0 0 " + std::to_string(kValue) + " noreply\r\n" +
              std::string(kValue, 'v') + "\r\n";
    get += " " + key;
  }
  std::string_view rest = stream;
  while (peer.Send(&rest, SIZE_MAX)) {
  }
  get += "\r\n";
  rest = get;
  ASSERT_TRUE(peer.Send(&rest, SIZE_MAX));
  size_t largest = 0, turns = 0;
  while (!peer.connection().output().empty()) {
    largest = std::max(largest, peer.connection().output().size());
    peer.Receive(kOutMax / 3);
    ++turns;
  }
  // One batch of 64 keys is taken before their size is known.
  EXPECT_LE(largest, kOutMax + 64 * (kValue + 50));
  EXPECT_GT(turns, kKeys * kValue / kOutMax);
  EXPECT_TRUE(peer.received().ends_with("\r\nEND\r\n"));
  EXPECT_GT(peer.received().size(), kKeys * kValue);
}

TEST_F(MemcachedProtocolTest, AnAbandonedSlowReaderLeavesNothingRunning) {
  MemcachedPeer peer(worker.get(), {.out_bytes_max = 100});
  std::string stream = "set k 0 0 1000 noreply\r\n" + std::string(1000, 'v') + "\r\nget";
  for (int i = 0; i < 300; ++i) stream += " k";
  stream += "\r\n";
  std::string_view rest = stream;
  peer.Send(&rest, SIZE_MAX);
  EXPECT_EQ(peer.connection().in_flight(), 1u);
  peer.connection().InputEnded();
  peer.connection().Abandon();
  peer.Receive(0);
  EXPECT_EQ(peer.connection().in_flight(), 0u);
  EXPECT_TRUE(peer.connection().finished());
}

TEST_F(MemcachedProtocolTest, ExpiryIsKeptToTheMillisecondAndTheSpaceComesBack) {
  MemcachedPeer peer(worker.get(), {});
  const auto ask = [&](std::string_view request) {
    const size_t before = peer.received().size();
    while (peer.Send(&request, SIZE_MAX)) peer.Receive(SIZE_MAX);
    return peer.received().substr(before);
  };
  const auto advance_ms = [&](uint64_t ms) { peer.wall().AdvanceNs(ms * kNsPerMs); };
  EXPECT_EQ(ask("set a 0 10 1\r\nx\r\nset b 0 10 1\r\ny\r\nset c 0 0 1\r\nz\r\n"),
            "STORED\r\nSTORED\r\nSTORED\r\n");
  advance_ms(9'999);
  EXPECT_EQ(ask("mg a t\r\nget a\r\ntouch b 20\r\n"),
            "HD t0\r\nVALUE a 0 1\r\nx\r\nEND\r\nTOUCHED\r\n");
  advance_ms(1);
  EXPECT_EQ(peer.index().size(), 3u);
  EXPECT_EQ(ask("get a b c\r\n"), "VALUE b 0 1\r\ny\r\nVALUE c 0 1\r\nz\r\nEND\r\n");
  EXPECT_EQ(peer.index().size(), 2u) << "whoever meets it deletes it";
  advance_ms(20'000);
  EXPECT_EQ(ask("incr b 1\r\nappend b 0 0 1\r\nx\r\nreplace b 0 0 1\r\nx\r\ntouch b 5\r\nmg b\r\n"),
            "NOT_FOUND\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_FOUND\r\nEN\r\n");
  EXPECT_EQ(peer.index().size(), 1u);
  // Seconds since 1970, beyond 30 days.
  const uint64_t now_s = peer.wall().NowNs() / kNsPerSecond;
  EXPECT_EQ(ask("set d 0 " + std::to_string(now_s + 100) + " 1\r\nx\r\nmg d t\r\n"),
            "STORED\r\nHD t100\r\n");
}

TEST_F(MemcachedProtocolTest, CasGrowsWithEveryChangeAlsoBehindADelete) {
  MemcachedPeer peer(worker.get(), {});
  uint64_t last = 0;
  const auto cas_after = [&](std::string request) {
    std::string_view rest = request += "mg a c\r\n";
    const size_t before = peer.received().size();
    while (peer.Send(&rest, SIZE_MAX)) peer.Receive(SIZE_MAX);
    const std::string answer = peer.received().substr(before);
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
  peer.wall().AdvanceNs(1'000);
  EXPECT_GT(cas_after("delete a\r\nset a 0 0 1\r\n1\r\n"), last);
}

TEST_F(MemcachedProtocolTest, RetrievalsThatFollowOneAnotherAreOneMultiGet) {
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

TEST_F(MemcachedProtocolTest, AFailureIsToldOnOneLineAndTheConnectionGoesOn) {
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

TEST_F(MemcachedProtocolTest, WhatIsNoRecordIsToldAndNotTouched) {
  MemcachedPeer peer(worker.get(), {});
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  ASSERT_TRUE(worker->Run(peer.index().Put(op, "\x01z", "not a record")).ok());
  EXPECT_EQ(peer.Exchange("get z\r\nset z 0 0 1\r\nx\r\n", SIZE_MAX),
            "SERVER_ERROR corruption: a record of 12 bytes\r\n"
            "SERVER_ERROR corruption: a record of 12 bytes\r\n");
  EXPECT_EQ(peer.index().Content().at("\x01z"), "not a record");
}

TEST_F(MemcachedProtocolTest, RecordsParseToWhatTheyWere) {
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
