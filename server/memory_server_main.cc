// The memory server's process: configuration, log, announcement, and a clean end at SIGTERM.
//
// Exit codes: 0 stopped by a signal, 1 could not serve, 2 wrong configuration.

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/bootstrap/open_directory.h"
#include "server/config.h"
#include "server/logging.h"
#include "server/memory_server.h"
#include "server/metrics/http_listener.h"
#include "server/metrics/process_metrics.h"
#include "server/shutdown.h"

namespace farleaf::server {
namespace {

int Fail(const Status& status) {
  std::fprintf(stderr, "memory_server: %s\n", status.ToString().c_str());
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

/// What those who watch the server see. A server that is not announced serves those who know it, and has memory
/// that a restart would lose: that is told, but it is healthy.
Result<std::unique_ptr<HttpListener>> StartWatching(const std::string& listen, MemoryServer* server,
                                                    const std::atomic<bool>* announced,
                                                    const Clock* clock) {
  const uint64_t start_ns = clock->NowNs();
  HttpListener::Pages pages;
  pages["/metrics"] = [=] {
    MetricsText text;
    AppendProcessMetrics("memory_server", clock->NowNs() - start_ns, &text);
    text.Gauge("farleaf_healthy", "Whether /health answers 200.", {}, 1);
    text.Gauge("farleaf_memory_server_announced", "Whether the directory names this server.", {},
               announced->load() ? 1 : 0);
    server->AppendMetrics(&text);
    return HttpPage{200, std::string(MetricsText::kContentType), text.ToString()};
  };
  pages["/health"] = [=] {
    return HttpPage{.body = announced->load() ? "ok\n" : "ok, but the directory does not answer\n"};
  };
  auto started = HttpListener::Start(listen, std::move(pages));
  if (!started.ok()) return started.status().WithContext("metrics_listen");
  FARLEAF_LOG(info, "metrics at {}/metrics, health at {}/health", (*started)->url(),
              (*started)->url());
  return started;
}

void RenewUntilShutdown(MemoryServer& server, const dsm::Directory& directory,
                        const ShutdownSignal& shutdown, std::atomic<bool>& announced) {
  constexpr uint64_t kIdleMs = 60'000;  // a directory that needs no renewal
  const uint64_t interval_ms = directory.renew_interval_ms();
  while (!shutdown.WaitForMs(static_cast<uint32_t>(interval_ms > 0 ? interval_ms : kIdleMs))) {
    if (interval_ms == 0) continue;
    const Status status = server.Renew();
    if (!status.ok() && announced) {
      FARLEAF_LOG(warn, "not announced any more, trying again every {} ms: {}", interval_ms,
                  status.ToString());
    } else if (status.ok() && !announced) {
      FARLEAF_LOG(info, "announced again");
    }
    announced.store(status.ok());
  }
}

int Run(const MemoryServerOptions& options, ShutdownSignal& shutdown) {
  const MonotonicClock clock;
  auto directory = dsm::OpenDirectory(options.bootstrap);
  if (!directory.ok()) return Fail(directory.status());
  auto incarnation = dsm::DrawIncarnation();
  if (!incarnation.ok()) return Fail(incarnation.status());
  MemoryServer::Deps deps;
  deps.directory = directory->get();
  deps.clock = &clock;
  deps.incarnation = *incarnation;
  deps.prefault_progress = [&shutdown](int percent) {
    if (percent % 10 == 0) FARLEAF_LOG(info, "prefaulting: {} %", percent);
    return !shutdown.requested();
  };
  auto server = MemoryServer::Start(options, std::move(deps));
  if (!server.ok()) {
    if (shutdown.requested()) return 0;
    return Fail(server.status());
  }
  FARLEAF_LOG(info, "memory server {} of cluster '{}' serves {} at {} (incarnation {:016x}{})",
              options.id, (*directory)->cluster(), FormatByteSize(options.region_bytes),
              (*server)->endpoint().endpoint, *incarnation,
              (*server)->uses_hugepages() ? ", hugepages" : "");
  std::atomic<bool> announced{true};
  std::unique_ptr<HttpListener> watchers;
  if (!options.metrics_listen.empty()) {
    auto started = StartWatching(options.metrics_listen, server->get(), &announced, &clock);
    if (!started.ok()) return Fail(started.status());
    watchers = std::move(*started);
  }
  RenewUntilShutdown(**server, **directory, shutdown, announced);
  watchers.reset();
  FARLEAF_LOG(info, "shutting down; {} connections are open", (*server)->connections());
  if (Status status = (*server)->Stop(); !status.ok()) {
    FARLEAF_LOG(warn, "the announcement stays until it expires: {}", status.ToString());
  }
  return 0;
}

int Main(int argc, char** argv) {
  MemoryServerOptions options;
  ConfigSchema schema("memory_server", "exposes this machine's memory to a pool.");
  DeclareOptions(schema, &options);
  auto outcome = schema.Parse(argc, argv);
  if (!outcome.ok()) {
    std::fprintf(stderr, "memory_server: %s\n", std::string(outcome.status().message()).c_str());
    return 2;
  }
  if (*outcome != ConfigOutcome::kRun) {
    const bool help = *outcome == ConfigOutcome::kHelp;
    std::fputs((help ? schema.Help() : schema.Version()).c_str(), stdout);
    return 0;
  }
  if (Status status = SetUpLog("memory_server", options.log); !status.ok()) return Fail(status);
  auto shutdown = ShutdownSignal::Install();
  if (!shutdown.ok()) return Fail(shutdown.status());
  return Run(options, **shutdown);
}

}  // namespace
}  // namespace farleaf::server

int main(int argc, char** argv) { return farleaf::server::Main(argc, argv); }
