// Clients of several servers: where operations go, and what becomes of them when the map of ranges changes, when a server
// refuses them or is gone.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "test/support/native_under_test.h"
#include "test/support/scripted_native_server.h"

namespace farleaf::server {
namespace {

using client::Client;
using client::KeyValue;
using client::Rows;
using client::ScanRange;
using client::Value;
using test::ScriptedNativeServer;
using Strings = std::vector<std::string>;
using Ranges = ScriptedNativeServer::Ranges;
using Then = ScriptedNativeServer::Then;

/// Three servers of one map from keys to values. Each notes what it was asked, as "get k", and answers all keys.
struct ClientRoutingTest : test::OneOverMaps {
  static constexpr size_t kServers = 3;

  struct Scripted {
    std::vector<std::string> asked;
    std::unique_ptr<ScriptedNativeServer> server;
    std::function<Then(const protocol::Request&)> before;  // kClose: the connection is lost
  };
  std::mutex mutex;  // guards what follows
  std::map<std::string, std::string> content;
  Scripted scripted[kServers];
  std::vector<int> order;            // the numbers that were put under "k"
  uint64_t piece_rows = UINT64_MAX;  // of a scan's

  void SetUp() override {
    test::OneOverMaps::SetUp();
    for (size_t i = 0; i < kServers; ++i) StartScripted(i);
  }
  void TearDown() override {
    for (size_t i = 0; i < kServers; ++i) StopScripted(i);
    test::OneOverMaps::TearDown();
  }
  std::string PathOf(size_t i) const { return (directory / std::to_string(i)).string(); }
  std::string UrlOf(size_t i) const { return "farleaf+unix:" + PathOf(i); }
  void StartScripted(size_t i) {
    scripted[i].server = std::make_unique<ScriptedNativeServer>(
        PathOf(i), [this, i](const protocol::Request& request, std::string* out) {
          return Answer(i, request, out);
        });
  }
  void StopScripted(size_t i) {
    scripted[i].server.reset();
    std::filesystem::remove(PathOf(i));
  }
  /// At all that run: keys below "h" are the first one's, below "q" the second one's.
  Ranges ThreeRanges() const { return {{"", UrlOf(0)}, {"h", UrlOf(1)}, {"q", UrlOf(2)}}; }
  void SetMaps(uint32_t view, const Ranges& ranges) {
    for (auto& each : scripted) {
      if (each.server) each.server->SetMap(view, ranges);
    }
  }
  std::vector<std::string> Asked(size_t i) {
    std::lock_guard lock(mutex);
    return std::exchange(scripted[i].asked, {});
  }
  void SetBefore(size_t i, std::function<Then(const protocol::Request&)> before) {
    std::lock_guard lock(mutex);
    scripted[i].before = std::move(before);
  }

  Then Answer(size_t i, const protocol::Request& request, std::string* out) {
    std::lock_guard lock(mutex);
    if (request.opcode != protocol::Opcode::kPing) {
      std::string asked = std::string(OpcodeName(request.opcode)) + " " + std::string(request.key);
      for (std::string_view key : request.keys) asked.append(key);
      if (request.end) asked.append("-").append(*request.end);
      scripted[i].asked.push_back(asked);
    }
    if (scripted[i].before && scripted[i].before(request) == Then::kClose) return Then::kClose;
    protocol::Response response;
    response.id = request.id;
    response.opcode = request.opcode;
    std::string continuation;
    switch (request.opcode) {
      case protocol::Opcode::kGet:
        response.value = Find(request.key);
        break;
      case protocol::Opcode::kMultiGet:
        for (std::string_view key : request.keys) response.values.push_back(Find(key));
        break;
      case protocol::Opcode::kPut:
        if (request.key == "k") order.push_back(std::stoi(std::string(request.value)));
        response.changed =
            content.insert_or_assign(std::string(request.key), std::string(request.value)).second;
        break;
      case protocol::Opcode::kScan:
        Scan(request, &response, &continuation);
        break;
      default:
        break;
    }
    AppendResponse(response, out);
    return Then::kIgnore;
  }
  std::optional<std::string_view> Find(std::string_view key) {
    const auto found = content.find(std::string(key));
    return found == content.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  }
  void Scan(const protocol::Request& request, protocol::Response* response,
            std::string* continuation) {
    response->keys_only = request.keys_only;
    std::vector<protocol::Row> rows;
    for (const auto& [key, value] : content) {
      if (key < request.key || (request.end && key >= *request.end)) continue;
      rows.push_back({key, request.keys_only ? std::string_view() : std::string_view(value)});
    }
    if (request.reverse) std::reverse(rows.begin(), rows.end());
    response->more = rows.size() > piece_rows && request.limit > piece_rows;
    if (response->more) {
      *continuation = rows[request.reverse ? piece_rows - 1 : piece_rows].key;
      response->continuation = *continuation;
    }
    rows.resize(std::min<uint64_t>({rows.size(), request.limit, piece_rows}));
    response->rows = std::move(rows);
  }

  std::unique_ptr<Client> ConnectTo(size_t i) { return Connect(UrlOf(i)); }
  /// The keys "a" to "z", each its own value.
  void FillAlphabet() {
    std::lock_guard lock(mutex);
    for (char c = 'a'; c <= 'z'; ++c) content[std::string(1, c)] = std::string(1, c);
  }
  static std::string KeysOf(const Rows& rows) {
    std::string keys;
    for (const KeyValue& row : rows) keys += row.key;
    return keys;
  }
};

// ---- Where operations go ----

TEST_F(ClientRoutingTest, OperationsGoToTheServerOfTheirKey) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(1);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "h", "p~", "q", "z"}) ASSERT_TRUE(tree.Put(key, key).ok());
  EXPECT_EQ(tree.Get("g~")->has_value(), false);
  EXPECT_EQ(**tree.Get("p~"), "p~");
  EXPECT_EQ(Asked(0), (Strings{"put a", "get g~"}));
  EXPECT_EQ(Asked(1), (Strings{"put h", "put p~", "get p~"}));
  EXPECT_EQ(Asked(2), (Strings{"put q", "put z"}));
  for (const auto& each : scripted) EXPECT_EQ(each.server->refusals(), 0u);
}

TEST_F(ClientRoutingTest, OneRangeIsOneConnectionThatAsksForTheMapOnce) {
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("a", "1").ok());
  ASSERT_TRUE(client->Ping().ok());
  EXPECT_EQ(scripted[0].server->map_requests(), 1u);
  EXPECT_EQ(scripted[0].server->batches(), 4u) << "map, open, put, ping";
}

// An empty URL among several: the server is not known, any one waits for it or forwards.
TEST_F(ClientRoutingTest, RangeOfNobodyGoesToTheServerThatOneIsConnectedTo) {
  SetMaps(2, {{"", UrlOf(0)}, {"h", ""}});
  auto client = ConnectTo(2);
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("a", "1").ok());
  ASSERT_TRUE(tree.Put("z", "1").ok());
  EXPECT_EQ(Asked(0), (Strings{"put a"}));
  EXPECT_EQ(Asked(2), (Strings{"put z"}));
}

TEST_F(ClientRoutingTest, FirstServerThatAnswersIsUsedAndTheNextOneBehindIt) {
  StopScripted(0);
  auto client = Connect(UrlOf(0) + "," + UrlOf(1) + "," + UrlOf(2));
  EXPECT_EQ(client->server(), UrlOf(1));
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("a", "1").ok());
  StopScripted(1);
  ASSERT_TRUE(tree.Put("b", "1").ok() || tree.Put("b", "2").ok()) << "the first may have been sent";
  EXPECT_EQ(**tree.Get("a"), "1");
  EXPECT_EQ(Asked(1), (Strings{"put a"}));
  EXPECT_GE(Asked(2).size(), 1u);
}

TEST_F(ClientRoutingTest, MultiGetIsCutByServerAndJoinedInOrder) {
  SetMaps(3, ThreeRanges());
  FillAlphabet();
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  const std::vector<std::string> keys = {"z", "a", "i", "b", "none", "y", "a"};
  const client::Values values = *tree.MultiGet(keys);
  EXPECT_EQ(values, (client::Values{"z", "a", "i", "b", std::nullopt, "y", "a"}));
  EXPECT_EQ(Asked(0), (Strings{"multi_get aba"}));
  EXPECT_EQ(Asked(1), (Strings{"multi_get inone"}));
  EXPECT_EQ(Asked(2), (Strings{"multi_get zy"}));
  EXPECT_TRUE(tree.MultiGet({})->empty());
}

TEST_F(ClientRoutingTest, ScansGoFromRangeToRangeInOrder) {
  SetMaps(3, ThreeRanges());
  FillAlphabet();
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  const std::string all = "abcdefghijklmnopqrstuvwxyz", back(all.rbegin(), all.rend());
  for (const uint64_t rows : {UINT64_MAX, uint64_t{3}, uint64_t{1}}) {
    SCOPED_TRACE(rows);
    piece_rows = rows;
    EXPECT_EQ(KeysOf(*tree.Scan({})), all);
    EXPECT_EQ(KeysOf(*tree.Scan({.reverse = true})), back);
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "f", .end = "s"})), "fghijklmnopqr");
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "f", .end = "s", .reverse = true})), "rqponmlkjihgf");
    for (uint64_t limit = 0; limit <= 27; ++limit) {
      EXPECT_EQ(KeysOf(*tree.Scan({.limit = limit})), all.substr(0, limit));
      EXPECT_EQ(KeysOf(*tree.Scan({.limit = limit, .reverse = true})), back.substr(0, limit));
    }
    // At the ranges' own bounds.
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "h", .end = "q"})), "hijklmnop");
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "h", .end = "q", .reverse = true})), "ponmlkjih");
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "q", .end = "h"})), "");
    EXPECT_EQ(KeysOf(*tree.Scan({.start = "q", .end = "h", .reverse = true})), "");
    EXPECT_EQ(KeysOf(*tree.Scan({.prefix = "q"})), "q");
    EXPECT_EQ(KeysOf(*tree.Scan({.prefix = "\xff\xff"})), "");
    const Rows bare = *tree.Scan({.start = "g", .end = "i", .keys_only = true});
    EXPECT_EQ(bare, (Rows{{"g", ""}, {"h", ""}}));
  }
}

TEST_F(ClientRoutingTest, PartsOfScansStayInTheirRanges) {
  SetMaps(3, ThreeRanges());
  FillAlphabet();
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  ASSERT_EQ(KeysOf(*tree.Scan({.start = "g", .end = "r"})), "ghijklmnopq");
  EXPECT_EQ(Asked(0), (Strings{"scan g-h"}));
  EXPECT_EQ(Asked(1), (Strings{"scan h-q"}));
  EXPECT_EQ(Asked(2), (Strings{"scan q-r"}));
  ASSERT_EQ(KeysOf(*tree.Scan({.limit = 11, .reverse = true})), "zyxwvutsrqp");
  EXPECT_EQ(Asked(2), (Strings{"scan q"}));
  EXPECT_EQ(Asked(1), (Strings{"scan h-q"}));
  EXPECT_EQ(Asked(0), Strings{}) << "the limit was reached";
}

TEST_F(ClientRoutingTest, StreamedScanPassesPiecesOfAllRangesAndEndsWhenItIsTold) {
  SetMaps(3, ThreeRanges());
  FillAlphabet();
  piece_rows = 2;
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  for (const size_t wanted : {size_t{7}, size_t{26}}) {  // the first range's very last row, and all
    std::string keys;
    std::promise<Result<uint64_t>> passed;
    tree.ScanPiecesAsync(
        {},
        [&](Rows rows) {
          keys += KeysOf(rows);
          return keys.size() < wanted;
        },
        [&](Result<uint64_t> rows) { passed.set_value(std::move(rows)); });
    EXPECT_EQ(*passed.get_future().get(), wanted);
    EXPECT_EQ(keys, std::string("abcdefghijklmnopqrstuvwxyz").substr(0, wanted));
  }
}

// ---- Maps that change ----

TEST_F(ClientRoutingTest, NewerMapIsReadFromWhoRefusedAndFollowed) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "k", "z"}) ASSERT_TRUE(tree.Put(key, "1").ok());
  for (size_t i = 0; i < kServers; ++i) Asked(i);
  SetMaps(4, {{"", UrlOf(2)}, {"q", UrlOf(0)}});
  for (const char* key : {"a", "k", "z"}) ASSERT_TRUE(tree.Put(key, "2").ok());
  EXPECT_EQ(Asked(2), (Strings{"put a", "put k"}));
  EXPECT_EQ(Asked(0), (Strings{"put z"}));
  EXPECT_EQ(Asked(1), Strings{});
  EXPECT_EQ(scripted[0].server->refusals(), 1u);
  EXPECT_EQ(scripted[1].server->refusals() + scripted[2].server->refusals(), 0u)
      << "nothing goes to a server before it has said the new view";
}

TEST_F(ClientRoutingTest, ServerThatIsAboutToHearOfANewMapIsWaitedFor) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "z"}) ASSERT_TRUE(tree.Put(key, "1").ok());
  // Of the new map, in which they have each other's keys, only the first has heard.
  const Ranges next = {{"", UrlOf(2)}, {"h", UrlOf(1)}, {"q", UrlOf(0)}};
  scripted[0].server->SetMap(4, next);
  auto moved = tree.PutAsync("a", "2");
  auto late = tree.GetAsync("a", {.deadline_ms = 40});
  const uint64_t before = scripted[2].server->map_requests();
  while (scripted[2].server->map_requests() < before + 3) std::this_thread::yield();
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(moved.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  SetMaps(4, next);
  EXPECT_TRUE(moved.get().ok());
  EXPECT_EQ(Asked(2), (Strings{"put z", "put a"}));
}

// Its view and its map do not go together, as those of a server that has not told its threads yet.
TEST_F(ClientRoutingTest, RefusalUnderAnOlderViewThanTheClientsIsSentAgain) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  scripted[1].server->SetMap(2, 3, ThreeRanges());
  auto put = tree.PutAsync("k", "1");
  while (scripted[1].server->refusals() < 3) std::this_thread::yield();
  scripted[1].server->SetMap(3, ThreeRanges());
  EXPECT_TRUE(put.get().ok());
  EXPECT_EQ(Asked(1), (Strings{"put k"}));
}

TEST_F(ClientRoutingTest, ScanAndMultiGetGoOnWhereRangesHaveMovedTo) {
  SetMaps(3, ThreeRanges());
  FillAlphabet();
  piece_rows = 2;
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  const std::string all = "abcdefghijklmnopqrstuvwxyz", back(all.rbegin(), all.rend());
  uint32_t view = 3;
  for (const bool reverse : {false, true}) {
    std::string keys;
    std::promise<Result<uint64_t>> passed;
    tree.ScanPiecesAsync(
        {.reverse = reverse},
        [&](Rows rows) {
          keys += KeysOf(rows);
          ++view;
          // All of them change places, and bounds move a little.
          SetMaps(view, {{"", UrlOf(view % 3)},
                         {view % 2 ? "g" : "l", UrlOf((view + 1) % 3)},
                         {view % 2 ? "q" : "r", UrlOf((view + 2) % 3)}});
          return true;
        },
        [&](Result<uint64_t> rows) { passed.set_value(std::move(rows)); });
    EXPECT_EQ(*passed.get_future().get(), all.size());
    EXPECT_EQ(keys, reverse ? back : all);
    const std::vector<std::string> both = {"z", "a", "m"};
    SetMaps(++view, ThreeRanges());
    EXPECT_EQ(*tree.MultiGet(both), (client::Values{"z", "a", "m"}));
  }
}

TEST_F(ClientRoutingTest, ClusterOfOneRangeGrowsAndShrinks) {
  SetMaps(1, {{"", ""}});
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("z", "1").ok());
  SetMaps(2, ThreeRanges());
  ASSERT_TRUE(tree.Put("z", "2").ok());
  SetMaps(3, {{"", UrlOf(1)}});
  ASSERT_TRUE(tree.Put("z", "3").ok());
  SetMaps(4, {{"", UrlOf(0)}});
  ASSERT_TRUE(tree.Put("z", "4").ok());
  EXPECT_EQ(Asked(0), (Strings{"put z", "put z"}));
  EXPECT_EQ(Asked(1), (Strings{"put z"}));
  EXPECT_EQ(Asked(2), (Strings{"put z"}));
}

// Each is answered with whether the key was new: puts that came in another order, or twice, would tell.
TEST_F(ClientRoutingTest, OperationsOnOneKeyStayInOrderWhileItMoves) {
  SetMaps(1, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  const int kPuts = 4'000;
  std::atomic<int> done{0}, failed{0};
  for (int i = 0; i < kPuts; ++i) {
    tree.PutAsync("k", std::to_string(i), [&](Result<bool> put) { ++(put.ok() ? done : failed); });
    if (i % 400 != 0) continue;
    const uint32_t view = 2 + static_cast<uint32_t>(i / 400);
    // One hears of it before the others.
    scripted[view % 3].server->SetMap(view, {{"", UrlOf(view % 2)}, {"x", UrlOf(2)}});
    SetMaps(view, {{"", UrlOf(view % 2)}, {"x", UrlOf(2)}});
  }
  while (done + failed < kPuts) std::this_thread::yield();
  EXPECT_EQ(failed, 0);
  std::lock_guard lock(mutex);
  EXPECT_EQ(content["k"], std::to_string(kPuts - 1));
  EXPECT_EQ(order.size(), static_cast<size_t>(kPuts)) << "each once";
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// The client hears of the new map from another server than the one that has what was sent first.
TEST_F(ClientRoutingTest, OperationsOnAMovedKeyWaitForWhatItsOldServerMayStillRefuse) {
  SetMaps(1, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "k", "z"}) ASSERT_TRUE(tree.Put(key, "0").ok());
  scripted[1].server->Stall();
  auto first = tree.PutAsync("k", "1");
  Asked(2);
  const uint64_t told = scripted[2].server->map_requests();
  SetMaps(2, {{"", UrlOf(0)}, {"h", UrlOf(2)}, {"q", UrlOf(0)}});
  ASSERT_TRUE(tree.Put("a", "1").ok());
  auto second = tree.PutAsync("k", "2");
  while (scripted[2].server->map_requests() == told) std::this_thread::yield();
  // Its new server agrees, and would be sent it before these have gone back and forth.
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(tree.Put("z", "1").ok()) << "other ranges are served";
  EXPECT_EQ(Asked(2), Strings{});
  scripted[1].server->Resume();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(scripted[1].server->refusals(), 1u);
}

// Over a connection that stands, a server that says nothing at all is waited for as long as one that is connected to.
TEST_F(ClientRoutingTest, SilentServerIsGivenUpAsLost) {
  SetMaps(1, ThreeRanges());
  client::Options hasty = Patient();
  hasty.connect_timeout_ms = 200;
  auto connected = Client::Connect(UrlOf(0), hasty);
  while (!connected.ok())
    connected = Client::Connect(UrlOf(0), hasty);  // as slow as the machine is
  auto client = std::move(*connected);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "k"}) ASSERT_TRUE(tree.Put(key, "0").ok());
  scripted[1].server->Stall();
  auto write = tree.PutAsync("k", "1");
  auto read = tree.GetAsync("k");
  SetMaps(2, {{"", UrlOf(0)}, {"h", UrlOf(2)}});
  ASSERT_TRUE(tree.Put("a", "1").ok());
  EXPECT_TRUE(tree.Put("k", "2").ok());
  EXPECT_EQ(write.get().status().code(), StatusCode::kUnknown);
  EXPECT_EQ(**read.get(), "0") << "started before the second";
}

// What an unreachable server has not been sent goes to the one that comes to serve its range, at once.
TEST_F(ClientRoutingTest, DeadServerHoldsUpNothingOfItsRangeBehindAMove) {
  SetMaps(1, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("k", "0").ok());
  StopScripted(1);
  auto read = tree.GetAsync("k");
  const uint64_t asked = scripted[0].server->map_requests();
  while (scripted[0].server->map_requests() < asked + 2) std::this_thread::yield();
  auto put = tree.PutAsync("k", "1");
  SetMaps(2, {{"", UrlOf(0)}, {"h", UrlOf(2)}});
  EXPECT_TRUE(put.get().ok());
  EXPECT_EQ(**read.get(), "0") << "it was started first";
}

// ---- Servers that are gone ----

TEST_F(ClientRoutingTest, RangeOfADeadServerIsServedByItsNextOneWithinTheDeadline) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  for (const char* key : {"a", "k", "z"}) ASSERT_TRUE(tree.Put(key, "1").ok());
  StopScripted(1);
  auto read = tree.GetAsync("k");
  EXPECT_TRUE(tree.Put("z", "2").ok()) << "others are served meanwhile";
  const uint64_t asked = scripted[2].server->map_requests();
  while (scripted[2].server->map_requests() < asked + 2) std::this_thread::yield();
  SetMaps(4, {{"", UrlOf(0)}, {"h", UrlOf(2)}});
  EXPECT_EQ(**read.get(), "1");
  EXPECT_TRUE(tree.Put("k", "2").ok());
}

TEST_F(ClientRoutingTest, OperationOnADeadServersRangeEndsAtItsDeadlineAndSaysWhich) {
  SetMaps(3, ThreeRanges());
  StopScripted(1);
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  const Status put = tree.Put("k", "1", {.deadline_ms = 150}).status();
  EXPECT_EQ(put.code(), StatusCode::kUnavailable) << put;
  EXPECT_NE(put.message().find(UrlOf(1)), std::string::npos) << put;
  EXPECT_TRUE(tree.Put("a", "1").ok());
}

TEST_F(ClientRoutingTest, WriteUnderALostConnectionIsUnknownAndNotSentElsewhere) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  SetBefore(1, [](const protocol::Request& request) {
    return request.opcode == protocol::Opcode::kPut ? Then::kClose : Then::kIgnore;
  });
  EXPECT_EQ(tree.Put("k", "1").status().code(), StatusCode::kUnknown);
  SetMaps(4, {{"", UrlOf(0)}, {"h", UrlOf(2)}});
  EXPECT_FALSE(tree.Get("k")->has_value());
  EXPECT_EQ(Asked(1), (Strings{"put k"}));
  EXPECT_EQ(Asked(2), (Strings{"get k"}));
}

TEST_F(ClientRoutingTest, DestroyedClientEndsWhatItHolds) {
  SetMaps(3, ThreeRanges());
  auto client = ConnectTo(0);
  auto tree = *client->OpenTree("t");
  scripted[1].server->SetMap(2, ThreeRanges());  // it never agrees
  std::vector<std::future<Result<bool>>> puts;
  for (int i = 0; i < 10; ++i) puts.push_back(tree.PutAsync("k", "1"));
  while (scripted[1].server->map_requests() < 3) std::this_thread::yield();
  client.reset();
  for (auto& put : puts) EXPECT_EQ(put.get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Asked(1), Strings{});
}

// ---- Addresses ----

TEST(EndpointsTest, ListsNameEachServer) {
  const auto parsed = [](std::string_view urls) {
    std::vector<std::string> each;
    const auto endpoints = client::ParseEndpoints(urls);
    if (!endpoints.ok()) return std::vector<std::string>{"refused"};
    for (const auto& endpoint : *endpoints) each.push_back(endpoint.ToString());
    return each;
  };
  EXPECT_EQ(parsed("farleaf://a:1,[::1]:2"), (Strings{"farleaf://a:1", "farleaf://[::1]:2"}));
  EXPECT_EQ(parsed("farleaf://a:1,farleaf://b:2,c:3"),
            (Strings{"farleaf://a:1", "farleaf://b:2", "farleaf://c:3"}));
  EXPECT_EQ(parsed("farleaf+unix:/x,farleaf+ring:/y"),
            (Strings{"farleaf+unix:/x", "farleaf+ring:/y"}));
  EXPECT_EQ(parsed("farleaf+unix:/x,y"), (Strings{"farleaf+unix:/x,y"})) << "a path has commas";
  for (const char* wrong : {"", ",", "farleaf://a:1,", "farleaf://a:1,,b:2", "farleaf://a:1,b"}) {
    EXPECT_EQ(parsed(wrong), Strings{"refused"}) << wrong;
  }
}

}  // namespace
}  // namespace farleaf::server
