// What servers of the native protocol do when their peers fail, lie, stall or flood.

#include <thread>

#include "dsm/base/random.h"
#include "test/support/native_peer.h"
#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

using client::Session;
using test::HoldUntilDeadline;
using test::HoldUntilReleased;
using test::KeyOf;
using test::NativePeer;

using NativeFaultTest = test::TwoOnOnePool;
/// Whose operations are held up, whose view changes, or whose trees have other ids behind a restart.
using NativeRuledFaultTest = test::TwoRuledOnOnePool;

// ---- Peers that do not keep to the protocol ----

TEST_F(NativeFaultTest, ClientOfAnotherVersionIsToldWhichToUse) {
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    NativePeer peer(tcp_url(i));
    peer.SendHello(protocol::kVersion + 1);
    const auto hello = peer.ReceiveHello();
    EXPECT_EQ(hello.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(hello.message,
              "this server speaks version 2 of the protocol, the client version 3; use a client of "
              "the server's release");
    EXPECT_EQ(peer.Receive(), std::nullopt);
  }
  ExpectServing();
}

TEST_F(NativeFaultTest, GarbageInPlaceOfAHelloIsCutOff) {
  StartServer();
  NativePeer http(tcp_url());
  http.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(http.ReceiveHello().message, "the peer does not speak Farleaf's native protocol");
  EXPECT_EQ(http.Receive(), std::nullopt);
  NativePeer wrong_magic(tcp_url(1));
  std::string frame;
  protocol::AppendClientHello({}, &frame);
  frame[4] = 'X';
  wrong_magic.Send(frame);
  EXPECT_EQ(wrong_magic.ReceiveHello().message,
            "the peer does not speak Farleaf's native protocol");
  EXPECT_EQ(wrong_magic.Receive(), std::nullopt);
  ExpectServing();
}

TEST_F(NativeFaultTest, RandomBytesAfterTheHelloNeverHarmTheServer) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  StartServer();
  for (size_t round = 0; round < 200; ++round) {
    NativePeer peer(unix_url(round));
    peer.SendHello();
    peer.ReceiveHello();
    std::string bytes(random.Below(300), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Next());
    if (bytes.size() >= 4 && random.OneIn(2)) {
      StoreLittle<uint32_t>(bytes.data(), static_cast<uint32_t>(bytes.size() - 4));
    }
    peer.Send(bytes);
    peer.EndSending();
    while (peer.Receive()) {
    }
  }
  ExpectServing();
}

TEST_F(NativeFaultTest, MalformedRequestIsAnsweredUnderItsIdAndThenTheEnd) {
  StartServer();
  NativePeer peer(tcp_url());
  peer.SendHello();
  peer.ReceiveHello();
  protocol::Request request;
  request.id = 77;
  std::string frame;
  protocol::AppendBatch(0, NativePeer::kView, request, &frame);
  frame.back() = '\x63';  // no opcode
  peer.Send(frame);
  const auto body = peer.Receive();
  ASSERT_TRUE(body.has_value());
  protocol::Response response;
  ASSERT_TRUE(ParseResponse(AsBytes(*body), &response).ok());
  EXPECT_EQ(response.id, 77u);
  EXPECT_EQ(response.code, StatusCode::kCorruption);
  EXPECT_EQ(response.message, "a request of unknown opcode 99");
  EXPECT_EQ(peer.Receive(), std::nullopt);
  EXPECT_EQ(server->Connections().refused, 1u);
}

/// A batch of puts of these keys, one character each, under the ids 0, 1, …
std::string BatchOfPuts(uint32_t number, uint32_t view, uint32_t tree, std::string_view keys) {
  std::string frame;
  const size_t begin = protocol::BeginBatch(number, view, &frame);
  for (uint64_t id = 0; id < keys.size(); ++id) {
    protocol::Request request;
    request.id = id;
    request.opcode = protocol::Opcode::kPut;
    request.tree = tree;
    request.key = keys.substr(id, 1);
    AppendRequest(request, &frame);
  }
  protocol::EndBatch(begin, static_cast<uint32_t>(keys.size()), &frame);
  return frame;
}

TEST_F(NativeRuledFaultTest, BatchOfAnotherViewIsRefusedWhole) {
  Add("t");
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    const uint32_t now = NativePeer::kView + static_cast<uint32_t>(i);
    NativePeer peer(tcp_url(i));
    const uint32_t tree = peer.Open("t");
    ruled[i].set_view(now);
    const auto answer_to = [&](uint32_t number, uint32_t view) {
      peer.Send(BatchOfPuts(number, view, tree, "abc"));
      protocol::Response response;
      const auto body = peer.Receive();
      FARLEAF_CHECK(body && ParseResponse(AsBytes(*body), &response).ok());
      return response;
    };
    for (const uint32_t view : {now + 1, now - 1, 0u, UINT32_MAX}) {
      const auto refusal = answer_to(70 + view, view);
      EXPECT_TRUE(refusal.wrong_view);
      EXPECT_EQ(refusal.id, 70 + view);
      EXPECT_EQ(refusal.refused_from, 0u);
      EXPECT_EQ(refusal.view, now);
    }
    EXPECT_EQ(Content("t").size(), i == 0 ? 0u : 3u);
    EXPECT_FALSE(answer_to(1, now).wrong_view);
    for (int rest = 0; rest < 2; ++rest) ASSERT_TRUE(peer.Receive().has_value());
    EXPECT_EQ(Content("t").size(), 3u);
  }
}

TEST_F(NativeRuledFaultTest, WhatAPauseHasKeptOfABatchIsRefusedWhenTheViewChangesMeanwhile) {
  Add("t");
  options.connection.in_flight_max = 2;
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    NativePeer peer(tcp_url(i));
    const uint32_t tree = peer.Open("t");
    std::atomic<int> held{0};
    std::atomic<bool> released{false};
    SetBefore([&](index::OpContext& op) { return HoldUntilReleased(op, &held, &released); });
    peer.Send(BatchOfPuts(9, NativePeer::kView, tree, i == 0 ? "abcde" : "vwxyz"));
    while (held < 2) std::this_thread::yield();
    ruled[i].set_view(NativePeer::kView + 1);
    released = true;
    uint64_t answered = 0, refusals = 0;
    for (int each = 0; each < 3; ++each) {
      const auto body = peer.Receive();
      ASSERT_TRUE(body.has_value());
      protocol::Response response;
      ASSERT_TRUE(ParseResponse(AsBytes(*body), &response).ok());
      answered += !response.wrong_view;
      if (!response.wrong_view) continue;
      ++refusals;
      EXPECT_EQ(response.id, 9u);
      EXPECT_EQ(response.refused_from, 2u);
    }
    EXPECT_EQ(answered, 2u);
    EXPECT_EQ(refusals, 1u);
    EXPECT_EQ(ContentLeft("t").size(), 2 * (i + 1));
  }
}

TEST_F(NativeFaultTest, RequestOfAKeyIsRefusedWithAllBehindItInABatchOfNoView) {
  Add("t");
  StartServer();
  NativePeer peer(tcp_url());
  peer.SendHello();
  peer.ReceiveHello();
  std::string frame;
  const size_t begin = protocol::BeginBatch(9, 0, &frame);
  for (const auto opcode : {protocol::Opcode::kPing, protocol::Opcode::kPut,
                            protocol::Opcode::kPing, protocol::Opcode::kPut}) {
    protocol::Request request;
    request.id = 5;
    request.opcode = opcode;
    request.tree = 1;
    request.key = "k";
    AppendRequest(request, &frame);
  }
  protocol::EndBatch(begin, 4, &frame);
  peer.Send(frame);
  uint64_t answered = 0, refusals = 0;
  for (int i = 0; i < 2; ++i) {
    const auto body = peer.Receive();
    ASSERT_TRUE(body.has_value());
    protocol::Response response;
    ASSERT_TRUE(ParseResponse(AsBytes(*body), &response).ok());
    answered += !response.wrong_view;
    refusals += response.wrong_view && response.id == 9 && response.refused_from == 1;
  }
  EXPECT_EQ(answered, 1u);
  EXPECT_EQ(refusals, 1u);
  EXPECT_TRUE(Content("t").empty());
  ExpectServing();
}

TEST_F(NativeFaultTest, ValueLargerThanTheServersLimitIsRefusedWithoutHarm) {
  Add("t");
  options.connection.value_bytes_max = 10'000;
  StartServer();
  auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  EXPECT_TRUE(tree.Put("k", std::string(10'000, 'v')).ok());
  EXPECT_EQ(tree.Put("k", std::string(10'001, 'v')).status().ToString(),
            "invalid argument: " + tcp_url() +
                ": a value of 10001 bytes; this server takes 10000 (value_bytes_max)");
  EXPECT_EQ(there.Put("k", std::string(4 << 20, 'v')).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(there.Get("k")->value().size(), 10'000u);
  EXPECT_EQ(Connections().refused, 0u) << "nobody was cut off for it";
}

TEST_F(NativeFaultTest, RequestForATreeThatIsNotOpenIsRefused) {
  StartServer();
  NativePeer peer(tcp_url());
  peer.SendHello();
  peer.ReceiveHello();
  protocol::Request request;
  request.opcode = protocol::Opcode::kGet;
  request.tree = 12345;
  request.key = "k";
  peer.SendRequest(request);
  const auto body = peer.Receive();
  ASSERT_TRUE(body.has_value());
  protocol::Response response;
  ASSERT_TRUE(ParseResponse(AsBytes(*body), &response).ok());
  EXPECT_EQ(response.message,
            "tree id 12345 is not open at this server; open the tree by name first");
}

TEST_F(NativeFaultTest, HalfClosedConnectionGetsAllItsAnswers) {
  Add("t");
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    NativePeer peer(tcp_url(i));
    protocol::Request request;
    request.tree = peer.Open("t");
    request.opcode = i == 0 ? protocol::Opcode::kPut : protocol::Opcode::kGet;
    request.key = "k";
    for (request.id = 1; request.id <= 500; ++request.id) peer.SendRequest(request);
    peer.EndSending();
    uint64_t answers = 0;
    while (const auto body = peer.Receive()) {
      protocol::Response response;
      ASSERT_TRUE(ParseResponse(AsBytes(*body), &response).ok());
      EXPECT_EQ(response.code, StatusCode::kOk);
      EXPECT_EQ(response.value.has_value(), i == 1);
      ++answers;
    }
    EXPECT_EQ(answers, 500u);
  }
}

TEST_F(NativeFaultTest, SlowReaderIsHeldBackAndLosesNothing) {
  Add("t");
  options.connection.out_bytes_max = 1 << 20;
  StartServer();
  constexpr uint64_t kRequests = 200;
  constexpr size_t kValueBytes = 1 << 20;
  auto writer = Connect(unix_url(0)), others = Connect(unix_url(1));
  auto tree = *others->OpenTree("t");
  ASSERT_TRUE(tree.Put("large", std::string(kValueBytes, 'x')).ok());

  NativePeer slow(unix_url(0));
  const uint32_t open = slow.Open("t");
  std::string requests;  // sent at once, so that the kernel takes all of them
  for (uint64_t id = 1; id <= kRequests; ++id) {
    protocol::Request request;
    request.id = id;
    request.opcode = protocol::Opcode::kGet;
    request.tree = open;
    request.key = "large";
    protocol::AppendBatch(0, NativePeer::kView, request, &requests);
  }
  slow.Send(requests);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(writer->Ping().ok());
  EXPECT_EQ(tree.Get("large")->value().size(), kValueBytes);
  // The limit, what the kernel holds, and one on its way: far from all of them.
  EXPECT_LT(server->Stats().count(protocol::Opcode::kGet), kRequests / 2);
  for (uint64_t id = 1; id <= kRequests; ++id) {
    const auto body = slow.Receive();
    ASSERT_TRUE(body.has_value()) << id;
    ASSERT_GT(body->size(), kValueBytes);
  }
}

TEST_F(NativeFaultTest, TwoHundredConnectionsOfAServerAndNotOneMore) {
  Add("t");
  options.connections_max = 200;
  StartServer();
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 200; ++i) {
    auto session = Session::Connect(i % 2 ? tcp_url() : unix_url(), Patient());
    ASSERT_TRUE(session.ok()) << i << ": " << session.status();
    sessions.push_back(std::move(*session));
  }
  const auto refused = Session::Connect(unix_url(), Patient());
  EXPECT_EQ(refused.status().ToString(),
            "resource exhausted: " + unix_url() +
                ": the server has its 200 connections, the limit (connections_max)");
  EXPECT_TRUE(Session::Connect(unix_url(1), Patient()).ok()) << "the other has its own";
  constexpr uint64_t kPuts = 4'000;
  uint64_t right = 0;
  std::vector<client::SessionTree> trees;
  for (auto& session : sessions) trees.push_back(*session->OpenTree("t"));
  for (uint64_t i = 0; i < kPuts; ++i) {
    trees[i % 200].PutAsync(KeyOf(i), std::to_string(i),
                            [&right](Result<bool> put) { right += put.ok(); });
  }
  for (auto& session : sessions) session->Flush();
  for (auto& session : sessions) {
    while (session->pending() > 0) session->Poll(1'000);
  }
  EXPECT_EQ(right, kPuts);
  sessions.pop_back();
  // The server notices the end of a connection when it comes to it.
  while (!Session::Connect(unix_url(), Patient()).ok()) {
  }
}

TEST_F(NativeRuledFaultTest, ServerEndsAnOperationAtItsDeadline) {
  Add("t");
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    auto client = Connect(tcp_url(i));
    auto tree = *client->OpenTree("t");
    std::atomic<int> held{0};
    ruled[i].set_before([&](index::OpContext& op) { return HoldUntilDeadline(op, &held); });
    // An answer that comes too late for the client is one that nobody knows.
    auto write = tree.Put("k", "v", {.deadline_ms = 1'000});
    for (int attempt = 0; attempt < 20 && write.status().code() == StatusCode::kUnknown;
         ++attempt) {
      write = tree.Put("k", "v", {.deadline_ms = 1'000});
    }
    EXPECT_EQ(write.status().ToString(),
              "deadline exceeded: " + tcp_url(i) + ": held up by compute server 9");
  }
  EXPECT_TRUE(ContentLeft("t").empty());
}

}  // namespace
}  // namespace farleaf::server
