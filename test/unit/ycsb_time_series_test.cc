// Intervals: where an operation counts, that threads' parts add up to the phase, and what JSON says.
#include <gtest/gtest.h>

#include "benchmark/ycsb/hdr_codec.h"
#include "benchmark/ycsb/runner.h"
#include "benchmark/ycsb/time_series.h"
#include "dsm/base/random.h"
#include "test/unit/stalling_target.h"

namespace farleaf::ycsb {
namespace {

constexpr uint64_t kInterval = 1000;
constexpr auto kRead = static_cast<size_t>(OpKind::kRead);

TimeSeries Merge(std::vector<IntervalRecorder>& threads, uint64_t elapsed_ns) {
  std::vector<IntervalRecorder*> recorders;
  for (IntervalRecorder& thread : threads) recorders.push_back(&thread);
  return MergeIntervals(recorders, kInterval, elapsed_ns);
}

std::vector<uint64_t> OperationsOf(const TimeSeries& series, OpKind kind) {
  std::vector<uint64_t> operations;
  for (const IntervalByKind& interval : series.intervals) {
    operations.push_back(interval[static_cast<size_t>(kind)].operations());
  }
  return operations;
}

TEST(TimeSeriesTest, OperationCountsWhereItEnded) {
  std::vector<IntervalRecorder> threads{IntervalRecorder(kInterval)};
  for (const uint64_t ended_ns : {1, 999, 1000, 1001, 3500, 4000}) {
    threads[0].Record(OpKind::kRead, ended_ns, 5);
  }
  const TimeSeries series = Merge(threads, 4000);
  // 1000 and 4000 end their intervals; the third had none, and is there.
  EXPECT_EQ(OperationsOf(series, OpKind::kRead), (std::vector<uint64_t>{3, 1, 0, 2}));
  EXPECT_EQ(series.length_ns(3), kInterval);
}

TEST(TimeSeriesTest, LastIntervalIsAsLongAsThePhaseLasted) {
  std::vector<IntervalRecorder> threads{IntervalRecorder(kInterval)};
  threads[0].Record(OpKind::kRead, 500, 5);
  threads[0].Record(OpKind::kRead, 2100, 5);
  const TimeSeries series = Merge(threads, 2250);
  ASSERT_EQ(series.intervals.size(), 3u);
  EXPECT_EQ(series.length_ns(0), kInterval);
  EXPECT_EQ(series.length_ns(2), 250u);
  const auto json = SeriesToJson(series);
  EXPECT_DOUBLE_EQ(json["READ"][2]["ops_per_s"].get<double>(), 1 / 250e-9);
  EXPECT_DOUBLE_EQ(json["last_interval_s"].get<double>(), 250e-9);
}

TEST(TimeSeriesTest, FailuresCountWithoutLatency) {
  std::vector<IntervalRecorder> threads{IntervalRecorder(kInterval)};
  threads[0].Record(OpKind::kRead, 10, 5);
  threads[0].Record(OpKind::kRead, 20, std::nullopt);
  threads[0].Record(OpKind::kUpdate, 1500, std::nullopt);
  const TimeSeries series = Merge(threads, 2000);
  EXPECT_EQ(OperationsOf(series, OpKind::kRead), (std::vector<uint64_t>{2, 0}));
  EXPECT_EQ(series.intervals[0][kRead].failures, 1u);
  EXPECT_EQ(series.intervals[0][kRead].latency_ns.count(), 1u);
  const auto json = SeriesToJson(series);
  EXPECT_EQ(json["UPDATE"][1]["failures"], 1);
  EXPECT_TRUE(json["UPDATE"][1]["max_us"].is_null());
  EXPECT_FALSE(json["UPDATE"][1].contains("histogram"));
  EXPECT_FALSE(json.contains("SCAN"));
}

TEST(TimeSeriesTest, WhatIsBeyondTheMostIntervalsCountsInTheLast) {
  std::vector<IntervalRecorder> threads{IntervalRecorder(kInterval)};
  const uint64_t end_ns = (kIntervalsMax + 5) * kInterval;
  for (const uint64_t ended_ns : {uint64_t{1}, end_ns - 1, end_ns}) {
    threads[0].Record(OpKind::kRead, ended_ns, 5);
  }
  const TimeSeries series = Merge(threads, end_ns);
  ASSERT_EQ(series.intervals.size(), kIntervalsMax);
  EXPECT_EQ(series.intervals.back()[kRead].operations(), 2u);
  EXPECT_EQ(series.length_ns(kIntervalsMax - 1), 6 * kInterval);
}

TEST(TimeSeriesTest, ThreadsAddUpToThePhase) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<IntervalRecorder> threads(1 + random.Below(4), IntervalRecorder(kInterval));
    uint64_t end_ns = 1;
    std::vector<Histogram> expected(40);
    Histogram all;
    for (IntervalRecorder& thread : threads) {
      for (uint64_t ended_ns = 1 + random.Below(5000); ended_ns <= 40 * kInterval;
           ended_ns += random.Below(random.OneIn(10) ? 5 * kInterval : kInterval / 4)) {
        const uint64_t latency_ns = random.Below(uint64_t{1} << random.Below(40));
        thread.Record(OpKind::kScan, ended_ns, latency_ns);
        expected[(ended_ns - 1) / kInterval].Record(latency_ns);
        all.Record(latency_ns);
        end_ns = std::max(end_ns, ended_ns);
      }
    }
    const TimeSeries series = Merge(threads, end_ns);
    Histogram sum;
    for (size_t i = 0; i < series.intervals.size(); ++i) {
      const auto& scans = series.intervals[i][static_cast<size_t>(OpKind::kScan)];
      const SparseHistogram& found = scans.latency_ns;
      const SparseHistogram wanted = expected[i].Sparse();
      EXPECT_EQ(found.buckets, wanted.buckets) << i;
      EXPECT_EQ(found.max, wanted.max) << i;
      EXPECT_EQ(found.sum, wanted.sum) << i;
      sum.Merge(found);
    }
    EXPECT_EQ(sum.count(), all.count());
    EXPECT_EQ(sum.sum(), all.sum());
    EXPECT_EQ(sum.min(), all.min());
    EXPECT_EQ(sum.Sparse().buckets, all.Sparse().buckets);
  }
}

TEST(TimeSeriesTest, StallIsAnIntervalWithoutOperations) {
  // 1,000 a second, 10 us each; from 1.5 s on nothing for 2 s.
  RunConfiguration configuration{.rate = 1000, .series_interval_ns = kNsPerSecond};
  configuration.workload.record_count = configuration.workload.insert_count = 100;
  configuration.workload.operation_count = 5000;
  configuration.workload.proportions[kRead] = 1;
  ManualClock clock;
  StallingTarget target(
      &clock, {.stall_at_ns = 1500 * kNsPerMs, .stall_ns = 2 * kNsPerSecond});
  Runner runner({.configuration = configuration}, &target, &clock);
  auto result = runner.Run(Phase::kRun);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->series);
  // In the fourth second end those of 2.5 s, less the few that are not served yet.
  EXPECT_EQ(OperationsOf(*result->series, OpKind::kRead),
            (std::vector<uint64_t>{1000, 500, 0, 2500, 1000}));
  const auto json = SeriesToJson(*result->series);
  EXPECT_EQ(json["interval_s"], 1.0);
  EXPECT_EQ(json["READ"][0]["second"], 0.0);
  EXPECT_EQ(json["READ"][0]["ops_per_s"], 1000.0);
  EXPECT_EQ(json["READ"][0]["p99_us"], 10.0);
  EXPECT_EQ(json["READ"][2]["operations"], 0);
  EXPECT_TRUE(json["READ"][2]["p50_us"].is_null());
  EXPECT_EQ(json["READ"][3]["second"], 3.0);
  EXPECT_EQ(json["READ"][3]["max_us"], 2e6);
  const auto histogram =
      DecodeHistogram(json["READ"][3]["histogram"].get_ref<const std::string&>());
  ASSERT_TRUE(histogram.ok()) << histogram.status();
  EXPECT_EQ(histogram->count(), 2500u);
}

}  // namespace
}  // namespace farleaf::ycsb
