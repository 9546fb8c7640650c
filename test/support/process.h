// Process: the shipped programs as processes: a pool of memory servers, compute servers that join
// it, and commands that run against it, in a folder of their own.
//
//   ProcessCluster cluster({.fabric = "tcp", .bootstrap = Bootstrap::kFile});
//   cluster.StartMemoryServers();
//   const Ended ycsb = cluster.Run("ycsb", {"--target", cluster.pool_target(), …});
//   EXPECT_EQ(ycsb.code, 0) << ycsb.output;
//
// Invariants: everything started is gone when the cluster is; nothing waits for time to pass.
// Thread rule: one thread.
#pragma once

#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "test/support/child_process.h"
#include "test/support/fabric_under_test.h"
#include "test/support/free_address.h"
#include "test/support/memcached_under_test.h"
#include "test/support/tested_fabrics.h"

namespace farleaf {

/// What a bounded wait may take on a machine that does much else.
inline constexpr uint64_t kPatienceMs = 60'000;
/// The code of a process that SIGKILL has ended.
inline constexpr int kKilled = 128 + SIGKILL;

/// "build/release/bin/ycsb" for "ycsb".
std::string ProgramPath(const std::string& name);

/// How a program ended. `code` is 128 + signal where one killed it, kStillRunning at the limit.
struct Ended {
  static constexpr int kStillRunning = -1;
  int code = kStillRunning;
  std::string output;  ///< both streams

  bool says(std::string_view text) const { return output.find(text) != std::string::npos; }
};

enum class Bootstrap : uint8_t { kFile, kMemcached };

struct ClusterOptions {
  std::string fabric = "shm";  ///< as in --fabric
  Bootstrap bootstrap = Bootstrap::kFile;
  std::string name = "tested";
  int memory_servers = 2;
  std::string region = "64MiB";
  std::string chunk = "1MiB";
  /// Long by default: sanitizers and busy machines keep processes silent for seconds.
  int lease_ms = 600'000;
  std::vector<std::string> memory_server_flags = {};  ///< besides these
};

/// A compute server's process, and how its clients reach it.
struct ComputeServerProcess {
  std::unique_ptr<ChildProcess> process;
  std::string address;  ///< HOST:PORT
  std::string url() const { return "farleaf://" + address; }
  /// "compute server 3" as messages of the pool name it.
  std::string Name() const;
  /// "3" for "compute server 3".
  std::string Id() const;
};

class ProcessCluster {
 public:
  explicit ProcessCluster(ClusterOptions options);
  /// Fails the test if a program ended in a sanitizer's report or a failed check.
  ~ProcessCluster();

  /// All of them, ready for clients.
  void StartMemoryServers();
  void StartMemoryServer(int id);
  ChildProcess& memory_server(int id) { return *memory_servers_.at(id); }
  /// Ends them by SIGTERM and expects exit code 0.
  void StopMemoryServers();
  void KillMemoryServer(int id);

  /// Serving, or a fatal failure of the test. `address` may name a port that was used before.
  ComputeServerProcess StartComputeServer(std::vector<std::string> flags = {},
                                          std::string address = FreeAddress());

  /// farleafctl, on the pool itself.
  Ended Control(std::vector<std::string> arguments);
  /// What a dead compute server held comes back, as soon as all memory servers have cut it off. The last
  /// attempt, where that does not come about in time.
  Ended RecoverMember(const std::string& id, int limit_ms = 60'000);

  /// `prefix`: a command that runs another one in its place, whose arguments are those of the program.
  std::unique_ptr<ChildProcess> Start(const std::string& program, std::vector<std::string> flags,
                                      const std::vector<std::string>& prefix = {});
  Ended Run(const std::string& program, std::vector<std::string> flags);
  Ended WaitFor(ChildProcess& process, int limit_ms = 60'000) const;

  std::string bootstrap_url() const;
  std::string pool_target() const { return "pool:" + bootstrap_url(); }
  std::string File(const std::string& name) const { return folder_.File(name); }
  std::string socket(int id) const { return File(std::to_string(id) + ".sock"); }
  /// The flags of memory server `id`, as StartMemoryServer gives them.
  std::vector<std::string> MemoryServerFlags(int id) const;
  nlohmann::json Json(const std::string& file) const;
  MemcachedUnderTest& memcached() { return *memcached_; }
  const ClusterOptions& options() const { return options_; }

 private:
  void WriteDirectoryFile() const;

  const ClusterOptions options_;
  dsm::TempFolder folder_;
  std::unique_ptr<MemcachedUnderTest> memcached_;
  std::vector<std::string> addresses_;  // of the memory servers, not on shm
  std::map<int, std::unique_ptr<ChildProcess>> memory_servers_;
  int started_ = 0;
};

}  // namespace farleaf
