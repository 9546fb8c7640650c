// compute_server: serves trees to clients: those of a pool of memory servers, or of a store on disk.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "dsm/base/log.h"
#include "server/compute_server.h"
#include "server/shutdown.h"

namespace farleaf::server {
namespace {

/// Whole or not at all: scripts wait for the file and read it at once.
Status WriteReadyFile(const std::string& path, const std::vector<std::string>& urls) {
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::trunc);
  file << ::getpid() << '\n';
  for (const std::string& url : urls) file << url << '\n';
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return Status::IoError("cannot write the ready file " + path);
  }
  return Status::Ok();
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

constexpr uint32_t kFenceLookMs = 100;
constexpr uint32_t kRejoinPauseMs = 500;

Status Announce(const ComputeServerOptions& options, ComputeServer& server) {
  FARLEAF_LOG(info, "{}", server.engine().Describe());
  std::vector<std::string> urls = server.native().urls();
  for (const auto* others : {&server.native().memcached_urls(), &server.native().redis_urls()}) {
    urls.insert(urls.end(), others->begin(), others->end());
  }
  for (const std::string& url : urls) FARLEAF_LOG(info, "serving {}", url);
  if (const std::string url = server.metrics_url(); !url.empty()) {
    FARLEAF_LOG(info, "metrics at {}/metrics, health at {}/health", url, url);
  }
  return options.ready_file.empty() ? Status::Ok() : WriteReadyFile(options.ready_file, urls);
}

void Withdraw(const ComputeServerOptions& options) {
  if (!options.ready_file.empty()) std::remove(options.ready_file.c_str());
}

/// Until it works, or shutdown is asked for.
Status Rejoin(const ComputeServerOptions& options, ComputeServer& server,
              const ShutdownSignal& shutdown) {
  Withdraw(options);
  FARLEAF_LOG(warn, "dropping everything and joining again, since {}", server.fenced().ToString());
  bool told = false;
  do {
    const Status joined = server.Rejoin(DrawSeed());
    if (joined.ok()) return Announce(options, server);
    if (!std::exchange(told, true)) {
      FARLEAF_LOG(warn, "trying again every {} ms to join: {}", kRejoinPauseMs, joined.ToString());
    }
  } while (!shutdown.WaitForMs(kRejoinPauseMs));
  return Status::Ok();
}

void Reload(ComputeServer& server) {
  const Status reloaded = server.ReloadTls();
  if (reloaded.ok()) {
    FARLEAF_LOG(info, "read the certificate again");
  } else {
    FARLEAF_LOG(error, "going on with the old certificate: {}", reloaded.ToString());
  }
}

Status ServeUntilShutdown(const ComputeServerOptions& options, ComputeServer& server,
                          const ShutdownSignal& shutdown, ReloadSignal& reload,
                          const Clock& clock) {
  const uint64_t interval_ns = options.stats_interval_s * kNsPerSecond;
  uint64_t stats_due_ns = clock.NowNs() + interval_ns;
  while (!shutdown.WaitForMs(kFenceLookMs)) {
    if (reload.Take()) Reload(server);
    if (!server.fenced().ok()) FARLEAF_RETURN_IF_ERROR(Rejoin(options, server, shutdown));
    if (interval_ns == 0 || clock.NowNs() < stats_due_ns || shutdown.requested()) continue;
    stats_due_ns += interval_ns;
    const auto connections = server.native().Connections();
    FARLEAF_LOG(info, "{} connections; {}", connections.open, server.native().Stats().Summary());
  }
  return Status::Ok();
}

Status Serve(ComputeServerOptions options) {
  auto shutdown = ShutdownSignal::Install();
  if (!shutdown.ok()) return shutdown.status();
  options.unwanted = [&shutdown] { return (*shutdown)->requested(); };
  auto reload = ReloadSignal::Install();
  if (!reload.ok()) return reload.status();
  FARLEAF_RETURN_IF_ERROR(SetUpLog("compute_server", options.log));
  const MonotonicClock clock;
  auto server = ComputeServer::Start(options, DrawSeed(), &clock);
  if (!server.ok() && (*shutdown)->requested()) {
    FARLEAF_LOG(info, "ended before it served: {}", server.status().ToString());
    return Status::Ok();
  }
  if (!server.ok()) return server.status();
  if (!(*shutdown)->requested()) {
    FARLEAF_RETURN_IF_ERROR(Announce(options, **server));
    FARLEAF_RETURN_IF_ERROR(ServeUntilShutdown(options, **server, **shutdown, **reload, clock));
  }
  (*shutdown)->AwaitAnother();
  FARLEAF_LOG(info, "shutting down");
  Withdraw(options);
  if (!(*server)->serves()) {
    FARLEAF_LOG(info, "ended outside of the pool");
    return Status::Ok();
  }
  return (*server)->Stop([&shutdown] { return (*shutdown)->another(); });
}

int Main(int argc, char** argv) {
  ComputeServerOptions options;
  ConfigSchema schema(
      "compute_server",
      "Serves trees to clients: in a pool of memory servers, or in a store on disk.");
  AddComputeServerOptions(schema, &options);
  const auto outcome = schema.Parse(argc, argv);
  if (!outcome.ok()) {
    fmt::print(stderr, "compute_server: {}\n", outcome.status().message());
    return 2;
  }
  if (*outcome != ConfigOutcome::kRun) {
    fmt::print("{}", *outcome == ConfigOutcome::kHelp ? schema.Help() : schema.Version());
    return 0;
  }
  if (const Status wrong = CheckEngineOptions(schema, &options); !wrong.ok()) {
    fmt::print(stderr, "compute_server: {}\n", wrong.message());
    return 2;
  }
  const Status served = Serve(options);
  if (served.ok()) return 0;
  fmt::print(stderr, "compute_server: {}\n", served.ToString());
  return served.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace farleaf::server

int main(int argc, char** argv) { return farleaf::server::Main(argc, argv); }
