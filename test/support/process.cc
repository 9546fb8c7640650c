#include "test/support/process.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

namespace farleaf {

std::string ProgramPath(const std::string& name) {
  return std::string(FARLEAF_PROGRAMS) + "/" + name;
}

std::string ComputeServerProcess::Name() const {
  const std::string output = process->Output();
  const size_t begin = output.find("compute server ");
  const size_t end = output.find_first_not_of("0123456789", begin + 15);
  return begin == std::string::npos ? "?" : output.substr(begin, end - begin);
}

std::string ComputeServerProcess::Id() const {
  const std::string name = Name();
  return name.substr(name.rfind(' ') + 1);
}

ProcessCluster::ProcessCluster(ClusterOptions options) : options_(std::move(options)) {
  if (options_.bootstrap == Bootstrap::kMemcached) {
    memcached_ = std::make_unique<MemcachedUnderTest>(File("memcached.txt"));
  }
  for (int id = 0; id < options_.memory_servers; ++id) {
    addresses_.push_back(FreeAddress(dsm::ListenHost()));
  }
  if (options_.bootstrap == Bootstrap::kFile) WriteDirectoryFile();
}

ProcessCluster::~ProcessCluster() {
  memory_servers_.clear();
  for (int i = 0; i < started_; ++i) {
    std::ifstream file(File(fmt::format("{}.log", i)));
    std::ostringstream text;
    text << file.rdbuf();
    for (const char* sign : {"Sanitizer", "runtime error:", "check failed"}) {
      EXPECT_EQ(text.str().find(sign), std::string::npos) << text.str();
    }
  }
}

void ProcessCluster::WriteDirectoryFile() const {
  std::ofstream file(File("pool"));
  file << "cluster " << options_.name << "\n";
  for (int id = 0; id < options_.memory_servers; ++id) {
    const std::string& place =
        options_.fabric == "shm" ? socket(id) : addresses_[static_cast<size_t>(id)];
    file << id << " " << options_.fabric << ":" << place << "\n";
  }
}

std::string ProcessCluster::bootstrap_url() const {
  return memcached_ ? memcached_->Url(options_.name) : "file:" + File("pool");
}

std::vector<std::string> ProcessCluster::MemoryServerFlags(int id) const {
  std::vector<std::string> flags{"--bootstrap",  bootstrap_url(),
                                 "--id",         std::to_string(id),
                                 "--size",       options_.region,
                                 "--chunk-size", options_.chunk,
                                 "--fabric",     options_.fabric,
                                 "--socket",     socket(id),
                                 "--listen",     addresses_[static_cast<size_t>(id)],
                                 "--lease-ms",   std::to_string(options_.lease_ms)};
  if (dsm::ListenHost() != dsm::kLoopback) flags.push_back("--insecure");
  flags.insert(flags.end(), options_.memory_server_flags.begin(),
               options_.memory_server_flags.end());
  return flags;
}

void ProcessCluster::StartMemoryServer(int id) {
  memory_servers_[id] = Start("memory_server", MemoryServerFlags(id));
}

void ProcessCluster::StartMemoryServers() {
  for (int id = 0; id < options_.memory_servers; ++id) StartMemoryServer(id);
  for (auto& [id, server] : memory_servers_) {
    ASSERT_TRUE(server->WaitForOutput(" serves ")) << server->Output();
  }
}

void ProcessCluster::StopMemoryServers() {
  for (auto& [id, server] : memory_servers_) server->Signal(SIGTERM);
  for (auto& [id, server] : memory_servers_) {
    const Ended ended = WaitFor(*server);
    EXPECT_EQ(ended.code, 0) << ended.output;
  }
  memory_servers_.clear();
}

void ProcessCluster::KillMemoryServer(int id) {
  memory_servers_.at(id)->Signal(SIGKILL);
  WaitFor(*memory_servers_.at(id));
  memory_servers_.erase(id);
}

ComputeServerProcess ProcessCluster::StartComputeServer(std::vector<std::string> flags,
                                                        std::string address) {
  flags.insert(flags.begin(), {"--bootstrap", bootstrap_url(), "--memory-servers-min",
                               std::to_string(options_.memory_servers), "--listen", address});
  ComputeServerProcess server{Start("compute_server", std::move(flags)), std::move(address)};
  EXPECT_TRUE(server.process->WaitForOutput("serving farleaf://")) << server.process->Output();
  return server;
}

Ended ProcessCluster::Control(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--pool", bootstrap_url()});
  return Run("farleafctl", std::move(arguments));
}

Ended ProcessCluster::RecoverMember(const std::string& id, int limit_ms) {
  const MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + static_cast<uint64_t>(limit_ms) * kNsPerMs;
  Ended recovered = Control({"recover", id});
  while (recovered.code != 0 && clock.NowNs() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    recovered = Control({"recover", id});
  }
  return recovered;
}

std::unique_ptr<ChildProcess> ProcessCluster::Start(const std::string& program,
                                                    std::vector<std::string> flags,
                                                    const std::vector<std::string>& prefix) {
  flags.insert(flags.begin(), ProgramPath(program));
  flags.insert(flags.begin(), prefix.begin(), prefix.end());
  return std::make_unique<ChildProcess>(std::move(flags), File(fmt::format("{}.log", started_++)));
}

Ended ProcessCluster::Run(const std::string& program, std::vector<std::string> flags) {
  return WaitFor(*Start(program, std::move(flags)));
}

Ended ProcessCluster::WaitFor(ChildProcess& process, int limit_ms) const {
  const auto code = process.Wait(limit_ms);
  return {code.value_or(Ended::kStillRunning), process.Output()};
}

nlohmann::json ProcessCluster::Json(const std::string& file) const {
  std::ifstream stream(File(file));
  auto json = nlohmann::json::parse(stream, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << file;
  return json;
}

}  // namespace farleaf
