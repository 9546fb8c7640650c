// Sessions whose caller routes: by which view batches go, and what becomes of operations that a server refuses.

#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "client/session.h"
#include "test/support/native_under_test.h"
#include "test/support/scripted_native_server.h"

namespace farleaf::server {
namespace {

using client::Session;
using test::ScriptedNativeServer;

/// A server that counts puts.
struct RoutedSessionTest : test::OneOverMaps {
  std::atomic<int> puts{0};
  std::optional<ScriptedNativeServer> scripted;

  void SetUp() override {
    test::OneOverMaps::SetUp();
    StartScripted(5);
  }
  void StartScripted(uint32_t view) {
    scripted.emplace(script_path(), [this](const protocol::Request& request, std::string* out) {
      puts += request.opcode == protocol::Opcode::kPut;
      protocol::Response response;
      response.id = request.id;
      response.opcode = request.opcode;
      AppendResponse(response, out);
      return ScriptedNativeServer::Then::kIgnore;
    });
    scripted->set_view(view);
  }
  std::unique_ptr<Session> ConnectRouted() {
    client::Options routed = Patient();
    routed.routed_by_caller = true;
    auto session = Session::Connect(scripted->url(), routed);
    EXPECT_TRUE(session.ok()) << session.status();
    return std::move(*session);
  }
};

TEST_F(RoutedSessionTest, RefusedOperationIsGivenBackUnexecutedWithBothViews) {
  auto session = ConnectRouted();
  EXPECT_EQ(session->server_view(), 5u);
  session->set_view(4);
  auto tree = *session->OpenTree("t");  // names no key: under any view
  EXPECT_EQ(
      tree.Put("k", "v").status().ToString(),
      Status::Fenced(scripted->url() + ": put: routed by view 4, the server's is 5").ToString());
  EXPECT_EQ(puts, 0);
  session->set_view(5);
  EXPECT_TRUE(tree.Put("k", "v").ok());
  scripted->set_view(7);
  EXPECT_EQ(tree.Put("k", "v").status().code(), StatusCode::kFenced);
  EXPECT_EQ(session->server_view(), 7u);
  EXPECT_EQ(puts, 1);
  EXPECT_EQ(scripted->map_requests(), 0u) << "the map is its caller's";
}

TEST_F(RoutedSessionTest, NoKeyIsTakenUnderAViewBeforeTheCallerNamesOne) {
  auto session = ConnectRouted();
  auto tree = *session->OpenTree("t");
  EXPECT_EQ(tree.Put("k", "v").status().code(), StatusCode::kFenced);
  EXPECT_EQ(puts, 0);
}

TEST_F(RoutedSessionTest, OperationsOfOneRefusedBatchAllComeBackAndMayBeStartedAgainThere) {
  auto session = ConnectRouted();
  auto tree = *session->OpenTree("t");
  session->set_view(3);
  constexpr int kPuts = 200;
  int fenced = 0, done = 0;
  std::function<void(const std::string&)> put = [&](const std::string& key) {
    tree.PutAsync(key, "v", [&, key](Result<bool> result) {
      done += result.ok();
      if (result.status().code() != StatusCode::kFenced) return;
      ++fenced;
      session->set_view(session->server_view());
      put(key);
    });
  };
  for (int i = 0; i < kPuts; ++i) put(test::KeyOf(static_cast<uint64_t>(i)));
  EXPECT_TRUE(session->Ping().ok());  // in a batch of its own
  while (session->pending() > 0) session->Poll(1'000);
  EXPECT_EQ(done, kPuts);
  EXPECT_EQ(puts, kPuts);
  EXPECT_EQ(fenced, kPuts) << "all were sent before the first refusal came";
}

TEST_F(RoutedSessionTest, WhatIsAnsweredHasNotMissedItsDeadlineHoweverLongTheProcessStoodStill) {
  ManualClock manual;
  manual.AdvanceNs(kNsPerSecond);
  client::Options routed;
  routed.clock = &manual;
  routed.routed_by_caller = true;
  routed.deadline_ms = 1'000;
  routed.connect_timeout_ms = 1'000;
  auto session = Session::Connect(scripted->url(), routed);
  ASSERT_TRUE(session.ok()) << session.status();
  auto tree = *(*session)->OpenTree("t");
  (*session)->set_view(5);
  std::optional<Result<bool>> answered;
  tree.PutAsync("k", "v", [&answered](Result<bool> result) { answered = std::move(result); });
  (*session)->Flush();
  pollfd waited{};
  ASSERT_TRUE((*session)->BeginWait(&waited));
  ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
  manual.AdvanceNs(10 * kNsPerSecond);
  while (!answered) (*session)->Poll(1'000);
  EXPECT_TRUE(answered->ok()) << answered->status();
}

TEST_F(RoutedSessionTest, ViewIsKeptOverALostConnection) {
  auto session = ConnectRouted();
  auto tree = *session->OpenTree("t");
  session->set_view(5);
  ASSERT_TRUE(tree.Put("k", "v").ok());
  const std::string path = script_path();
  scripted.reset();
  std::filesystem::remove(path);
  StartScripted(6);
  while (session->server_view() != 6) session->Poll(10);
  EXPECT_EQ(tree.Put("k", "v").status().code(), StatusCode::kFenced);
}

// A session that routes by itself is with one server, which forwards what is others'.
TEST_F(RoutedSessionTest, SessionOfItsOwnTakesTheViewOfAMapOfSeveralRanges) {
  auto session = ConnectSession(scripted->url());
  auto tree = *session->OpenTree("t");
  ASSERT_TRUE(tree.Put("a", "1").ok());
  scripted->SetMap(8, {{.start = "", .url = ""}, {.start = "m", .url = "farleaf://127.0.0.1:1"}});
  EXPECT_TRUE(tree.Put("a", "1").ok());
  EXPECT_TRUE(tree.Put("z", "1").ok());
  EXPECT_EQ(session->server_view(), 8u);
  EXPECT_EQ(scripted->refusals(), 1u);
  EXPECT_EQ(puts, 3);
}

}  // namespace
}  // namespace farleaf::server
