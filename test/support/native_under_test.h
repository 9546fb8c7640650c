// A server of the native protocol in this process, over trees in maps: for tests of what clients and servers
// do to each other when one of them fails, lies, stalls or floods.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "client/client.h"
#include "server/frontend/native_server.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

// Long enough for a busy machine; no test waits for it when all is well.
inline constexpr uint64_t kPatienceMs = 60'000;

std::string KeyOf(uint64_t i);

// What MapIndex awaits before its operations.
index::Task<Status> HoldUntilDeadline(index::OpContext& op, std::atomic<int>* held);
index::Task<Status> HoldUntilReleased(index::OpContext& op, std::atomic<int>* held,
                                      const std::atomic<bool>* released);

/// The server, and a directory for its socket.
struct NativeUnderTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::filesystem::path directory;
  farleaf::server::NativeServerOptions options;
  std::unique_ptr<farleaf::server::NativeServer> server;

  NativeUnderTest();
  ~NativeUnderTest() override;

  void SetUp() override;
  void TearDown() override;
  virtual farleaf::server::TreeHost& served() { return host; }
  void StartServer();
  const std::string& tcp_url() const { return server->urls()[0]; }
  const std::string& unix_url() const { return server->urls()[1]; }
  std::string ring_url() const { return "farleaf+ring:" + options.unix_path; }
  std::vector<std::string> all_urls() const { return {tcp_url(), unix_url(), ring_url()}; }
  std::string script_path() const { return (directory / "scripted.sock").string(); }
  static client::Options Patient();
  static std::unique_ptr<client::Client> Connect(const std::string& url);
  static std::unique_ptr<client::Session> ConnectSession(const std::string& url);
  /// The server still serves others.
  void ExpectServing();
};

}  // namespace farleaf::test
