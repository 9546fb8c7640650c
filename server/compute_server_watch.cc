// What a compute server tells those who watch it.
#include <utility>

#include "server/compute_server.h"
#include "server/metrics/process_metrics.h"

namespace farleaf::server {

Status ComputeServer::StartWatching() {
  if (options_.metrics_listen.empty()) return Status::Ok();
  HttpListener::Pages pages;
  pages["/metrics"] = [this] {
    return HttpPage{200, std::string(MetricsText::kContentType), MetricsPage()};
  };
  pages["/health"] = [this] {
    const Status health = Health();
    if (health.ok()) return HttpPage{.body = "ok\n"};
    return HttpPage{.status = 503, .body = std::string(health.message()) + "\n"};
  };
  auto started = HttpListener::Start(options_.metrics_listen, std::move(pages));
  if (!started.ok()) return started.status().WithContext("metrics_listen");
  watchers_ = std::move(*started);
  return Status::Ok();
}

void ComputeServer::Enter(Phase phase) {
  std::lock_guard lock(phase_mutex_);
  phase_ = phase;
}

Status ComputeServer::Health() const {
  const bool on_disk = options_.engine == EngineKind::kLsm;
  std::lock_guard lock(phase_mutex_);
  switch (phase_) {
    case Phase::kJoining:
      if (!options_.cluster.membership.empty()) {
        return Status::Unavailable("standing by: another node of the cluster serves");
      }
      return Status::Unavailable(on_disk ? "opening the store" : "joining the pool");
    case Phase::kOutside:
      return Status::Unavailable(on_disk ? "the store is being closed" : "not in the pool");
    case Phase::kDraining:
      return Status::Unavailable("draining: running requests are ended, new ones are refused");
    case Phase::kServing:
      break;
  }
  return engine_->Health();
}

std::string ComputeServer::MetricsPage() const {
  MetricsText text;
  AppendProcessMetrics("compute_server", clock_->NowNs() - start_ns_, &text);
  const bool healthy = Health().ok();
  text.Gauge("farleaf_healthy", "Whether /health answers 200.", {}, healthy ? 1 : 0);
  std::lock_guard lock(phase_mutex_);
  if (phase_ == Phase::kServing || phase_ == Phase::kDraining) {
    native_->AppendMetrics(&text);
    engine_->AppendMetrics(&text);
  }
  return text.ToString();
}

}  // namespace farleaf::server
