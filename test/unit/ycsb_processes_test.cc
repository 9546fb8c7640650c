// Several processes: what each is given, and that the command's result is all of theirs.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "benchmark/ycsb/processes.h"
#include "test/unit/stalling_target.h"

namespace farleaf::ycsb {
namespace {

CommandLine LineOf(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--target", "fake:"});
  auto line = ParseCommandLine(arguments);
  EXPECT_TRUE(line.ok()) << line.status();
  return std::move(*line);
}

TEST(ProcessesTest, SharesCoverEverythingOnce) {
  const CommandLine line =
      LineOf({"-p", "recordcount=1000", "-p", "insertstart=100", "-p", "insertcount=701", "-p",
              "operationcount=1000", "--rate", "900", "--processes", "3", "--threads", "4",
              "--seed", "7", "--phase", "load,run"});
  uint64_t next_key = 100, operations = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const CommandLine load = ShareOfProcess(line, Phase::kLoad, i);
    EXPECT_EQ(load.configuration.workload.insert_start, next_key);
    next_key += load.configuration.workload.insert_count;
    EXPECT_EQ(load.phases, std::vector{Phase::kLoad});
    const CommandLine run = ShareOfProcess(line, Phase::kRun, i);
    // Any of them may ask for every key.
    EXPECT_EQ(run.configuration.workload.insert_start, 100u);
    EXPECT_EQ(run.configuration.workload.insert_count, 701u);
    EXPECT_EQ(run.configuration.rate, 300);
    EXPECT_EQ(run.configuration.seed, 7 + i);
    EXPECT_EQ(run.configuration.threads, 4u);
    operations += run.configuration.workload.operation_count;
  }
  EXPECT_EQ(next_key, 801u);
  EXPECT_EQ(operations, 1000u);
}

TEST(ProcessesTest, WhatIsForOneProcessIsRefused) {
  const auto refused = [](std::vector<std::string> more, const char* named) {
    more.insert(more.end(),
                {"-p", "recordcount=10", "-p", "operationcount=10", "--processes", "2"});
    const auto line = ParseCommandLine(more);
    ASSERT_FALSE(line.ok()) << named;
    EXPECT_NE(line.status().message().find(named), std::string::npos) << line.status();
  };
  refused({"--target", "local:"}, "local:");
  refused({"--target", "sim:x"}, "sim:");
  refused({"--target", "rocksdb:/x"}, "rocksdb:");
  refused({"--target", "fake:", "--clock", "cpu"}, "--clock");
  refused({"--target", "fake:", "-p", "insertproportion=0.1"}, "insertproportion");
  const auto load = ParseCommandLine(std::vector<std::string>{
      "--target", "fake:", "-p", "recordcount=10", "-p", "insertproportion=0.1", "--phase", "load",
      "--processes", "2"});
  EXPECT_TRUE(load.ok()) << load.status();
}

struct ProcessesCommandTest : ::testing::Test {
  const std::string json_path =
      ::testing::TempDir() + "farleaf_processes_" + std::to_string(::getpid()) + ".json";
  ManualClock clock;
  ServiceTimes times;
  std::ostringstream out, error;
  int interrupt_fd = -1;
  std::function<Status(const TargetOptions&)> open = [](const TargetOptions&) {
    return Status::Ok();
  };
  ~ProcessesCommandTest() override { std::filesystem::remove(json_path); }

  int Ycsb(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-p", "recordcount=1000", "-p", "operationcount=3000",
                                          "-p", "readproportion=1", "-p", "updateproportion=0",
                                          "--target", "fake:", "--processes", "3",
                                          "--status-interval", "0", "--json", json_path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = [this](const std::string&, const TargetOptions& options,
                                             const Clock*) -> Result<std::unique_ptr<Target>> {
                         const Status opened = open(options);
                         if (!opened.ok()) return opened;
                         return std::unique_ptr<Target>(
                             std::make_unique<StallingTarget>(&clock, times));
                       },
                       .clock = &clock,
                       .unix_clock = &clock,
                       .out = &out,
                       .error = &error,
                       .interrupt_fd = interrupt_fd});
  }
  nlohmann::ordered_json Written() const {
    std::ifstream file(json_path);
    return nlohmann::ordered_json::parse(file, nullptr, false);
  }
};

TEST_F(ProcessesCommandTest, ResultIsAllOfTheirs) {
  ASSERT_EQ(Ycsb({"--phase", "load,run", "--interval", "0.001"}), kExitOk) << error.str();
  const auto json = Written();
  EXPECT_EQ(json["processes"], 3);
  EXPECT_EQ(json["seeds"], (nlohmann::ordered_json{1, 2, 3}));
  EXPECT_EQ(json["configuration"]["threads"], 3);
  EXPECT_EQ(json["configuration"]["operation_count"], 3000);
  EXPECT_EQ(json["phases"]["load"]["operations"]["INSERT"]["count"], 1000);
  const auto& read = json["phases"]["run"]["operations"]["READ"];
  EXPECT_EQ(read["count"], 3000);
  EXPECT_EQ(read["latency_us"]["max"], 10.0);
  // Their clocks stand while they wait for one another: each does its thousand in the same 10 ms.
  EXPECT_EQ(json["phases"]["run"]["overall"]["run_time_ms"], 10.0);
  EXPECT_NEAR(json["overall"]["ops_per_second"].get<double>(), 300'000, 1);
  EXPECT_EQ(json["overall"]["overlap_percent"], 100.0);
  EXPECT_EQ(json["phases"]["run"]["series"]["READ"].size(), 10u);
  EXPECT_EQ(json["phases"]["run"]["series"]["READ"][0]["operations"], 300);
  EXPECT_NE(out.str().find("[PROCESSES], Count, 3"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("[READ], Operations, 3000"), std::string::npos);
}

TEST_F(ProcessesCommandTest, TargetThatCannotBeOpenedEndsAll) {
  open = [](const TargetOptions& options) {
    return options.seed == 2 ? Status::Unavailable("gone") : Status::Ok();
  };
  EXPECT_EQ(Ycsb({}), kExitFailed);
  EXPECT_NE(error.str().find("process 2"), std::string::npos) << error.str();
}

TEST_F(ProcessesCommandTest, KilledProcessIsNamed) {
  open = [](const TargetOptions& options) {
    if (options.seed == 3) ::raise(SIGKILL);
    return Status::Ok();
  };
  EXPECT_EQ(Ycsb({}), kExitFailed);
  EXPECT_NE(error.str().find("process 3 ended without a result, by signal 9"), std::string::npos)
      << error.str();
}

TEST_F(ProcessesCommandTest, FailureOfOneIsTheCommands) {
  times = {.stall_at_ns = 0, .stall_ns = kNsPerMs, .status = Status::Unavailable("gone")};
  EXPECT_EQ(Ycsb({}), kExitFailed);
  EXPECT_EQ(Written()["overall"]["failed"], true);
  EXPECT_EQ(Written()["overall"]["errors"], 3);
}

TEST_F(ProcessesCommandTest, InterruptEndsAllWithTheirResults) {
  interrupt_fd = ::eventfd(1, EFD_CLOEXEC);  // readable from the start
  const int code = Ycsb({"-p", "operationcount=1000000000000"});
  ::close(interrupt_fd);
  EXPECT_EQ(code, kExitInterrupted);
  EXPECT_EQ(Written()["overall"]["interrupted"], true);
  EXPECT_EQ(Written()["processes"], 3);
}

}  // namespace
}  // namespace farleaf::ycsb
