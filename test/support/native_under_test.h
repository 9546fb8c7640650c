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

inline std::string KeyOf(uint64_t i) { return "key" + std::to_string(1'000'000 + i); }

// What MapIndex awaits before its operations.
inline index::Task<Status> HoldUntilDeadline(index::OpContext& op, std::atomic<int>* held) {
  ++*held;
  while (!op.expired()) co_await op.worker.Sleep(kNsPerMs);
  co_return Status::DeadlineExceeded("held up by compute server 9");
}
inline index::Task<Status> HoldUntilReleased(index::OpContext& op, std::atomic<int>* held,
                                             const std::atomic<bool>* released) {
  ++*held;
  while (!*released && !op.expired()) co_await op.worker.Sleep(kNsPerMs);
  co_return Status::Ok();
}

/// The server, and a directory for its socket.
struct NativeUnderTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::filesystem::path directory;
  farleaf::server::NativeServerOptions options;
  std::unique_ptr<farleaf::server::NativeServer> server;

  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "farleaf-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory = pattern;
    options.listen = {"127.0.0.1:0"};
    options.unix_path = (directory / "server.sock").string();
    options.deadline_ms_max = kPatienceMs;
  }
  void TearDown() override {
    server.reset();
    std::filesystem::remove_all(directory);
  }
  virtual farleaf::server::TreeHost& served() { return host; }
  void StartServer() {
    auto started = farleaf::server::NativeServer::Start(&served(), &clock, options);
    ASSERT_TRUE(started.ok()) << started.status();
    server = std::move(*started);
    // The port stays when the server is started again.
    options.listen = {server->urls()[0].substr(std::string("farleaf://").size())};
  }
  const std::string& tcp_url() const { return server->urls()[0]; }
  const std::string& unix_url() const { return server->urls()[1]; }
  std::string ring_url() const { return "farleaf+ring:" + options.unix_path; }
  std::vector<std::string> all_urls() const { return {tcp_url(), unix_url(), ring_url()}; }
  std::string script_path() const { return (directory / "scripted.sock").string(); }
  static client::Options Patient() {
    client::Options patient;
    patient.deadline_ms = kPatienceMs;
    return patient;
  }
  static std::unique_ptr<client::Client> Connect(const std::string& url) {
    auto connected = client::Client::Connect(url, Patient());
    EXPECT_TRUE(connected.ok()) << connected.status();
    return std::move(*connected);
  }
  static std::unique_ptr<client::Session> ConnectSession(const std::string& url) {
    auto connected = client::Session::Connect(url, Patient());
    EXPECT_TRUE(connected.ok()) << connected.status();
    return std::move(*connected);
  }
  /// The server still serves others.
  void ExpectServing() {
    auto other = client::Client::Connect(unix_url(), Patient());
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_TRUE((*other)->Ping().ok());
  }
};

}  // namespace farleaf::test
