// Servers of all protocols in this process, for tests of what clients and servers do to each other when one of them fails,
// lies, stalls or floods: two compute servers on one pool, whose trees a test may hold up, fail or change as it likes, or
// one over trees in maps.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "server/frontend/native_server.h"
#include "test/support/map_tree_host.h"
#include "test/support/pool_hosts.h"
#include "test/support/ruled_host.h"

namespace farleaf::test {

// Long enough for a busy machine; no test waits for it when all is well.
inline constexpr uint64_t kPatienceMs = 60'000;

std::string KeyOf(uint64_t i);

// What a RuledHost awaits before its trees' operations.
index::Task<Status> HoldUntilDeadline(index::OpContext& op, std::atomic<int>* held);
index::Task<Status> HoldUntilReleased(index::OpContext& op, std::atomic<int>* held,
                                      const std::atomic<bool>* released);

/// Where a server's front ends are.
struct FrontEndUrls {
  std::string tcp, unix_socket, memcached, redis;
};

/// The servers, and a directory for their sockets. What is asked of the i-th is asked of the only one where there is one, so
/// that clients who count go now to the one, now to the other.
struct NativeUnderTest : ::testing::Test {
  MonotonicClock clock;
  std::filesystem::path directory;
  farleaf::server::NativeServerOptions options;  ///< of both, but for where they listen
  std::unique_ptr<farleaf::server::NativeServer> server,
      other;  ///< `other`: null where there is one

  NativeUnderTest();
  ~NativeUnderTest() override;

  void SetUp() override;
  void TearDown() override;
  virtual size_t servers() const = 0;
  /// The trees behind the i-th.
  virtual farleaf::server::TreeHost& served(size_t i) = 0;
  /// Those that do not run, on the addresses that they had before.
  void StartServer();
  /// Text front ends, too.
  void ListenForRecords();

  /// Without a server, as the other one: makes a tree, or tells its content.
  void Add(const std::string& name, farleaf::server::protocol::TreeLayout layout =
                                        farleaf::server::protocol::TreeLayout::kBytes);
  static void AddTo(
      farleaf::server::TreeHost& host, const std::string& name,
      farleaf::server::protocol::TreeLayout layout = farleaf::server::protocol::TreeLayout::kBytes);
  std::map<std::string, std::string> Content(const std::string& name);

  const farleaf::server::NativeServer& at(size_t i) const {
    return i % 2 == 1 && other ? *other : *server;
  }
  std::unique_ptr<farleaf::server::NativeServer>& slot(size_t i) {
    return i % 2 == 1 ? other : server;
  }
  const std::string& tcp_url(size_t i = 0) const { return at(i).urls()[0]; }
  const std::string& unix_url(size_t i = 0) const { return at(i).urls()[1]; }
  std::string ring_url(size_t i = 0) const;
  const std::string& memcached_url(size_t i = 0) const { return at(i).memcached_urls()[0]; }
  const std::string& redis_url(size_t i = 0) const { return at(i).redis_urls()[0]; }
  /// Of all carriers, now of the one, now of the other.
  std::vector<std::string> all_urls() const { return {tcp_url(0), unix_url(1), ring_url(0)}; }
  FrontEndUrls front_ends(size_t i) const {
    return {tcp_url(i), unix_url(i), memcached_url(i), redis_url(i)};
  }
  std::string script_path() const { return (directory / "scripted.sock").string(); }

  /// Of all servers.
  farleaf::server::NativeServer::ConnectionCounts Connections() const;
  /// Until as many are open, or patience has ended. Whether they are.
  bool AwaitOpen(uint64_t connections) const;

  static client::Options Patient();
  static std::unique_ptr<client::Client> Connect(const std::string& url);
  static std::unique_ptr<client::Session> ConnectSession(const std::string& url);
  /// They still serve others.
  void ExpectServing();

 private:
  template <typename Call>
  static auto OnHost(farleaf::server::TreeHost& host, Call call);
  void StartOther();

  std::vector<std::string> others_listen_;
};

struct OneOverMaps : NativeUnderTest {
  MapTreeHost host{&clock};

  size_t servers() const override { return 1; }
  farleaf::server::TreeHost& served(size_t) override { return host; }
};

struct TwoOnOnePool : NativeUnderTest {
  PoolHosts pool;

  explicit TwoOnOnePool(uint64_t region_bytes = PoolHosts::kRegionBytes)
      : pool(2, 0, region_bytes) {}
  size_t servers() const override { return 2; }
  farleaf::server::TreeHost& served(size_t i) override { return pool.host(i % 2); }
};

/// The same, and each server's trees are as the test rules.
struct TwoRuledOnOnePool : NativeUnderTest {
  PoolHosts pool;
  RuledHost ruled[2]{RuledHost(&pool.host(0)), RuledHost(&pool.host(1))};

  /// `defer_seed`: PoolHosts'.
  explicit TwoRuledOnOnePool(uint64_t defer_seed = 0) : pool(2, defer_seed) {}
  size_t servers() const override { return 2; }
  farleaf::server::TreeHost& served(size_t i) override { return ruled[i % 2]; }
  // Of both.
  void SetView(uint32_t view) {
    for (RuledHost& each : ruled) each.set_view(view);
  }
  void SetBefore(const RuledHost::Before& before) {
    for (RuledHost& each : ruled) each.set_before(before);
  }
  /// Content, when nothing is held up any more.
  std::map<std::string, std::string> ContentLeft(const std::string& name) {
    SetBefore({});
    return Content(name);
  }
};

}  // namespace farleaf::test
