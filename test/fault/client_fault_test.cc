// What a client of the native protocol does when its server fails, lies, stalls or is not there.

#include "test/support/native_under_test.h"
#include "test/support/scripted_native_server.h"

namespace farleaf::server {
namespace {

using client::Client;
using client::Session;
using client::Value;
using client::internal::Fd;
using ScriptedServer = test::ScriptedNativeServer;

struct ClientFaultTest : test::OneOverMaps {};

// ---- Deadlines ----

TEST_F(ClientFaultTest, StalledServerEndsReadsAtTheirDeadlineAndLeavesWritesUnknown) {
  ScriptedServer stalled(script_path(), [](const protocol::Request&, std::string*) {
    return ScriptedServer::Then::kIgnore;
  });
  auto client = *Client::Connect(stalled.url(), Patient());
  auto tree = *client->OpenTree("t");
  const auto read = tree.Get("k", {.deadline_ms = 1'000});
  EXPECT_EQ(read.status().ToString(),
            "deadline exceeded: " + stalled.url() + ": get: no answer by its deadline");
  const auto write = tree.Put("k", "v", {.deadline_ms = 1'000});
  EXPECT_EQ(write.status().ToString(), "unknown outcome: " + stalled.url() +
                                           ": put: no answer by its deadline; it may or may not "
                                           "have taken effect");
}

TEST_F(ClientFaultTest, SilentListenerFailsTheConnectionInBoundedTime) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), raw, bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), raw, &bytes), 0);
  const std::string url = "farleaf://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  client::Options impatient;
  impatient.connect_timeout_ms = 50;
  EXPECT_EQ(Client::Connect(url, impatient).status().ToString(),
            "unavailable: " + url + ": no answer to the hello within 50 ms");
}

TEST_F(ClientFaultTest, WrongUrlsAreRefusedWithWhatIsWanted) {
  for (const char* url :
       {"", "localhost:7400", "farleaf://", "farleaf://host", "farleaf://h:x", "farleaf://h:70000",
        "farleaf://h:0", "farleaf://::1:7400", "farleaf+unix:", "http://h:1"}) {
    EXPECT_EQ(Client::Connect(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  const auto unknown = Client::Connect("farleaf+unix:/nonexistent/socket");
  EXPECT_EQ(unknown.status().ToString(),
            "unavailable: farleaf+unix:/nonexistent/socket: No such file or directory");
}

// ---- Lost connections ----

TEST_F(ClientFaultTest, ConnectionLostUnderARequestReissuesTheReadAndNotTheWrite) {
  std::atomic<int> gets{0}, puts{0};
  ScriptedServer fragile(script_path(), [&](const protocol::Request& request, std::string* out) {
    if (request.opcode == protocol::Opcode::kPut) {
      ++puts;
      return ScriptedServer::Then::kClose;
    }
    if (++gets < 3) return ScriptedServer::Then::kClose;
    protocol::Response response;
    response.id = request.id;
    response.opcode = request.opcode;
    response.value = "third time";
    AppendResponse(response, out);
    return ScriptedServer::Then::kIgnore;
  });
  auto client = *Client::Connect(fragile.url(), Patient());
  auto tree = *client->OpenTree("t");
  EXPECT_EQ(**tree.Get("k"), "third time");
  EXPECT_EQ(gets, 3);
  const auto write = tree.Put("k", "v");
  EXPECT_EQ(write.status().code(), StatusCode::kUnknown) << write.status();
  EXPECT_EQ(**tree.Get("k"), "third time");
  EXPECT_EQ(puts, 1);
}

// A kernel tells a sender that the connection is gone before it gives a reader what came ahead of that.
TEST_F(ClientFaultTest, GoodbyeThatLiesUnreadWhenSendingFailsIsHeeded) {
  constexpr size_t kMoreThanIsTakenAtOnce = 64 << 10;
  std::atomic<bool> stops_now{false};
  std::optional<ScriptedServer> stops;
  stops.emplace(script_path(), [&](const protocol::Request&, std::string* out) {
    stops_now = true;
    protocol::Response goodbye;
    goodbye.goodbye = true;
    AppendResponse(goodbye, out);
    return ScriptedServer::Then::kSendAndClose;
  });
  auto session = *Session::Connect(stops->url(), Patient());
  auto tree = *session->OpenTree("t");
  int done = 0;
  const auto put = [&](std::string_view key, std::string_view value) {
    tree.PutAsync(key, value, [&](Result<bool> result) {
      EXPECT_TRUE(result.ok()) << result.status();
      ++done;
    });
    session->Flush();
  };
  put("begun", "v");
  put("behind it", std::string(kMoreThanIsTakenAtOnce, 'v'));
  while (!stops_now) std::this_thread::yield();
  stops.reset();  // has closed it with the rest unread
  std::filesystem::remove(script_path());
  std::vector<std::string> keys;
  ScriptedServer successor(script_path(), [&](const protocol::Request& request, std::string* out) {
    keys.emplace_back(request.key);
    protocol::Response response;
    response.id = request.id;
    response.opcode = request.opcode;
    AppendResponse(response, out);
    return ScriptedServer::Then::kIgnore;
  });
  put("fails to be sent", "v");
  while (session->pending() > 0) session->Poll(1'000);
  EXPECT_EQ(done, 3);
  EXPECT_EQ(keys, (std::vector<std::string>{"begun", "behind it", "fails to be sent"}));
}

TEST_F(ClientFaultTest, ReadThatKeepsLosingItsConnectionGivesUp) {
  std::atomic<int> gets{0};
  ScriptedServer poisoned(script_path(), [&](const protocol::Request&, std::string*) {
    ++gets;
    return ScriptedServer::Then::kClose;
  });
  client::Options patient = Patient();
  patient.reissues_max = 3;
  patient.backoff_ms_max = 10;
  auto client = *Client::Connect(poisoned.url(), patient);
  auto tree = *client->OpenTree("t");
  EXPECT_EQ(tree.Get("k").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(gets, 4);
}

TEST_F(ClientFaultTest, LyingServerIsDroppedWithoutHarm) {
  for (const bool other_opcode : {false, true}) {
    ScriptedServer liar(script_path(), [&](const protocol::Request& request, std::string* out) {
      protocol::Response response;
      response.id = other_opcode ? request.id : 0x7fffffff;
      response.opcode = protocol::Opcode::kPing;
      AppendResponse(response, out);
      return ScriptedServer::Then::kIgnore;
    });
    client::Options patient = Patient();
    patient.reissues_max = 1;
    patient.backoff_ms_max = 10;
    auto client = *Client::Connect(liar.url(), patient);
    auto tree = *client->OpenTree("t");
    EXPECT_EQ(tree.Get("k").status().code(), StatusCode::kUnavailable);
    client.reset();
    std::filesystem::remove(script_path());
  }
}

TEST_F(ClientFaultTest, DestroyedClientCallsEveryCallback) {
  ScriptedServer stalled(script_path(), [](const protocol::Request&, std::string*) {
    return ScriptedServer::Then::kIgnore;
  });
  std::vector<std::future<Result<Value>>> reads;
  std::vector<std::future<Result<bool>>> writes;
  {
    auto client = *Client::Connect(stalled.url(), Patient());
    auto tree = *client->OpenTree("t");
    for (int i = 0; i < 100; ++i) reads.push_back(tree.GetAsync("k"));
    for (int i = 0; i < 100; ++i) writes.push_back(tree.PutAsync("k", "v"));
  }
  for (auto& read : reads) EXPECT_EQ(read.get().status().code(), StatusCode::kUnavailable);
  for (auto& write : writes) {
    const StatusCode code = write.get().status().code();
    EXPECT_TRUE(code == StatusCode::kUnavailable || code == StatusCode::kUnknown);
  }
}

TEST_F(ClientFaultTest, FullSessionRefusesMore) {
  host.Add("t");
  StartServer();
  client::Options small = Patient();
  small.pending_max = 10;
  auto session = *Session::Connect(tcp_url(), small);
  auto tree = *session->OpenTree("t");
  int refused = 0, done = 0;
  for (int i = 0; i < 12; ++i) {
    tree.GetAsync("k", [&](Result<Value> value) {
      refused += value.status().code() == StatusCode::kResourceExhausted;
      done += value.ok();
    });
  }
  EXPECT_EQ(refused, 2);
  while (session->pending() > 0) session->Poll(1'000);
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace farleaf::server
