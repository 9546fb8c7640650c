// Servers of the same records, for tests of the protocols on them: one over a map, one over an LSM store, and two compute
// servers on one pool, of which a client asks now the one, now the other.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/frontend/native_server.h"
#include "test/support/lsm_trees.h"
#include "test/support/map_tree_host.h"
#include "test/support/pool_hosts.h"

namespace farleaf::test {

/// Servers of the same records, and the time that they all see unless the options have another.
class RecordServers {
 public:
  virtual ~RecordServers() = default;
  std::vector<std::unique_ptr<server::NativeServer>> servers;
  ManualClock wall;
  MonotonicClock clock;
  /// The largest value that they take with the limits' defaults.
  size_t data_bytes_max = size_t{1} << 20;

  std::string memcached_url(size_t i) const {
    return servers[i % servers.size()]->memcached_urls()[0];
  }
  std::string redis_url(size_t i) const { return servers[i % servers.size()]->redis_urls()[0]; }

 protected:
  RecordServers() { wall.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond); }
  void Serve(server::TreeHost* host, server::NativeServerOptions options) {
    options.listen = {"127.0.0.1:0"};
    options.memcached.listen = {"127.0.0.1:0"};
    options.redis.listen = {"127.0.0.1:0"};
    if (options.wall_clock == nullptr) options.wall_clock = &wall;
    auto started = server::NativeServer::Start(host, &clock, std::move(options));
    FARLEAF_CHECK(started.ok(), started.status());
    servers.push_back(std::move(*started));
  }
};

class MapServer final : public RecordServers {
 public:
  explicit MapServer(const server::NativeServerOptions& options) { Serve(&host_, options); }
  ~MapServer() override { servers.clear(); }

 private:
  MapTreeHost host_{&clock};
};

class LsmServer final : public RecordServers {
 public:
  explicit LsmServer(server::NativeServerOptions options) {
    // As a compute server has them, whose engine takes no larger ones.
    data_bytes_max = index::lsm::kValueBytesMax - server::kRecordHeaderBytes;
    for (size_t* max :
         {&options.memcached.limits.value_bytes_max, &options.redis.limits.value_bytes_max}) {
      *max = std::min(*max, data_bytes_max);
    }
    Serve(&trees_.host(), std::move(options));
  }
  ~LsmServer() override { servers.clear(); }

 private:
  LsmTrees trees_;
};

/// Two compute servers, each with a pool and caches of its own. `defer_seed`: verbs suspend, and end in any order.
class TwoComputeServers final : public RecordServers {
 public:
  TwoComputeServers(const server::NativeServerOptions& options, uint64_t defer_seed)
      : hosts_(2, defer_seed) {
    for (size_t i = 0; i < 2; ++i) Serve(&hosts_.host(i), options);
  }
  ~TwoComputeServers() override { servers.clear(); }
  dsm::Pool& pool(size_t i) { return hosts_.pool(i); }

 private:
  PoolHosts hosts_;
};

enum class RecordServersKind { kMap, kLsm, kPool, kPoolLate };

inline std::unique_ptr<RecordServers> StartRecordServers(
    RecordServersKind kind, const server::NativeServerOptions& options) {
  switch (kind) {
    case RecordServersKind::kMap:
      return std::make_unique<MapServer>(options);
    case RecordServersKind::kLsm:
      return std::make_unique<LsmServer>(options);
    case RecordServersKind::kPool:
      return std::make_unique<TwoComputeServers>(options, 0);
    default:
      return std::make_unique<TwoComputeServers>(options, 7);
  }
}

struct RecordServersTest : ::testing::TestWithParam<RecordServersKind> {
  static std::unique_ptr<RecordServers> Start(const server::NativeServerOptions& options = {}) {
    return StartRecordServers(GetParam(), options);
  }
};

inline const auto kAllRecordServers =
    ::testing::Values(RecordServersKind::kMap, RecordServersKind::kLsm, RecordServersKind::kPool,
                      RecordServersKind::kPoolLate);
inline std::string RecordServersNameOf(RecordServersKind kind) {
  return kind == RecordServersKind::kMap    ? "OneServerOverAMap"
         : kind == RecordServersKind::kLsm  ? "OneServerOverAnLsmStore"
         : kind == RecordServersKind::kPool ? "TwoOnOnePool"
                                            : "TwoOnOnePoolLateVerbs";
}
inline std::string RecordServersName(const ::testing::TestParamInfo<RecordServersKind>& kind) {
  return RecordServersNameOf(kind.param);
}

}  // namespace farleaf::test
