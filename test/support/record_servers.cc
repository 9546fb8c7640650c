#include "test/support/record_servers.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"
#include "test/support/lsm_trees.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

RecordServers::RecordServers() { wall.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond); }

RecordServers::~RecordServers() = default;

std::string RecordServers::memcached_url(size_t i) const {
  return servers[i % servers.size()]->memcached_urls()[0];
}

std::string RecordServers::redis_url(size_t i) const {
  return servers[i % servers.size()]->redis_urls()[0];
}

void RecordServers::Serve(server::TreeHost* host, server::NativeServerOptions options) {
  options.listen = {"127.0.0.1:0"};
  options.memcached.listen = {"127.0.0.1:0"};
  options.redis.listen = {"127.0.0.1:0"};
  if (options.wall_clock == nullptr) options.wall_clock = &wall;
  auto started = server::NativeServer::Start(host, &clock, std::move(options));
  FARLEAF_CHECK(started.ok(), started.status());
  servers.push_back(std::move(*started));
}

TwoComputeServers::TwoComputeServers(const server::NativeServerOptions& options,
                                     uint64_t defer_seed)
    : hosts_(2, defer_seed) {
  for (size_t i = 0; i < 2; ++i) Serve(&hosts_.host(i), options);
}

TwoComputeServers::~TwoComputeServers() { servers.clear(); }

namespace {

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

}  // namespace

std::unique_ptr<RecordServers> StartRecordServers(RecordServersKind kind,
                                                  const server::NativeServerOptions& options) {
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

std::string RecordServersNameOf(RecordServersKind kind) {
  return kind == RecordServersKind::kMap    ? "OneServerOverAMap"
         : kind == RecordServersKind::kLsm  ? "OneServerOverAnLsmStore"
         : kind == RecordServersKind::kPool ? "TwoOnOnePool"
                                            : "TwoOnOnePoolLateVerbs";
}

std::string RecordServersName(const ::testing::TestParamInfo<RecordServersKind>& kind) {
  return RecordServersNameOf(kind.param);
}

}  // namespace farleaf::test
