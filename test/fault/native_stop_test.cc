// How servers of the native protocol stop, what their clients know then, and that they start again.

#include <list>
#include <set>
#include <thread>

#include "test/support/native_peer.h"
#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

using client::Client;
using client::Session;
using client::internal::Fd;
using test::HoldUntilDeadline;
using test::HoldUntilReleased;
using test::KeyOf;
using test::kPatienceMs;
using test::NativePeer;

using NativeStopTest = test::TwoOnOnePool;
/// Whose operations are held up, or whose trees have other ids behind a restart.
using NativeRuledStopTest = test::TwoRuledOnOnePool;

TEST_F(NativeRuledStopTest, StopLetsRunningRequestsEnd) {
  Add("t");
  StartServer();
  auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  std::atomic<int> held{0};
  std::atomic<bool> released{false};
  SetBefore([&](index::OpContext& op) { return HoldUntilReleased(op, &held, &released); });
  std::vector<std::future<Result<bool>>> puts;
  for (uint64_t i = 0; i < 50; ++i) puts.push_back((i % 2 ? there : tree).PutAsync(KeyOf(i), "v"));
  while (held < 50) std::this_thread::yield();
  std::thread stopper([&] { server->Stop(); });
  released = true;
  for (auto& put : puts) {
    const auto result = put.get();
    EXPECT_TRUE(result.ok()) << result.status();
  }
  stopper.join();
  EXPECT_TRUE(there.Put("more", "v").ok()) << "the other goes on";
  EXPECT_EQ(ContentLeft("t").size(), 51u);
}

TEST_F(NativeRuledStopTest, WhoStopsSaysGoodbyeAndHasBegunNothingThatItHasNotAnswered) {
  Add("t");
  StartServer();
  NativePeer peer(tcp_url(0));
  const uint32_t tree = peer.Open("t");
  std::atomic<int> held{0};
  std::atomic<bool> released{false};
  SetBefore([&](index::OpContext& op) { return HoldUntilReleased(op, &held, &released); });
  const auto put = [&](uint64_t id, std::string_view key) {
    peer.SendRequest({.id = id, .opcode = protocol::Opcode::kPut, .tree = tree, .key = key});
  };
  put(1, "answered");
  while (held < 1) std::this_thread::yield();
  const std::string url = tcp_url(0);
  std::thread stopper([&] { server->Stop(); });
  // It is not known when it has begun to stop: these are begun or not.
  uint64_t sent = 1;
  while (Client::Connect(url, {.connect_timeout_ms = 50}).ok()) {
    ++sent;
    put(sent, "k" + std::to_string(sent));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int i = 0; i < 10; ++i) {
    ++sent;
    put(sent, "k" + std::to_string(sent));
  }
  released = true;
  bool goodbye = false;
  std::set<uint64_t> answered;
  while (const auto frame = peer.Receive()) {
    protocol::Response response;
    ASSERT_TRUE(ParseResponse(AsBytes(*frame), &response).ok());
    EXPECT_FALSE(goodbye) << "something behind the goodbye";
    goodbye = response.goodbye;
    if (goodbye) continue;
    EXPECT_EQ(response.code, StatusCode::kOk) << response.message;
    answered.insert(response.id);
  }
  EXPECT_TRUE(goodbye);
  put(sent + 1, "too late");
  peer.EndSending();
  stopper.join();
  EXPECT_TRUE(answered.contains(1));
  EXPECT_LE(answered.size(), sent - 10) << "it was not stopping yet";
  EXPECT_EQ(ContentLeft("t").size(), answered.size());
}

/// In a Unix socket there is room for the answer of one of them, and then none for the goodbye.
TEST_F(NativeRuledStopTest, WhoReadsLateReadsAllAnswersAndTheGoodbye) {
  Add("t");
  StartServer();
  constexpr int kPeers = 16;
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  int room = 0;
  socklen_t bytes = sizeof room;
  ASSERT_EQ(::getsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &room, &bytes), 0);
  auto client = Connect(tcp_url(0));
  auto tree = *client->OpenTree("t");
  std::atomic<int> begun{0};
  std::list<NativePeer> peers;
  for (int i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(tree.Put(KeyOf(i), std::string(room - 64 * (i + 1), 'v')).ok());
  }
  client.reset();
  SetBefore([&](index::OpContext&) {
    ++begun;
    return index::Task<Status>(dsm::Done{}, Status::Ok());
  });
  for (int i = 0; i < kPeers; ++i) {
    const std::string key = KeyOf(i);
    NativePeer& peer = peers.emplace_back(unix_url(0));
    const uint32_t id = peer.Open("t");
    peer.SendRequest({.id = 1, .opcode = protocol::Opcode::kGet, .tree = id, .key = key});
  }
  while (begun < kPeers) std::this_thread::yield();
  std::jthread stopper([&] { server->Stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2'500));  // more than a goodbye lingers
  for (NativePeer& peer : peers) {
    protocol::Response response;
    const auto answer = peer.Receive(), goodbye = peer.Receive();
    ASSERT_TRUE(answer && goodbye);
    ASSERT_TRUE(ParseResponse(AsBytes(*answer), &response).ok());
    EXPECT_EQ(response.code, StatusCode::kOk) << response.message;
    ASSERT_TRUE(ParseResponse(AsBytes(*goodbye), &response).ok());
    EXPECT_TRUE(response.goodbye);
    peer.EndSending();
  }
}

TEST_F(NativeRuledStopTest, WhatWasAnsweredThroughARingWhoseServerHasEndedIsTaken) {
  Add("t");
  std::atomic<int> held{0};
  std::atomic<bool> released{false};
  // Ahead of its threads: what passes through a ring orders nothing that a sanitizer sees.
  SetBefore([&](index::OpContext& op) { return HoldUntilReleased(op, &held, &released); });
  StartServer();
  auto session = ConnectSession(ring_url(0));
  auto tree = *session->OpenTree("t");
  std::optional<Result<bool>> put;
  tree.PutAsync("k", "v", [&](Result<bool> result) { put = std::move(result); });
  session->Flush();
  while (held < 1) std::this_thread::yield();
  pollfd waited{};
  ASSERT_TRUE(session->BeginWait(&waited));
  released = true;
  server->Stop();
  server.reset();
  waited.revents = POLLIN | POLLHUP;
  session->EndWait(waited);
  ASSERT_TRUE(put.has_value());
  EXPECT_TRUE(put->ok()) << put->status();
}

/// Many are in flight all the time, of some clients more than the server takes at once, and it is stopped and started:
/// each is done, and known to be.
TEST_F(NativeStopTest, NothingIsInDoubtWhereServersStop) {
  options.drain_ms = kPatienceMs;  // what is not answered by then is in doubt
  Add("t");
  StartServer();
  client::Options patient = Patient();
  patient.backoff_ms_max = 50;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done{0};
  const auto run = [&](const std::string& url, size_t at_once) {
    auto session = *Session::Connect(url, patient);
    auto tree = *session->OpenTree("t");
    uint64_t begun = 0;
    std::string first;
    while (!stop || session->pending() > 0) {
      while (!stop && session->pending() < at_once) {
        tree.PutAsync(KeyOf(begun++ % 1'000), "v", [&](Result<bool> put) {
          if (!put.ok() && first.empty()) first = put.status().ToString();
          ++done;
        });
      }
      session->Poll(10);
    }
    EXPECT_EQ(first, "");
    EXPECT_GT(begun, at_once);
  };
  std::vector<std::thread> clients;
  for (size_t i = 0; i < servers(); ++i) {
    clients.emplace_back(run, tcp_url(i), 64);
    clients.emplace_back(run, unix_url(i), 4 * NativeConnection::Limits().in_flight_max);
  }
  for (size_t restart = 0; restart < 10; ++restart) {
    for (const uint64_t before = done; done < before + 2'000;) std::this_thread::yield();
    slot(restart)->Stop();
    slot(restart).reset();
    StartServer();
  }
  stop = true;
  for (std::thread& client : clients) client.join();
}

TEST_F(NativeRuledStopTest, StopCutsTheDeadlinesOfWhatDoesNotEnd) {
  Add("t");
  options.drain_ms = 20;
  StartServer();
  auto client = Connect(tcp_url(0)), others = Connect(tcp_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  std::atomic<int> held{0};
  ruled[0].set_before([&](index::OpContext& op) { return HoldUntilDeadline(op, &held); });
  auto put = tree.PutAsync("k", "v");
  while (held < 1) std::this_thread::yield();
  server->Stop();  // would last as long as the put's deadline
  client.reset();
  EXPECT_FALSE(put.get().ok());
  EXPECT_TRUE(there.Put("there", "v").ok());
  EXPECT_EQ(ContentLeft("t"), (std::map<std::string, std::string>{{"there", "v"}}));
}

TEST_F(NativeStopTest, AddressInUseIsAnErrorAndADeadServersSocketIsNot) {
  StartServer();
  const auto second = NativeServer::Start(&served(1), &clock, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists) << second.status();
  NativeServerOptions only_unix = options;
  only_unix.listen.clear();
  EXPECT_EQ(NativeServer::Start(&served(1), &clock, only_unix).status().code(),
            StatusCode::kAlreadyExists);
  // A socket file that nobody listens on any more, as a killed server leaves it.
  only_unix.unix_path = (directory / "dead.sock").string();
  {
    Fd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    auto address = client::internal::Resolve(*client::ParseUnixPath(only_unix.unix_path))->front();
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address.storage), address.bytes), 0);
  }
  const auto successor = NativeServer::Start(&served(1), &clock, only_unix);
  EXPECT_TRUE(successor.ok()) << successor.status();
}

// Each writer knows what it was told, and so what a get may answer: the last acknowledged value, or
// that of a later write with an unknown outcome. Tree ids change with every restart.
TEST_F(NativeRuledStopTest, RestartsUnderLoadGiveNoWrongAnswers) {
  Add("other");
  Add("t");
  StartServer();
  // The ports stay when they are started again.
  const std::string urls[] = {tcp_url(0), unix_url(1), unix_url(0), tcp_url(1)};
  client::Options patient = Patient();
  patient.backoff_ms_max = 50;
  constexpr int kWriters = 4, kRestarts = 6;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> acknowledged[2]{}, wrong{0}, reads{0};
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      auto client = *Client::Connect(urls[w], patient);
      auto tree = *client->OpenTree("t");
      const std::string key = KeyOf(static_cast<uint64_t>(w));
      uint64_t sure = 0;  // every value below this is overwritten or older
      for (uint64_t n = 1; !stop; ++n) {
        const auto put = tree.Put(key, std::to_string(n));
        if (put.ok()) {
          sure = n;
          ++acknowledged[w % 2];
        }
        const auto value = tree.Get(key);
        if (!value.ok()) continue;
        ++reads;
        const uint64_t seen = *value ? std::stoull(**value) : 0;
        if (seen < sure || seen > n) ++wrong;
        sure = std::max(sure, seen);
      }
    });
  }
  const auto await_more = [&] {
    for (auto& of_one : acknowledged) {
      const uint64_t before = of_one;
      while (of_one < before + 100) std::this_thread::yield();
    }
  };
  for (int restart = 0; restart < kRestarts; ++restart) {
    await_more();
    const auto of_one = static_cast<size_t>(restart % 2);
    slot(of_one)->Stop();
    slot(of_one).reset();
    ruled[of_one].RenumberTrees();
    StartServer();
  }
  await_more();
  stop = true;
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(reads, 500u);
  EXPECT_EQ(Content("t").size(), static_cast<size_t>(kWriters));
  EXPECT_TRUE(Content("other").empty());
}

TEST_F(NativeStopTest, TreeThatIsGoneAfterARestartIsReportedNotMistaken) {
  Add("t");
  StartServer();
  auto client = Connect(unix_url(0)), others = Connect(unix_url(1));
  auto tree = *client->OpenTree("t"), there = *others->OpenTree("t");
  ASSERT_TRUE(tree.Put("k", "v").ok());
  server.reset();
  // On another pool, whose first tree has the id that this one had.
  test::PoolHosts another(1);
  AddTo(another.host(0), "another");
  auto successor = NativeServer::Start(&another.host(0), &clock, options);
  ASSERT_TRUE(successor.ok()) << successor.status();
  EXPECT_EQ(
      tree.Get("k").status().ToString(),
      "not found: " + client->server() + ": there is no tree 't' in this pool; there are: another");
  EXPECT_EQ(**there.Get("k"), "v");
}

}  // namespace
}  // namespace farleaf::server
