// Servers of the same records, for tests of the protocols on them: one over a map, one over an LSM store, and two compute
// servers on one pool, of which a client asks now the one, now the other.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "server/frontend/native_server.h"
#include "test/support/pool_hosts.h"

namespace farleaf::test {

/// Servers of the same records, and the time that they all see unless the options have another.
class RecordServers {
 public:
  virtual ~RecordServers();
  std::vector<std::unique_ptr<server::NativeServer>> servers;
  ManualClock wall;
  MonotonicClock clock;
  /// The largest value that they take with the limits' defaults.
  size_t data_bytes_max = size_t{1} << 20;

  std::string memcached_url(size_t i) const;
  std::string redis_url(size_t i) const;

 protected:
  RecordServers();
  void Serve(server::TreeHost* host, server::NativeServerOptions options);
};

/// Two compute servers, each with a pool and caches of its own. `defer_seed`: verbs suspend, and end in any order.
class TwoComputeServers final : public RecordServers {
 public:
  TwoComputeServers(const server::NativeServerOptions& options, uint64_t defer_seed);
  ~TwoComputeServers() override;
  dsm::Pool& pool(size_t i) { return hosts_.pool(i); }

 private:
  PoolHosts hosts_;
};

enum class RecordServersKind { kMap, kLsm, kPool, kPoolLate };

std::unique_ptr<RecordServers> StartRecordServers(RecordServersKind kind,
                                                  const server::NativeServerOptions& options);

struct RecordServersTest : ::testing::TestWithParam<RecordServersKind> {
  static std::unique_ptr<RecordServers> Start(const server::NativeServerOptions& options = {}) {
    return StartRecordServers(GetParam(), options);
  }
};

inline const auto kAllRecordServers =
    ::testing::Values(RecordServersKind::kMap, RecordServersKind::kLsm, RecordServersKind::kPool,
                      RecordServersKind::kPoolLate);
std::string RecordServersNameOf(RecordServersKind kind);
std::string RecordServersName(const ::testing::TestParamInfo<RecordServersKind>& kind);

}  // namespace farleaf::test
