// The benchmark's targets: a pool inside the process, a server through the client, and the binary
// itself with its exit codes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/pool_target.h"
#include "dsm/base/random.h"
#include "dsm/bootstrap/in_process_directory.h"
#include "server/frontend/native_server.h"
#include "server/memory_server.h"
#include "test/support/map_tree_host.h"

namespace farleaf::ycsb {
namespace {

struct TargetTest : ::testing::Test {
  MonotonicClock clock;
  std::ostringstream out, error;

  int Ycsb(char workload, const std::string& target, std::vector<std::string> more = {}) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {
        "-P",
        std::string(FARLEAF_WORKLOADS) + "/workload" + workload,
        "-p",
        "recordcount=3000",
        "-p",
        "operationcount=6000",
        "--threads",
        "2",
        "--in-flight",
        "8",
        "--target",
        target,
        "--status-interval",
        "0"};  // a slow machine would see progress among the errors
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  bool Printed(std::string_view text) const { return out.str().find(text) != std::string::npos; }
  bool Complained(std::string_view text) const {
    return error.str().find(text) != std::string::npos;
  }
  /// The number behind `line` in the last phase.
  double Figure(const std::string& line) const {
    const size_t at = out.str().rfind(line + ", ");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? -1 : std::stod(out.str().substr(at + line.size() + 2));
  }
};

constexpr const char* kLocal = "local:?servers=2&region=64MiB&chunk=256KiB";

TEST_F(TargetTest, LocalPoolRunsEveryWorkloadWithBothKeyLayouts) {
  for (const char* keys : {"fixed8", "bytes"}) {
    for (char workload : std::string("abcdef")) {
      ASSERT_EQ(Ycsb(workload, kLocal,
                     {"--phase", "load,run", "-p", std::string("farleaf.keys=") + keys, "-p",
                      "fieldlength=20"}),
                kExitOk)
          << workload << " " << keys << ": " << error.str();
      EXPECT_EQ(error.str(), "");
    }
  }
}

TEST_F(TargetTest, RoundTripsOfALocalPoolAreThoseOfTheTree) {
  ASSERT_EQ(Ycsb('a', kLocal, {"--phase", "load,run"}), kExitOk) << error.str();
  EXPECT_NEAR(Figure("[READ], RoundTrips/op"), 1, 0.02);
  EXPECT_LE(Figure("[UPDATE], RoundTrips/op"), 2.05);
  EXPECT_GT(Figure("[READ], BytesRead/op"), 100);
  EXPECT_GT(Figure("[POOL], BytesUsed"), 0);
  const double cached = Figure("[READ], RoundTrips/op");
  ASSERT_EQ(Ycsb('a', kLocal, {"--phase", "load,run", "--cache", "off"}), kExitOk) << error.str();
  EXPECT_GT(Figure("[READ], RoundTrips/op"), cached + 0.9);
}

TEST_F(TargetTest, DelayOfALocalPoolIsPartOfEveryLatency) {
  ASSERT_EQ(Ycsb('c', std::string(kLocal) + "&delay_us=100",
                 {"--phase", "load,run", "-p", "recordcount=200", "-p", "operationcount=200"}),
            kExitOk)
      << error.str();
  EXPECT_GE(Figure("[READ], MinLatency(us)"), 100);
}

TEST_F(TargetTest, CpuClockIsForOneThread) {
  EXPECT_EQ(Ycsb('c', kLocal, {"--phase", "load", "--clock", "cpu"}),
            kExitUsage);  // of two threads
  EXPECT_TRUE(Complained("--clock cpu")) << error.str();
  out.str("");
  error.str("");
  const std::vector<std::string> arguments = {
      "-P",       std::string(FARLEAF_WORKLOADS) + "/workloadc",
      "-p",       "recordcount=3000",
      "--target", kLocal,
      "--phase",  "load,run",
      "--clock",  "cpu"};
  ASSERT_EQ(RunCommand(arguments,
                       {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error}),
            kExitOk)
      << error.str();
  EXPECT_GT(Figure("[OVERALL], Throughput(ops/sec)"), 0);
}

TEST_F(TargetTest, OrderedScansOfALocalPoolHaveNoHoles) {
  EXPECT_EQ(Ycsb('e', kLocal, {"--phase", "load,run", "-p", "insertorder=ordered"}), kExitOk)
      << error.str();
}

TEST_F(TargetTest, FullPoolFailsTheLoadAndSaysSo) {
  EXPECT_EQ(Ycsb('a', "local:?region=4MiB", {"--phase", "load", "-p", "recordcount=1000000"}),
            kExitFailed);
  EXPECT_TRUE(Complained("resource exhausted")) << error.str();
}

TEST_F(TargetTest, WrongTargetsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"http://h:1", "redis://HOST:PORT"},   {"local:?servers=0", "from 1 to 64"},
      {"local:?servers=two", "servers=two"}, {"local:?region=1", "region=1"},
      {"local:?chunk=1GiB", "chunk=1GiB"},   {"local:?delay_us=-1", "delay_us=-1"},
      {"local:?colour=blue", "colour=blue"}, {"local:4", "local:4"},
      {"pool:nonsense", "nonsense"},         {"farleaf://", "farleaf://"},
      {"farleaf://nowhere", "nowhere"},      {"farleaf://127.0.0.1:0", "port 0"}};
  for (const auto& [target, named] : cases) {
    EXPECT_EQ(Ycsb('a', target, {"--phase", "load"}), kExitUsage) << target;
    EXPECT_TRUE(Complained(named)) << target << ": " << error.str();
  }
}

TEST_F(TargetTest, RunWithoutATreeNamesTheTree) {
  EXPECT_EQ(Ycsb('c', kLocal, {"-p", "farleaf.tree=orchard"}), kExitFailed);
  EXPECT_TRUE(Complained("orchard")) << error.str();
}

TEST_F(TargetTest, ServerThatIsNotThereIsNamed) {
  EXPECT_EQ(Ycsb('c', "farleaf+unix:/nowhere/at/all.sock"), kExitFailed);
  EXPECT_TRUE(Complained("/nowhere/at/all.sock")) << error.str();
}

struct ClientTargetTest : TargetTest {
  test::MapTreeHost host{&clock};
  std::unique_ptr<server::NativeServer> server;
  std::string url;
  void SetUp() override {
    server::NativeServerOptions options;
    options.listen = {"127.0.0.1:0"};
    auto started = server::NativeServer::Start(&host, &clock, options);
    ASSERT_TRUE(started.ok()) << started.status();
    server = std::move(*started);
    url = server->urls().front();
  }
};

TEST_F(ClientTargetTest, EveryWorkloadRunsThroughTheClient) {
  for (const char* keys : {"fixed8", "bytes"}) {
    for (char workload : std::string("abcdef")) {
      const std::string tree = std::string("farleaf.tree=") + keys + workload;
      const std::vector<std::string> common = {"-p", tree, "-p",
                                               std::string("farleaf.keys=") + keys};
      auto load = common;
      load.insert(load.end(), {"--phase", "load"});
      ASSERT_EQ(Ycsb(workload, url, load), kExitOk) << workload << error.str();
      ASSERT_EQ(Ycsb(workload, url, common), kExitOk) << workload << error.str();
      EXPECT_FALSE(Printed("RoundTrips/op"));
      EXPECT_EQ(error.str(), "");
    }
  }
}

TEST_F(ClientTargetTest, OpenLoopThroughTheClientHoldsItsRate) {
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load"}), kExitOk) << error.str();
  ASSERT_EQ(Ycsb('c', url, {"-p", "operationcount=300", "--rate", "1000"}), kExitOk) << error.str();
  EXPECT_GE(Figure("[OVERALL], RunTime(ms)"), 299);
}

TEST_F(ClientTargetTest, ATraceHasTheOutcomesOfItsOrder) {
  const auto file_name =
      std::filesystem::temp_directory_path() / ("ycsb_targets_test." + std::to_string(::getpid()));
  {
    std::ofstream file(file_name);
    Random random(12);
    const char* const kinds[] = {"READ ", "UPDATE ", "INSERT ", "RMW "};
    for (int i = 0; i < 2'000; ++i) {
      file << kinds[random.Below(4)] << random.Below(50) * 100 << "\n";
    }
  }
  std::atomic<uint64_t> begun{0};
  std::set<std::string> outcomes;
  for (const auto& [threads, in_flight] : {std::pair("1", "1"), {"1", "16"}, {"3", "4"}}) {
    const std::string tree = std::string("t") + threads + "x" + in_flight;
    // Where operations take different times, those in flight would overtake each other.
    host.Add(tree, server::protocol::TreeLayout::kFixed8)
        .set_before([&begun](index::OpContext& op) -> index::Task<Status> {
          co_await op.worker.Sleep(Mix64(begun.fetch_add(1)) % 20'000);
          co_return Status::Ok();
        });
    out.str("");
    const std::vector<std::string> arguments = {"-p",
                                                "recordcount=1000",
                                                "--target",
                                                url,
                                                "--phase",
                                                "load,run",
                                                "-p",
                                                "farleaf.tree=" + tree,
                                                "-p",
                                                "insertorder=ordered",
                                                "-p",
                                                "farleaf.trace=" + file_name.string(),
                                                "-p",
                                                "farleaf.trace_own_values=true",
                                                "--status-interval",
                                                "0",
                                                "--threads",
                                                threads,
                                                "--in-flight",
                                                in_flight};
    ASSERT_EQ(
        RunCommand(arguments,
                   {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error}),
        kExitOk)
        << error.str();
    std::string returns;
    std::istringstream lines(out.str());
    for (std::string line; std::getline(lines, line);) {
      if (line.find("Return=") != std::string::npos) returns += line + "\n";
    }
    outcomes.insert(returns);
  }
  std::filesystem::remove(file_name);
  ASSERT_EQ(outcomes.size(), 1u) << *outcomes.begin() << *outcomes.rbegin();
  // Keys from 1000 on are not loaded, so that it hangs on the order which operations find them.
  for (const char* found : {"[READ], Return=NOT_FOUND", "[INSERT], Return=EXISTS"}) {
    EXPECT_NE(outcomes.begin()->find(found), std::string::npos) << *outcomes.begin();
  }
}

TEST_F(ClientTargetTest, TreeOfTheOtherLayoutIsRefusedWithTheRemedy) {
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load"}), kExitOk) << error.str();
  EXPECT_EQ(Ycsb('c', url, {"-p", "farleaf.keys=bytes"}), kExitUsage);
  EXPECT_TRUE(Complained("-p farleaf.keys=fixed8")) << error.str();
}

TEST_F(ClientTargetTest, ServerThatStopsFailsTheRun) {
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load"}), kExitOk) << error.str();
  server.reset();
  EXPECT_EQ(Ycsb('c', url), kExitFailed);
  EXPECT_TRUE(Complained(url)) << error.str();
}

/// Two memory servers in this process, listed in a file.
struct PoolTargetTest : TargetTest, ::testing::WithParamInterface<server::FabricChoice> {
  dsm::InProcessDirectory directory{"orchard"};
  std::vector<std::unique_ptr<server::MemoryServer>> servers;
  std::filesystem::path folder;
  std::string url;

  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("farleaf-ycsb-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::ofstream list(folder / "pool");
    list << "cluster orchard\n";
    for (dsm::ServerId id : {0, 1}) {
      server::MemoryServerOptions options;
      options.id = id;
      options.region_bytes = 64 << 20;
      options.chunk_bytes = 256 << 10;
      options.fabric = GetParam();
      options.socket = folder / ("server" + std::to_string(id));
      auto started = server::MemoryServer::Start(options, {.directory = &directory,
                                                           .clock = &clock,
                                                           .incarnation = uint64_t{7} + id,
                                                           .prefault_progress = {}});
      ASSERT_TRUE(started.ok()) << started.status();
      list << id << ' ' << (*started)->endpoint().endpoint << "\n";
      servers.push_back(std::move(*started));
    }
    url = "pool:file:" + (folder / "pool").string();
  }
  void TearDown() override {
    servers.clear();
    std::filesystem::remove_all(folder);
  }
};

TEST_P(PoolTargetTest, RunInASecondProcessFindsWhatTheFirstLoaded) {
  ASSERT_EQ(Ycsb('a', url, {"--phase", "load"}), kExitOk) << error.str();
  EXPECT_LE(Figure("[INSERT], RoundTrips/op"), 2.5);
  EXPECT_GT(Figure("[POOL], BytesUsed/key"), 0);
  ASSERT_EQ(Ycsb('a', url, {"--warmup", "100"}), kExitOk) << error.str();
  EXPECT_NEAR(Figure("[READ], RoundTrips/op"), 1, 0.02);
  EXPECT_LE(Figure("[UPDATE], RoundTrips/op"), 2.05);
}

TEST_P(PoolTargetTest, CacheIsFilledInThreeRoundTripsAndKeepsItsBudget) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "recordcount=30000", "-p", "requestdistribution=uniform"});
    ASSERT_EQ(Ycsb('c', url, more), kExitOk) << error.str();
  };
  ASSERT_NO_FATAL_FAILURE(run({"--phase", "load"}));
  ASSERT_NO_FATAL_FAILURE(run({"--warmup", "1"}));
  EXPECT_EQ(Figure("[CACHE], WarmRoundTrips"), 3);
  EXPECT_GT(Figure("[CACHE], WarmBytesRead"), 10'000);
  EXPECT_EQ(Figure("[CACHE], Evictions"), 0);
  // Where entries went past a part is learned when it is first met.
  EXPECT_LT(Figure("[READ], RoundTrips/op"), 1.03);
  const double whole = Figure("[CACHE], Bytes");
  const double budget = std::floor(whole * 0.75);
  ASSERT_NO_FATAL_FAILURE(
      run({"--warmup", "1", "--cache-bytes", std::to_string(static_cast<uint64_t>(budget))}));
  EXPECT_LE(Figure("[CACHE], Bytes"), budget);
  EXPECT_GT(Figure("[CACHE], Evictions"), 0);
  EXPECT_GT(Figure("[READ], RoundTrips/op"), 1.1);
  EXPECT_LT(Figure("[READ], RoundTrips/op"), 1.9);
}

TEST_P(PoolTargetTest, LostMemoryServerFailsTheRunAndIsNamed) {
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load"}), kExitOk) << error.str();
  servers.pop_back();
  EXPECT_EQ(Ycsb('c', url), kExitFailed);
  EXPECT_TRUE(Complained("memory server 1")) << error.str();
}

INSTANTIATE_TEST_SUITE_P(Fabrics, PoolTargetTest,
                         ::testing::Values(server::FabricChoice::kShm, server::FabricChoice::kTcp),
                         [](const auto& fabric) {
                           return fabric.param == server::FabricChoice::kShm ? "Shm" : "Tcp";
                         });

// --- the binary ---

struct ProgramRun {
  int exit_code = -1;
  std::string output;  ///< both streams
};

/// Runs the binary; sends SIGINT when its output has `interrupt_at`, if that is not empty.
ProgramRun RunBinary(const std::vector<std::string>& arguments,
                     const std::string& interrupt_at = "") {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(fds[1], 1);
    ::dup2(fds[1], 2);
    ::close(fds[0]);
    ::close(fds[1]);
    std::vector<char*> argv = {const_cast<char*>(FARLEAF_YCSB)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(FARLEAF_YCSB, argv.data());
    ::_exit(127);
  }
  ::close(fds[1]);
  ProgramRun outcome;
  bool interrupted = interrupt_at.empty();
  char buffer[4096];
  for (ssize_t got; (got = ::read(fds[0], buffer, sizeof buffer)) > 0;) {
    outcome.output.append(buffer, static_cast<size_t>(got));
    if (interrupted || outcome.output.find(interrupt_at) == std::string::npos) continue;
    ::kill(pid, SIGINT);
    interrupted = true;
  }
  ::close(fds[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return outcome;
}

TEST(YcsbBinaryTest, LoadAndRunPrintYcsbsLines) {
  const ProgramRun outcome = RunBinary({"-P", std::string(FARLEAF_WORKLOADS) + "/workloada",
                                        "--phase", "load,run", "--target", "local:?region=16MiB"});
  EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.output;
  EXPECT_NE(outcome.output.find("[OVERALL], Throughput(ops/sec), "), std::string::npos);
  EXPECT_NE(outcome.output.find("[READ], 99.9PercentileLatency(us), "), std::string::npos);
}

TEST_F(ClientTargetTest, SeveralProcessesMakeOneResult) {
  const ProgramRun outcome =
      RunBinary({"-P", std::string(FARLEAF_WORKLOADS) + "/workloada", "--phase", "load,run",
                 "--target", url, "--processes", "3", "--threads", "2"});
  EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.output;
  EXPECT_NE(outcome.output.find("[INSERT], Operations, 1000\n"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("[PROCESSES], Count, 3\n"), std::string::npos);
}

TEST_P(PoolTargetTest, SeveralProcessesShareThePool) {
  const std::string json = folder / "result.json";
  const ProgramRun outcome =
      RunBinary({"-P", std::string(FARLEAF_WORKLOADS) + "/workloadb", "-p", "recordcount=2000",
                 "-p", "operationcount=3001", "--phase", "load,run", "--target", url, "--processes",
                 "3", "--warmup", "100", "--json", json});
  ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.output;
  std::ifstream file(json);
  const auto result = nlohmann::json::parse(file);
  const auto& inserts = result["phases"]["load"]["operations"]["INSERT"];
  EXPECT_EQ(inserts["returns"]["OK"], 2000);
  EXPECT_EQ(result["overall"]["count"], 3001);
  EXPECT_EQ(result["overall"]["warmup_operations"], 300);
  EXPECT_NEAR(result["operations"]["READ"]["round_trips_per_op"].get<double>(), 1, 0.03);
}

TEST_P(PoolTargetTest, InterruptEndsSeveralProcessesWithTheirResults) {
  const ProgramRun outcome = RunBinary(
      {"-P", std::string(FARLEAF_WORKLOADS) + "/workloadc", "--phase", "load,run", "--target", url,
       "-p", "operationcount=1000000000000", "--status-interval", "0.1", "--processes", "2"},
      "ycsb: run ");
  EXPECT_EQ(outcome.exit_code, kExitInterrupted) << outcome.output;
  EXPECT_NE(outcome.output.find("[OVERALL], Interrupted, 1"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("[PROCESSES], Count, 2"), std::string::npos);
}

TEST(YcsbBinaryTest, BadFlagExitsWithTwoAndNamesIt) {
  const ProgramRun outcome = RunBinary({"--no-such-flag"});
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_NE(outcome.output.find("--no-such-flag"), std::string::npos) << outcome.output;
}

TEST(YcsbBinaryTest, InterruptEndsThePhaseWithItsResults) {
  const ProgramRun outcome = RunBinary(
      {"-P", std::string(FARLEAF_WORKLOADS) + "/workloadc", "--phase", "load,run", "--target",
       "local:?region=16MiB", "-p", "operationcount=1000000000000", "--status-interval", "0.1"},
      "ycsb: run ");
  EXPECT_EQ(outcome.exit_code, kExitInterrupted) << outcome.output;
  EXPECT_NE(outcome.output.find("[OVERALL], Interrupted, 1"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("[READ], Operations, "), std::string::npos);
}

TEST(YcsbBinaryTest, InterruptedComparisonTellsItsRounds) {
  const ProgramRun outcome =
      RunBinary({"-P", std::string(FARLEAF_WORKLOADS) + "/workloada", "--phase", "load,run",
                 "--target", "local:?region=16MiB", "--against", "local:?region=16MiB",
                 "--against-args", "--cache off", "--rounds", "1000", "-p", "operationcount=20000"},
                "ycsb: round 4 of 1000: ");
  EXPECT_EQ(outcome.exit_code, kExitInterrupted) << outcome.output;
  EXPECT_NE(outcome.output.find(" of 1000 rounds in turns"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find(", interrupted\n"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("\nREAD p99 (us) "), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace farleaf::ycsb
