// compute_server: joins a pool of memory servers and serves its trees to clients.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>

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

void ServeUntilShutdown(const ComputeServerOptions& options, const ComputeServer& server,
                        const ShutdownSignal& shutdown) {
  const uint64_t interval_s = options.stats_interval_s != 0 ? options.stats_interval_s : 3600;
  while (!shutdown.WaitForMs(static_cast<uint32_t>(interval_s * 1'000))) {
    if (options.stats_interval_s == 0) continue;
    const auto connections = server.native().Connections();
    FARLEAF_LOG(info, "{} connections; {}", connections.open, server.native().Stats().Summary());
  }
}

Status Serve(const ComputeServerOptions& options) {
  auto shutdown = ShutdownSignal::Install();
  if (!shutdown.ok()) return shutdown.status();
  FARLEAF_RETURN_IF_ERROR(SetUpLog("compute_server", options.log));
  const MonotonicClock clock;
  auto server = ComputeServer::Start(options, DrawSeed(), &clock);
  if (!server.ok()) return server.status();
  dsm::Pool& pool = (*server)->pool();
  FARLEAF_LOG(info, "{} joined {} memory servers over {}", pool.self().ToString(),
              pool.fabric().regions().size(), pool.fabric().name());
  for (const std::string& url : (*server)->native().urls()) FARLEAF_LOG(info, "serving {}", url);
  if (!options.ready_file.empty()) {
    FARLEAF_RETURN_IF_ERROR(WriteReadyFile(options.ready_file, (*server)->native().urls()));
  }
  ServeUntilShutdown(options, **server, **shutdown);
  FARLEAF_LOG(info, "shutting down");
  if (!options.ready_file.empty()) std::remove(options.ready_file.c_str());
  FARLEAF_RETURN_IF_ERROR((*server)->Stop());
  FARLEAF_LOG(info, "left the pool");
  return Status::Ok();
}

int Main(int argc, char** argv) {
  ComputeServerOptions options;
  ConfigSchema schema("compute_server",
                      "Joins a pool of memory servers and serves its trees to clients.");
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
  const Status served = Serve(options);
  if (served.ok()) return 0;
  fmt::print(stderr, "compute_server: {}\n", served.ToString());
  return served.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace farleaf::server

int main(int argc, char** argv) { return farleaf::server::Main(argc, argv); }
