// The memory server's process: configuration, log, announcement, and a clean end at SIGTERM.
//
// Exit codes: 0 stopped by a signal, 1 could not serve, 2 wrong configuration.
#include <sys/random.h>

#include <cstdio>
#include <string>

#include "dsm/base/log.h"
#include "dsm/bootstrap/open_directory.h"
#include "server/config.h"
#include "server/logging.h"
#include "server/memory_server.h"
#include "server/shutdown.h"

namespace farleaf::server {
namespace {

int Fail(const Status& status) {
  std::fprintf(stderr, "memory_server: %s\n", status.ToString().c_str());
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

Result<uint64_t> DrawIncarnation() {
  uint64_t incarnation = 0;
  while (incarnation == 0) {
    if (::getrandom(&incarnation, sizeof incarnation, 0) != sizeof incarnation) {
      return Status::IoError("the system gives no random numbers");
    }
  }
  return incarnation;
}

void RenewUntilShutdown(MemoryServer& server, const dsm::Directory& directory,
                        const ShutdownSignal& shutdown) {
  constexpr uint64_t kIdleMs = 60'000;  // a directory that needs no renewal
  const uint64_t interval_ms = directory.renew_interval_ms();
  bool announced = true;
  while (!shutdown.WaitForMs(static_cast<uint32_t>(interval_ms > 0 ? interval_ms : kIdleMs))) {
    if (interval_ms == 0) continue;
    const Status status = server.Renew();
    if (!status.ok() && announced) {
      FARLEAF_LOG(warn, "not announced any more, trying again every {} ms: {}", interval_ms,
                  status.ToString());
    } else if (status.ok() && !announced) {
      FARLEAF_LOG(info, "announced again");
    }
    announced = status.ok();
  }
}

int Run(const MemoryServerOptions& options, ShutdownSignal& shutdown) {
  const MonotonicClock clock;
  auto directory = dsm::OpenDirectory(options.bootstrap);
  if (!directory.ok()) return Fail(directory.status());
  auto incarnation = DrawIncarnation();
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
  RenewUntilShutdown(**server, **directory, shutdown);
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
