// RecordClientsTest: two compute servers of one pool that speak memcached's or Redis' protocol, as processes, and what
// is tested of both in the same way.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/support/process.h"
#include "test/support/text_client.h"

namespace farleaf {

class RecordClientsTest : public ::testing::Test {
 protected:
  /// "memcached" or "redis".
  explicit RecordClientsTest(std::string protocol) : protocol_(std::move(protocol)) {}
  void SetUp() override {
    cluster.StartMemoryServers();
    for (int i = 0; i < 2; ++i) {
      addresses.push_back(FreeAddress());
      servers.push_back(cluster.StartComputeServer({listen_flag(), addresses.back()}));
    }
  }
  std::string listen_flag() const { return "--" + protocol_ + "-listen"; }
  std::string url(size_t i) const { return protocol_ + "://" + addresses[i]; }
  std::string Host(size_t i) const { return addresses[i].substr(0, addresses[i].rfind(':')); }
  std::string Port(size_t i) const { return addresses[i].substr(addresses[i].rfind(':') + 1); }

  Ended Run(std::vector<std::string> command) {
    ChildProcess process(std::move(command), cluster.File("client" + std::to_string(runs_++)));
    return cluster.WaitFor(process, 120'000);
  }
  /// The same client at each server, at once.
  std::vector<Ended> RunAtAll(const std::function<std::vector<std::string>(size_t)>& command) {
    std::vector<std::unique_ptr<ChildProcess>> processes;
    for (size_t i = 0; i < servers.size(); ++i) {
      processes.push_back(std::make_unique<ChildProcess>(
          command(i), cluster.File("client" + std::to_string(runs_++))));
    }
    std::vector<Ended> ended;
    for (auto& process : processes) ended.push_back(cluster.WaitFor(*process, 120'000));
    return ended;
  }
  static bool Installed(const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
  }

  /// Kills memory server 1. `gets` reads keys on both; some answers then begin with `failure` and name it, others hold
  /// `served`.
  void ExpectLostMemoryServerNamed(const std::function<std::string()>& gets,
                                   const std::string& failure, const std::string& served) {
    cluster.KillMemoryServer(1);
    // On shared memory its pages are there until the compute server hears of its end.
    const std::string named = failure + "unavailable: memory server 1";
    const MonotonicClock clock;
    const uint64_t end_ns = clock.NowNs() + 60 * kNsPerSecond;
    std::string answers = gets();
    while (answers.find(named) == std::string::npos && clock.NowNs() < end_ns) answers = gets();
    EXPECT_NE(answers.find(named), std::string::npos)
        << answers.substr(std::min(answers.find(failure), answers.size()), 300);
    EXPECT_NE(answers.find(served), std::string::npos) << "the other's keys are served";
  }
  void ExpectRefused(std::vector<std::string> flags, const std::string& says) {
    flags.insert(flags.begin(), {"--bootstrap", cluster.bootstrap_url()});
    const Ended ended = cluster.Run("compute_server", std::move(flags));
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says(says)) << ended.output;
  }
  void ExpectReadyFileNamesTheAddress() {
    const std::string ready = cluster.File("ready"), address = FreeAddress();
    const auto server = cluster.StartComputeServer({"--ready-file", ready, listen_flag(), address});
    const std::string served = protocol_ + "://" + address;
    ASSERT_TRUE(server.process->WaitForOutput("serving " + served));
    std::string line, all;
    std::ifstream file;
    while (server.process->running() && !file.is_open()) file.open(ready);
    while (std::getline(file, line)) all += line + "\n";
    EXPECT_NE(all.find("\n" + served + "\n"), std::string::npos) << all;
  }

  ProcessCluster cluster{{.fabric = "shm", .region = "128MiB"}};
  std::vector<std::string> addresses;
  std::vector<ComputeServerProcess> servers;

 private:
  const std::string protocol_;
  int runs_ = 0;
};

}  // namespace farleaf
