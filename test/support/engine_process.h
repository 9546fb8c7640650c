// EngineProcess: compute_server --engine lsm as a process, with all front ends, one after the other on one directory.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "test/support/process_client.h"

namespace farleaf::test {

struct EngineProcess : ::testing::Test {
  ProcessCluster cluster{
      {.memory_servers = 0}};  // it names files, and looks for reports of sanitizers
  const std::string directory = cluster.File("store"), memcached = FreeAddress(),
                    redis = FreeAddress();

  std::vector<std::string> Flags(std::vector<std::string> more, const std::string& address) const {
    more.insert(more.begin(), {"--engine", "lsm", "--data-dir", directory, "--listen", address,
                               "--memcached-listen", memcached, "--redis-listen", redis,
                               "--lsm-memtable-bytes", "1MiB", "--lsm-cache-bytes", "4MiB"});
    return more;
  }
  /// It may end before it serves.
  ComputeServerProcess BeginServer(std::vector<std::string> more = {}) {
    const std::string address = FreeAddress();
    return {cluster.Start("compute_server", Flags(std::move(more), address)), address};
  }
  ComputeServerProcess StartServer(std::vector<std::string> more = {}) {
    ComputeServerProcess server = BeginServer(std::move(more));
    EXPECT_TRUE(server.process->WaitForOutput("serving redis://")) << server.process->Output();
    return server;
  }
  Ended Terminate(ComputeServerProcess& server) {
    server.process->Signal(SIGTERM);
    return cluster.WaitFor(*server.process);
  }
  static client::Tree Open(client::Client& client) {
    auto tree = client.OpenTree("tested");
    FARLEAF_CHECK(tree.ok(), tree.status());
    return *tree;
  }
  static uint64_t Stat(client::Client& client, const std::string& name) {
    const auto text = client.ServerStats();
    FARLEAF_CHECK(text.ok(), text.status());
    const size_t at = text->find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(text->substr(at + name.size() + 2));
  }
};

}  // namespace farleaf::test
