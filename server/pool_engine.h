// PoolEngine: an engine whose trees are in a pool of memory servers, which it joins.
//
// Thread rule: that of Engine.
#pragma once

#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "index/blink/options.h"
#include "server/engine.h"
#include "server/member_recovery.h"
#include "server/pool_tree_host.h"
#include "server/pool_watch.h"

namespace farleaf::server {

struct PoolEngineOptions {
  std::string bootstrap;  ///< memcached://HOST:PORT/CLUSTER or file:PATH
  uint32_t memory_servers_min = 1;
  uint64_t join_wait_ms = 30'000;
  index::TreeOptions tree;
  uint64_t recover_after_ms = 10'000;  ///< dead compute servers' things are returned; 0: never
};

class PoolEngine final : public Engine {
 public:
  /// Waits up to join_wait_ms for the pool. `seed` draws the workers' jitter; `joins`: how often this process has joined a pool,
  /// this time included. `clock` outlives the engine.
  static Result<std::unique_ptr<PoolEngine>> Join(const PoolEngineOptions& options, uint64_t seed,
                                                  uint64_t joins, const Clock* clock);
  /// Leaves the pool, if Close did not.
  ~PoolEngine() override;

  TreeHost& host() override { return *host_; }
  Status StartBeside(Watched watched) override;
  void StopBeside() override;
  Status fenced() const override { return pool_->fenced(); }
  Status Health() const override;
  void AppendMetrics(MetricsText* out) const override;
  std::string Describe() const override;
  Status Close(const Hurried& hurried) override;

 private:
  PoolEngine(const PoolEngineOptions& options, std::unique_ptr<dsm::Pool> pool, uint64_t joins);

  const PoolEngineOptions options_;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<PoolTreeHost> host_;
  std::unique_ptr<MemberRecovery> recovery_;
  std::unique_ptr<PoolWatch> watch_;  // null: nobody watches
};

}  // namespace farleaf::server
