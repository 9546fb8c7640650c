// Merging: what is merged is what one process would have measured, and what cannot be merged is
// refused by name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/merge.h"
#include "benchmark/ycsb/report.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint64_t kStartNs = 1'700'000'000'000'000'000;

/// What a process measured from `begin_ms` to `end_ms` after kStartNs: READs and some UPDATEs that
/// fail, `latency_ns_max` at most; `all` gets the same.
struct Process {
  uint64_t seed = 1, begin_ms = 0, end_ms = 1000, operations = 1000, latency_ns_max = 1 << 20;
  uint64_t interval_ms = 0;
};
PhaseResult Measure(const Process& process, Histogram* all) {
  Random random(process.seed);
  PhaseResult result;
  result.start_unix_ns = kStartNs + process.begin_ms * kNsPerMs;
  result.elapsed_ns = (process.end_ms - process.begin_ms) * kNsPerMs;
  result.cpu_ns = 1000 * process.operations;
  const uint64_t interval_ns = process.interval_ms * kNsPerMs;
  IntervalRecorder recorder(std::max<uint64_t>(interval_ns, 1));
  KindStats& reads = result.kinds[static_cast<size_t>(OpKind::kRead)];
  for (uint64_t i = 0; i < process.operations; ++i) {
    const uint64_t latency_ns = random.Below(process.latency_ns_max);
    reads.latency_ns.Record(latency_ns);
    ++reads.returns[static_cast<size_t>(i % 10 == 0 ? Return::kNotFound : Return::kOk)];
    reads.fabric += {.round_trips = 2, .reads = 3, .atomics = 1, .bytes_read = 100};
    if (all) all->Record(latency_ns);
    if (interval_ns > 0) {
      recorder.Record(OpKind::kRead, (i + 1) * result.elapsed_ns / process.operations, latency_ns);
    }
  }
  KindStats& updates = result.kinds[static_cast<size_t>(OpKind::kUpdate)];
  updates.returns[static_cast<size_t>(ReturnOf(StatusCode::kUnavailable))] = 7;
  if (interval_ns > 0) {
    IntervalRecorder* const recorders[] = {&recorder};
    result.series = MergeIntervals(recorders, interval_ns, result.elapsed_ns);
  }
  return result;
}

NamedResult ResultOf(const Process& process, Histogram* all = nullptr) {
  RunConfiguration configuration{.target = "pool:x", .threads = 2, .seed = process.seed};
  configuration.workload.operation_count = process.operations;
  const PhaseResult phase = Measure(process, all);
  // By way of text, as from a file.
  return {"process " + std::to_string(process.seed),
          Json::parse(ToJson(configuration, {&phase, 1}).dump())};
}

TEST(MergeTest, PercentilesAreOfTheUnion) {
  // One is slow and does little: an average of percentiles would be far off.
  Histogram all;
  const std::vector<NamedResult> results = {
      ResultOf({.seed = 1, .operations = 30'000, .latency_ns_max = 50'000}, &all),
      ResultOf({.seed = 2, .operations = 2'000, .latency_ns_max = 900'000'000}, &all),
      ResultOf({.seed = 3, .operations = 10'000, .latency_ns_max = 100}, &all)};
  const auto merged = MergeResults(results);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const auto& found =
      merged->phases.at(0).kinds[static_cast<size_t>(OpKind::kRead)].latency_ns;
  EXPECT_EQ(found.Sparse().buckets, all.Sparse().buckets);
  EXPECT_EQ(found.min(), all.min());
  EXPECT_EQ(found.max(), all.max());
  EXPECT_NEAR(found.mean(), all.mean(), 1e-3);
  const Json json = merged->ToJson();
  const Json& latency = json["operations"]["READ"]["latency_us"];
  EXPECT_DOUBLE_EQ(latency["p99"].get<double>(), static_cast<double>(all.Quantile(0.99)) * 1e-3);
  EXPECT_DOUBLE_EQ(latency["p50"].get<double>(), static_cast<double>(all.Quantile(0.5)) * 1e-3);
}

TEST(MergeTest, CountsAddUp) {
  const std::vector<NamedResult> results = {ResultOf({.seed = 1, .operations = 1000}),
                                            ResultOf({.seed = 2, .operations = 3000})};
  const auto merged = MergeResults(results);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const Json json = merged->ToJson();
  const Json& read = json["operations"]["READ"];
  EXPECT_EQ(read["count"], 4000);
  EXPECT_EQ(read["returns"]["OK"], 3600);
  EXPECT_EQ(read["returns"]["NOT_FOUND"], 400);
  EXPECT_EQ(read["round_trips_per_op"], 2.0);
  EXPECT_EQ(read["verbs_per_op"], 4.0);
  EXPECT_EQ(read["bytes_read_per_op"], 100.0);
  EXPECT_EQ(json["operations"]["UPDATE"]["returns"]["UNAVAILABLE"], 14);
  EXPECT_EQ(json["overall"]["errors"], 14);
  EXPECT_EQ(json["configuration"]["threads"], 4);
  EXPECT_EQ(json["configuration"]["operation_count"], 4000);
  EXPECT_EQ(json["processes"], 2);
  EXPECT_EQ(json["seeds"], (Json{1, 2}));
  EXPECT_NEAR(json["overall"]["cpu_ns_per_op"].get<double>(), 4000 * 1000 / 4014.0, 1e-3);
}

TEST(MergeTest, ThroughputIsFromTheEarliestStartToTheLatestEnd) {
  const std::vector<NamedResult> results = {
      ResultOf({.seed = 1, .begin_ms = 500, .end_ms = 2500, .operations = 1993}),
      ResultOf({.seed = 2, .begin_ms = 0, .end_ms = 1500, .operations = 2993})};
  const auto merged = MergeResults(results);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const PhaseResult& phase = merged->phases.at(0);
  EXPECT_NEAR(phase.seconds(), 2.5, 1e-5);
  EXPECT_NEAR(phase.ops_per_second(), 5000 / 2.5, 0.1);
  EXPECT_NEAR(merged->overlaps.at(0), 1.0 / 2.5, 1e-5);
  EXPECT_NEAR(merged->ToJson()["overall"]["start_unix_ms"].get<double>(),
              static_cast<double>(kStartNs) * 1e-6, 1e-3);
}

TEST(MergeTest, IntervalsAreLaidTogetherByTheTimeOfDay) {
  const std::vector<NamedResult> results = {
      ResultOf({.seed = 1, .begin_ms = 0, .end_ms = 3000, .operations = 300, .interval_ms = 1000}),
      ResultOf({.seed = 2, .begin_ms = 1990, .end_ms = 4490, .operations = 500,
                .interval_ms = 1000})};
  const auto merged = MergeResults(results);
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_TRUE(merged->phases.at(0).series);
  const TimeSeries& series = *merged->phases.at(0).series;
  std::vector<uint64_t> operations;
  for (const auto& interval : series.intervals) {
    operations.push_back(interval[static_cast<size_t>(OpKind::kRead)].operations());
  }
  EXPECT_EQ(operations, (std::vector<uint64_t>{100, 100, 100 + 200, 200, 100}));
  EXPECT_NEAR(static_cast<double>(series.length_ns(4)), 5e8, 1e3);
}

TEST(MergeTest, MergedResultsMergeAgain) {
  Histogram all;
  std::vector<NamedResult> results;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    results.push_back(
        ResultOf({.seed = seed, .latency_ns_max = seed << 20, .interval_ms = 100}, &all));
  }
  std::vector<NamedResult> halves;
  for (size_t i = 0; i < 4; i += 2) {
    const auto half = MergeResults(std::span(results).subspan(i, 2));
    ASSERT_TRUE(half.ok()) << half.status();
    halves.push_back({"half", Json::parse(half->ToJson().dump())});
  }
  const auto merged = MergeResults(halves);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->seeds, (std::vector<uint64_t>{1, 2, 3, 4}));
  const auto& found =
      merged->phases.at(0).kinds[static_cast<size_t>(OpKind::kRead)].latency_ns;
  EXPECT_EQ(found.Sparse().buckets, all.Sparse().buckets);
  EXPECT_EQ(found.max(), all.max());
}

TEST(MergeTest, WhatCannotBeMergedIsRefusedByName) {
  struct Case {
    std::function<void(Json*)> change;
    std::vector<const char*> named;
  };
  const std::vector<Case> cases = {
      {[](Json* j) { (*j)["phases"]["run"]["overall"].erase("start_unix_ms"); },
       {"phases.run.overall", "start_unix_ms"}},
      {[](Json* j) { (*j)["phases"]["run"]["operations"]["READ"].erase("histogram"); },
       {"phases.run.operations.READ", "no histogram"}},
      {[](Json* j) { (*j)["phases"]["run"]["operations"]["READ"]["histogram"] = "HIST"; },
       {"phases.run.operations.READ.histogram", "HdrHistogram"}},
      {[](Json* j) { (*j)["phases"]["run"]["operations"]["READ"]["returns"]["OK"] = 1; },
       {"phases.run.operations.READ", "returns"}},
      {[](Json* j) { (*j)["phases"]["run"]["operations"]["READ"]["returns"]["FINE"] = 1; },
       {"FINE"}},
      {[](Json* j) { (*j)["phases"]["run"]["operations"]["READ"]["latency_us"]["max"] = 1e9; },
       {"latency_us", "max"}},
      {[](Json* j) { (*j)["phases"]["run"]["overall"]["run_time_ms"] = -1; }, {"run_time_ms"}},
      {[](Json* j) { (*j)["phases"]["run"]["series"]["READ"].erase(0); },
       {"phases.run.series.READ", "intervals"}},
      {[](Json* j) { (*j)["phases"]["run"]["series"]["READ"][3]["operations"] = 5; },
       {"phases.run.series.READ[3]"}},
      {[](Json* j) { (*j)["phases"]["run"].erase("series"); }, {"--interval"}},
      {[](Json* j) { (*j)["phases"]["load"] = (*j)["phases"]["run"]; }, {"phases of process 1"}},
      {[](Json* j) { (*j)["phases"]["walk"] = (*j)["phases"]["run"]; }, {"phases.walk"}},
      {[](Json* j) { (*j)["phases"]["run"]["overall"]["start_unix_ms"] = 1e12; }, {"apart"}},
      {[](Json* j) { (*j)["configuration"]["value_bytes"] = 9; },
       {"configuration.value_bytes", "9", "8", "process 1"}},
      {[](Json* j) { (*j)["configuration"]["new"] = true; }, {"configuration.new"}},
      {[](Json* j) { j->erase("configuration"); }, {"configuration"}},
      {[](Json* j) { j->erase("phases"); }, {"phases"}},
      {[](Json* j) { *j = Json::array(); }, {"no result"}}};
  const NamedResult first = ResultOf({.seed = 1, .interval_ms = 100});
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    NamedResult second = ResultOf({.seed = 2, .interval_ms = 100});
    ASSERT_TRUE(MergeResults(std::vector{first, second}).ok());
    cases[i].change(&second.json);
    const auto merged = MergeResults(std::vector{first, second});
    ASSERT_FALSE(merged.ok());
    for (const char* named : cases[i].named) {
      EXPECT_NE(merged.status().message().find(named), std::string::npos)
          << merged.status() << " does not name " << named;
    }
  }
}

struct MergeCommandTest : ::testing::Test {
  const std::string directory =
      ::testing::TempDir() + "farleaf_merge_" + std::to_string(::getpid()) + "/";
  std::ostringstream out, error;
  MergeCommandTest() {
    std::filesystem::create_directories(directory);
    for (uint64_t seed : {1, 2}) {
      std::ofstream(directory + std::to_string(seed) + ".json")
          << ResultOf({.seed = seed}).json.dump();
    }
  }
  ~MergeCommandTest() override { std::filesystem::remove_all(directory); }
  int Merge(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "merge");
    out.str("");
    error.str("");
    return RunCommand(arguments, {.out = &out, .error = &error});
  }
};

TEST_F(MergeCommandTest, FilesBecomeOne) {
  ASSERT_EQ(Merge({directory + "all.json", directory + "1.json", directory + "2.json", "--hdr-log",
                   directory + "all.hlog"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(error.str(), "");
  EXPECT_NE(out.str().find("[READ], Operations, 2000"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("[PROCESSES], Count, 2"), std::string::npos);
  std::ifstream file(directory + "all.json");
  EXPECT_EQ(Json::parse(file)["overall"]["count"], 2014);
  EXPECT_TRUE(std::filesystem::exists(directory + "all.hlog"));
}

TEST_F(MergeCommandTest, WrongFilesAreRefusedByName) {
  const auto refused = [this](std::vector<std::string> arguments, const std::string& named) {
    EXPECT_EQ(Merge(std::move(arguments)), kExitUsage) << named;
    EXPECT_NE(error.str().find(named), std::string::npos) << error.str();
  };
  const std::string first = directory + "1.json", all = directory + "all.json";
  std::ofstream(directory + "cut.json") << "{\"phases\":";
  refused({}, "OUT.json");
  refused({all}, "IN.json");
  refused({all, directory + "none.json"}, "none.json");
  refused({all, first, directory + "cut.json"}, "cut.json");
  refused({directory + "no/all.json", first}, "no/all.json");
  // Forgetting OUT.json costs no result.
  refused({first, directory + "2.json"}, "1.json is there already");
  EXPECT_FALSE(std::filesystem::exists(all));
}

TEST_F(MergeCommandTest, SameSeedTwiceIsWarnedAbout) {
  ASSERT_EQ(Merge({directory + "all.json", directory + "1.json", directory + "1.json"}), kExitOk);
  EXPECT_NE(error.str().find("--seed"), std::string::npos) << error.str();
}

}  // namespace
}  // namespace farleaf::ycsb
