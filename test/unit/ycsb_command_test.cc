// Whole runs of the benchmark, through RunCommand, against a map in place of the tree; the binary's own
// targets are tested in ycsb_targets_test.cc.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/record.h"
#include "test/unit/map_target.h"

namespace farleaf::ycsb {
namespace {

struct CommandTest : ::testing::Test {
  MonotonicClock clock;
  test::MapIndex map;
  std::ostringstream out, error;
  int interrupt_fd = -1;
  std::string status_interval = "0";  ///< a slow machine would see progress among the errors
  TargetOptions opened;

  int Ycsb(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--target", "map:"});
    return YcsbWith(arguments);
  }
  int YcsbWith(const std::vector<std::string>& arguments) {
    out.str("");
    error.str("");
    return RunCommand(arguments,
                      {.open_target = [this](const std::string&, const TargetOptions& options,
                                             const Clock* c) -> Result<std::unique_ptr<Target>> {
                         opened = options;
                         return std::unique_ptr<Target>(std::make_unique<MapTarget>(&map, c));
                       },
                       .clock = &clock,
                       .out = &out,
                       .error = &error,
                       .interrupt_fd = interrupt_fd});
  }
  std::vector<std::string> Workload(char letter, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"-P",
                                          std::string(FARLEAF_WORKLOADS) + "/workload" + letter,
                                          "-p",
                                          "recordcount=2000",
                                          "-p",
                                          "operationcount=5000",
                                          "--threads",
                                          "2",
                                          "--in-flight",
                                          "4",
                                          "--status-interval",
                                          status_interval};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// The printed lines of the last phase, read back: {"READ", "Operations"} -> 5000.
  std::map<std::pair<std::string, std::string>, double> Lines() {
    std::map<std::pair<std::string, std::string>, double> lines;
    std::istringstream text(out.str());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("# phase")) lines.clear();
      if (line.starts_with('#')) continue;
      const size_t close = line.find("], "), comma = line.rfind(", ");
      EXPECT_TRUE(line.starts_with('[') && close != std::string::npos && comma > close) << line;
      size_t parsed = 0;
      const std::string number = line.substr(comma + 2);
      const double value = std::stod(number, &parsed);
      EXPECT_EQ(parsed, number.size()) << line;
      const auto name =
          std::pair(line.substr(1, close - 1), line.substr(close + 3, comma - close - 3));
      EXPECT_TRUE(lines.emplace(name, value).second) << "twice: " << line;
    }
    return lines;
  }
  /// Puts `value` under the key of `number` as a fault would.
  void Damage(uint64_t number, std::optional<std::string> value) {
    const RecordCodec codec(KeyLayout::kFixed8, InsertOrder::kHashed, 1, 8);
    std::string key;
    codec.MakeKey(number, &key);
    auto fabric = std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
    dsm::EpochDomain epochs;
    dsm::Worker worker(
        {.transport = std::move(*fabric->OpenTransport()), .epochs = &epochs, .clock = &clock});
    dsm::FabricCounts counts;
    dsm::OpContext op{worker, counts};
    if (value) {
      ASSERT_TRUE(worker.Run(map.Put(op, key, *value)).ok());
    } else {
      ASSERT_TRUE(worker.Run(map.Delete(op, key)).ok());
    }
  }
};

TEST_F(CommandTest, EveryWorkloadRunsAndCountsEveryOperation) {
  for (const char* keys : {"fixed8", "bytes"}) {
    for (char letter : std::string("abcdef")) {
      // Each on its own map.
      struct Fresh : CommandTest {
        void TestBody() override {}
      } fresh;
      ASSERT_EQ(fresh.Ycsb(Workload(
                    letter, {"--phase", "load,run", "-p", std::string("farleaf.keys=") + keys})),
                kExitOk)
          << letter << fresh.error.str();
      double operations = 0;
      const auto lines = fresh.Lines();
      for (const auto& [name, value] : lines) {
        if (name.second == "Operations") operations += value;
      }
      EXPECT_EQ(operations, 5000) << letter;
      EXPECT_EQ(lines.at({"OVERALL", "Errors"}), 0);
      const double inserted =
          lines.contains({"INSERT", "Operations"}) ? lines.at({"INSERT", "Operations"}) : 0;
      EXPECT_EQ(static_cast<double>(fresh.map.size()), 2000 + inserted) << letter;
      EXPECT_EQ(fresh.error.str(), "") << letter;
    }
  }
}

TEST_F(CommandTest, MixFollowsTheProportions) {
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load,run", "-p", "operationcount=100000"})), kExitOk);
  EXPECT_NEAR(Lines().at({"READ", "Operations"}), 50'000, 1'500);
  EXPECT_NEAR(Lines().at({"UPDATE", "Operations"}), 50'000, 1'500);
}

TEST_F(CommandTest, SameSeedMakesTheSameRun) {
  auto counts = [&](const char* seed) {
    struct Fresh : CommandTest {
      void TestBody() override {}
    } fresh;
    EXPECT_EQ(fresh.Ycsb(Workload('a', {"--phase", "load,run", "--seed", seed})), kExitOk);
    return std::pair(fresh.Lines().at({"READ", "Operations"}), fresh.map.Content());
  };
  // One thread each has its own sequence; what two threads write to one key depends on who is last,
  // so that only the operations and keys are compared.
  const auto first = counts("5"), again = counts("5"), other = counts("6");
  EXPECT_EQ(first.first, again.first);
  EXPECT_NE(first.first, other.first);
}

TEST_F(CommandTest, LinesAreYcsbs) {
  ASSERT_EQ(Ycsb(Workload('f', {"--phase", "load,run"})), kExitOk) << error.str();
  const auto lines = Lines();
  for (const char* name : {"RunTime(ms)", "Throughput(ops/sec)"}) {
    EXPECT_TRUE(lines.contains({"OVERALL", name})) << name;
  }
  for (const char* kind : {"READ", "READ-MODIFY-WRITE"}) {
    for (const char* name :
         {"Operations", "AverageLatency(us)", "MinLatency(us)", "MaxLatency(us)",
          "50thPercentileLatency(us)", "95thPercentileLatency(us)", "99thPercentileLatency(us)",
          "99.9PercentileLatency(us)", "99.99PercentileLatency(us)", "Return=OK", "RoundTrips/op",
          "BytesRead/op", "BytesWritten/op"}) {
      EXPECT_TRUE(lines.contains({kind, name})) << kind << " " << name;
    }
    EXPECT_LE(lines.at({kind, "50thPercentileLatency(us)"}),
              lines.at({kind, "99thPercentileLatency(us)"}));
    EXPECT_LE(lines.at({kind, "99.99PercentileLatency(us)"}), lines.at({kind, "MaxLatency(us)"}));
  }
}

TEST_F(CommandTest, JsonHoldsTheSame) {
  const std::string path = ::testing::TempDir() + "ycsb_test.json";
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load,run", "--json", path, "--seed", "9"})), kExitOk);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  const auto lines = Lines();
  EXPECT_EQ(json.at("seed"), 9);
  EXPECT_EQ(json.at("configuration").at("threads"), 2);
  EXPECT_EQ(json.at("configuration").at("in_flight"), 4);
  EXPECT_EQ(json.at("configuration").at("loop"), "closed");
  EXPECT_EQ(json.at("overall"), json.at("phases").at("run").at("overall"));
  EXPECT_EQ(json.at("operations"), json.at("phases").at("run").at("operations"));
  EXPECT_EQ(json.at("phases").at("load").at("operations").at("INSERT").at("count"), 2000);
  EXPECT_GT(json.at("overall").at("cpu_ns_per_op"), 0);
  EXPECT_NEAR(json.at("overall").at("ops_per_second"), lines.at({"OVERALL", "Throughput(ops/sec)"}),
              1);
  const auto& read = json.at("operations").at("READ");
  EXPECT_EQ(read.at("count"), lines.at({"READ", "Operations"}));
  for (const char* name : {"p50", "p95", "p99", "p999", "p9999", "max"}) {
    EXPECT_GT(read.at("latency_us").at(name), 0) << name;
  }
  for (const char* name :
       {"ops_per_second", "round_trips_per_op", "bytes_read_per_op", "bytes_written_per_op"}) {
    EXPECT_TRUE(read.at(name).is_number()) << name;
  }
}

TEST_F(CommandTest, WrongValueFailsTheRunAndIsShown) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  for (uint64_t number = 0; number < 2000; ++number) Damage(number, "12345678");
  ASSERT_EQ(Ycsb(Workload('c')), kExitFailed);
  EXPECT_NE(error.str().find("READ of key 0x"), std::string::npos) << error.str();
  EXPECT_NE(error.str().find("expected 0x"), std::string::npos) << error.str();
  EXPECT_NE(error.str().find("found 0x3132333435363738"), std::string::npos) << error.str();
}

TEST_F(CommandTest, WrongRowFailsAScan) {
  ASSERT_EQ(Ycsb(Workload('e', {"--phase", "load"})), kExitOk);
  Damage(3, "12345678");
  ASSERT_EQ(Ycsb(Workload('e', {"-p", "operationcount=20000"})), kExitFailed);
  EXPECT_NE(error.str().find("SCAN of key"), std::string::npos) << error.str();
}

TEST_F(CommandTest, WrongValueFailsAReadModifyWriteAndStays) {
  ASSERT_EQ(Ycsb(Workload('f', {"--phase", "load"})), kExitOk);
  for (uint64_t number = 0; number < 2000; ++number) Damage(number, "12345678");
  const auto before = map.Content();
  ASSERT_EQ(Ycsb(Workload('f', {"-p", "readproportion=0"})), kExitFailed);
  EXPECT_EQ(map.Content(), before);
}

TEST_F(CommandTest, MissingKeyFailsTheRunAndIsNamed) {
  ASSERT_EQ(Ycsb(Workload('b', {"--phase", "load"})), kExitOk);
  for (uint64_t number = 0; number < 2000; number += 2) Damage(number, std::nullopt);
  ASSERT_EQ(Ycsb(Workload('b')), kExitFailed);
  EXPECT_NE(error.str().find("expected a value, found none"), std::string::npos) << error.str();
}

TEST_F(CommandTest, RowMissingFromAnOrderedScanIsFound) {
  const std::vector<std::string> ordered = {"-p", "insertorder=ordered", "-p",
                                            "operationcount=20000"};
  auto load = Workload('e', ordered), run = load;
  load.insert(load.end(), {"--phase", "load"});
  ASSERT_EQ(Ycsb(load), kExitOk);
  ASSERT_EQ(Ycsb(run), kExitOk) << error.str();
  // Key number 7, ordered: no key hashes to it in this range.
  const RecordCodec codec(KeyLayout::kFixed8, InsertOrder::kOrdered, 1, 8);
  auto fabric = std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
  dsm::EpochDomain epochs;
  dsm::Worker worker(
      {.transport = std::move(*fabric->OpenTransport()), .epochs = &epochs, .clock = &clock});
  dsm::FabricCounts counts;
  dsm::OpContext op{worker, counts};
  std::string key;
  codec.MakeKey(7, &key);
  ASSERT_TRUE(worker.Run(map.Delete(op, key)).ok());
  ASSERT_EQ(Ycsb(run), kExitFailed);
  EXPECT_NE(error.str().find("SCAN"), std::string::npos) << error.str();
}

TEST_F(CommandTest, LoadingTwiceIsRefusedWithTheRemedy) {
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load"})), kExitOk);
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load"})), kExitFailed);
  EXPECT_NE(error.str().find("farleaf.tree"), std::string::npos) << error.str();
}

index::Task<Status> AlwaysUnavailable(index::OpContext&) {
  co_return Status::Unavailable("memory server 3 lost");
}

TEST_F(CommandTest, FailedOperationFailsTheRunAndNamesTheServer) {
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load"})), kExitOk);
  map.set_before(AlwaysUnavailable);
  ASSERT_EQ(Ycsb(Workload('a')), kExitFailed);
  EXPECT_NE(error.str().find("memory server 3 lost"), std::string::npos) << error.str();
  EXPECT_GT(Lines().at({"OVERALL", "Errors"}), 0);
}

TEST_F(CommandTest, AllowedErrorsAreCountedByCode) {
  ASSERT_EQ(Ycsb(Workload('a', {"--phase", "load"})), kExitOk);
  map.set_before(AlwaysUnavailable);
  ASSERT_EQ(Ycsb(Workload('a', {"-p", "farleaf.allow_errors=true"})), kExitOk);
  const auto lines = Lines();
  EXPECT_EQ(lines.at({"OVERALL", "Errors"}), 5000);
  EXPECT_EQ(lines.at({"READ", "Return=UNAVAILABLE"}) + lines.at({"UPDATE", "Return=UNAVAILABLE"}),
            5000);
}

TEST_F(CommandTest, InterruptedPhaseStillPrintsAndAnswers130) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  ASSERT_EQ(::write(pipe_fds[1], "x", 1), 1);
  interrupt_fd = pipe_fds[0];
  EXPECT_EQ(Ycsb(Workload('c', {"-p", "operationcount=1000000000"})), kExitInterrupted);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  EXPECT_EQ(Lines().at({"OVERALL", "Interrupted"}), 1);
  EXPECT_NE(out.str().find("interrupted"), std::string::npos);
}

TEST_F(CommandTest, ExecutionTimeEndsAPhase) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  EXPECT_EQ(Ycsb(Workload('c', {"-p", "operationcount=100000000000", "-p", "maxexecutiontime=1"})),
            kExitOk);
  EXPECT_GE(Lines().at({"OVERALL", "RunTime(ms)"}), 1000);
}

TEST_F(CommandTest, OpenLoopHoldsItsRate) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  ASSERT_EQ(Ycsb(Workload('c', {"-p", "operationcount=500", "--rate", "1000"})), kExitOk);
  // The last operation is due after 499 ms; a busy machine may take longer, never less.
  EXPECT_GE(Lines().at({"OVERALL", "RunTime(ms)"}), 499);
}

index::Task<Status> Slow(index::OpContext& op) {
  co_await op.worker.Sleep(2 * kNsPerMs);
  co_return Status::Ok();
}

TEST_F(CommandTest, OpenLoopLatencyCountsFromTheIntendedStart) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  map.set_before(Slow);
  // 200 operations of 2 ms one after another, all due within 20 ms: the last waits 380 ms.
  ASSERT_EQ(Ycsb({"-p", "recordcount=2000", "-p", "operationcount=200", "-p", "readproportion=1",
                  "-p", "updateproportion=0", "--rate", "10000"}),
            kExitOk);
  EXPECT_GT(Lines().at({"READ", "MaxLatency(us)"}), 300'000);
  EXPECT_GT(Lines().at({"READ", "50thPercentileLatency(us)"}), 100'000);
}

TEST_F(CommandTest, WarmupIsLeftOutOfTheCounts) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  ASSERT_EQ(Ycsb(Workload('c', {"--warmup", "3000"})), kExitOk);
  EXPECT_EQ(Lines().at({"READ", "Operations"}), 5000);
}

TEST_F(CommandTest, ProgressTellsRateAndTimeLeft) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load"})), kExitOk);
  map.set_before(Slow);
  status_interval = "1";
  ASSERT_EQ(Ycsb(Workload('c', {"-p", "operationcount=12000"})), kExitOk);
  // 1500 turns of 2 ms: at least 3 s.
  EXPECT_NE(error.str().find("ycsb: run "), std::string::npos) << error.str();
  EXPECT_NE(error.str().find(" of 12000 operations"), std::string::npos) << error.str();
  EXPECT_NE(error.str().find(" s left"), std::string::npos) << error.str();
}

TEST_F(CommandTest, UnknownPropertyIsWarnedAboutByName) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load", "-p", "recordcuont=5"})), kExitOk);
  EXPECT_NE(error.str().find("recordcuont"), std::string::npos);
}

TEST_F(CommandTest, TargetIsToldWhatItNeeds) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load", "--cache", "off", "-p", "farleaf.tree=t1", "-p",
                                "farleaf.keys=bytes"})),
            kExitOk);
  EXPECT_EQ(opened.tree, "t1");
  EXPECT_EQ(opened.key_layout, KeyLayout::kBytes);
  EXPECT_FALSE(opened.cache);
  EXPECT_TRUE(opened.create_tree);
  ASSERT_EQ(Ycsb(Workload('c', {"-p", "farleaf.keys=bytes"})), kExitOk);
  EXPECT_EQ(opened.tree, "usertable");
  EXPECT_FALSE(opened.create_tree);
}

TEST_F(CommandTest, TargetIsToldTheOptionsOfTheTree) {
  ASSERT_EQ(Ycsb(Workload('c', {"--phase", "load", "--value-hint-bytes", "0", "--value-list-bytes",
                                "4096", "--scan-leaves-max", "2"})),
            kExitOk);
  EXPECT_EQ(opened.value_hint_bytes, 0u);
  EXPECT_EQ(opened.value_list_bytes, 4096u);
  EXPECT_EQ(opened.scan_leaves_max, 2u);
}

TEST_F(CommandTest, HelpNamesEveryFlag) {
  ASSERT_EQ(YcsbWith({"--help"}), kExitOk);
  for (const char* flag : {"-P", "-p", "--phase", "--target", "--threads", "--in-flight", "--seed",
                           "--rate", "--json", "--status-interval", "--warmup", "--cache",
                           "--value-hint-bytes", "--value-list-bytes", "--scan-leaves-max",
                           "--interval", "--hdr-log", "--processes", "merge"}) {
    EXPECT_NE(out.str().find(flag), std::string::npos) << flag;
  }
}

TEST_F(CommandTest, WrongFlagIsRefusedByName) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--thread", "2"}, "--thread"},
      {{"--threads", "0"}, "--threads"},
      {{"--threads", "two"}, "--threads"},
      {{"--in-flight", "0"}, "--in-flight"},
      {{"--seed", "x"}, "--seed"},
      {{"--rate", "-1"}, "--rate"},
      {{"--phase", "sleep"}, "--phase sleep"},
      {{"--cache", "maybe"}, "--cache"},
      {{"--warmup", "-1"}, "--warmup"},
      {{"--value-hint-bytes", "-1"}, "--value-hint-bytes"},
      {{"--value-list-bytes", "1099511627777"}, "--value-list-bytes"},
      {{"--scan-leaves-max", "0"}, "--scan-leaves-max"},
      {{"--scan-leaves-max", "257"}, "--scan-leaves-max"},
      {{"--status-interval", "soon"}, "--status-interval"},
      {{"--interval", "-1"}, "--interval"},
      {{"--interval", "1e-9"}, "--interval"},
      {{"--hdr-log", "/nowhere/at/all.hlog"}, "--hdr-log /nowhere/at/all.hlog"},
      {{"--processes", "0"}, "--processes"},
      {{"--json"}, "--json"},
      {{"--json", "/nowhere/at/all.json"}, "/nowhere/at/all.json"},
      {{"-P", "/nowhere/workload"}, "/nowhere/workload"},
      {{"-p", "recordcount"}, "recordcount"},
      {{"-p", "recordcount=none"}, "recordcount=none"},
      {{"--tls-ca", "ca.pem"}, "--tls-ca requires --tls"},
      {{"--tls-certificate", "own.pem"}, "--tls-certificate requires --tls"},
      {{"--tls-key", "key.pem"}, "--tls-key requires --tls"},
      {{"stray"}, "stray"}};
  for (const auto& [flags, named] : cases) {
    std::vector<std::string> arguments = {
        "-p", "recordcount=10", "-p", "operationcount=10", "--target", "map:"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(YcsbWith(arguments), kExitUsage) << named;
    EXPECT_NE(error.str().find(named), std::string::npos) << named << ": " << error.str();
  }
  EXPECT_EQ(YcsbWith({"-p", "recordcount=10", "-p", "operationcount=10"}), kExitUsage);
  EXPECT_NE(error.str().find("--target"), std::string::npos);
  EXPECT_EQ(YcsbWith({"--target", "map:"}), kExitUsage);
  EXPECT_NE(error.str().find("recordcount"), std::string::npos);
}

}  // namespace
}  // namespace farleaf::ycsb
