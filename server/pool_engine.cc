#include "server/pool_engine.h"

#include <fmt/format.h>

#include <utility>

#include "dsm/base/log.h"
#include "dsm/bootstrap/open_fabric.h"

namespace farleaf::server {

Result<std::unique_ptr<PoolEngine>> PoolEngine::Join(const PoolEngineOptions& options,
                                                     uint64_t seed, uint64_t joins,
                                                     const Clock* clock) {
  dsm::OpenFabricOptions fabric_options;
  fabric_options.servers_min = options.memory_servers_min;
  fabric_options.wait_ms = options.join_wait_ms;
  auto fabric = dsm::OpenFabric(options.bootstrap, fabric_options, clock);
  if (!fabric.ok()) return fabric.status();
  dsm::PoolOptions pool_options;
  pool_options.seed = seed;
  auto pool = dsm::Pool::Join(std::move(*fabric), pool_options, clock);
  if (!pool.ok()) return pool.status();
  return std::unique_ptr<PoolEngine>(new PoolEngine(options, std::move(*pool), joins));
}

PoolEngine::PoolEngine(const PoolEngineOptions& options, std::unique_ptr<dsm::Pool> pool,
                       uint64_t joins)
    : options_(options),
      pool_(std::move(pool)),
      // What clients are told is the pool's directory, not this machine's way to it.
      host_(std::make_unique<PoolTreeHost>(pool_.get(),
                                           options.bootstrap.substr(0, options.bootstrap.find('?')),
                                           options.tree, joins)) {}

PoolEngine::~PoolEngine() {
  StopBeside();
  host_.reset();
  if (pool_) (void)pool_->Leave();  // whoever is fenced cannot leave in order
}

Status PoolEngine::StartBeside(Watched watched) {
  if (options_.recover_after_ms > 0) {
    MemberRecovery::Options recovery;
    recovery.after_ms = options_.recover_after_ms;
    recovery.tree = options_.tree;
    auto recovering = MemberRecovery::Start(pool_.get(), host_.get(), std::move(recovery));
    if (!recovering.ok()) return recovering.status();
    recovery_ = std::move(*recovering);
  }
  if (watched == Watched::kNo) return Status::Ok();
  auto watch = PoolWatch::Start(pool_.get());
  if (!watch.ok()) return watch.status();
  watch_ = std::move(*watch);
  return Status::Ok();
}

void PoolEngine::StopBeside() {
  watch_.reset();
  recovery_.reset();
}

Status PoolEngine::Health() const {
  const Status cut_off = fenced();
  if (!cut_off.ok()) return Status::Fenced("fenced: " + std::string(cut_off.message()));
  return watch_ ? watch_->CheckMemoryServers() : Status::Ok();
}

void PoolEngine::AppendMetrics(MetricsText* out) const {
  if (watch_) watch_->AppendMetrics(out);
}

std::string PoolEngine::Describe() const {
  return fmt::format("{} joined {} memory servers over {}", pool_->self().ToString(),
                     pool_->fabric().regions().size(), pool_->fabric().name());
}

Status PoolEngine::Close(const Hurried& /*hurried*/) {
  StopBeside();
  host_.reset();
  const Status left = pool_->Leave();
  pool_.reset();
  if (left.ok()) {
    FARLEAF_LOG(info, "left the pool");
    return left;
  }
  FARLEAF_LOG(warn, "ending without having left the pool: {}", left.ToString());
  return left.WithContext("the pool was not left in good order");
}

}  // namespace farleaf::server
