// Coordinated omission: what a stall of one second does to the latencies of an open and of a closed
// loop. The clock is manual, so that both are exact.
#include <gtest/gtest.h>

#include "benchmark/ycsb/runner.h"
#include "test/unit/stalling_target.h"

namespace farleaf::ycsb {
namespace {

constexpr uint64_t kLong = uint64_t{1} << 29;  // 537 ms: a bucket's boundary

struct StallTest : ::testing::Test {
  static constexpr uint64_t kOperations = 4000;

  /// Reads, 10 us each; the stall of one second begins after `stall_at_ns`.
  Histogram Run(double rate, uint64_t in_flight, uint64_t stall_at_ns) {
    RunConfiguration configuration{.in_flight = in_flight, .rate = rate};
    configuration.workload.record_count = configuration.workload.insert_count = 100;
    configuration.workload.operation_count = kOperations;
    configuration.workload.proportions[static_cast<size_t>(OpKind::kRead)] = 1;
    ManualClock clock;
    StallingTarget target(&clock, {.stall_at_ns = stall_at_ns, .stall_ns = kNsPerSecond});
    Runner runner({.configuration = configuration}, &target, &clock);
    auto result = runner.Run(Phase::kRun);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->operations(), kOperations);
    EXPECT_FALSE(result->failed);
    return result->kinds[static_cast<size_t>(OpKind::kRead)].latency_ns;
  }
  static uint64_t CountLong(const Histogram& latency_ns) {
    return latency_ns.count() - latency_ns.CountBelow(kLong);
  }
};

TEST_F(StallTest, OpenLoopTellsOfEveryOperationThatWaited) {
  // Those due in the 463 ms before what is left of the stall is 537 ms, and 1 % more, as the backlog
  // is served at 10 us each meanwhile: one in eight or nine of 4 s.
  const Histogram latency_ns = Run(1000, 1, 1500 * kNsPerMs);
  EXPECT_NEAR(static_cast<double>(CountLong(latency_ns)), 463 * 1.01, 2);
  EXPECT_EQ(latency_ns.max(), kNsPerSecond);
  EXPECT_GT(latency_ns.Quantile(0.99), 950 * kNsPerMs);
  EXPECT_GT(latency_ns.Quantile(0.999), 990 * kNsPerMs);
  EXPECT_LT(latency_ns.Quantile(0.5), 11 * kNsPerUs);
}

TEST_F(StallTest, OpenLoopDoesNotHideItBehindOperationsInFlight) {
  // Whether one is begun late or waits in the target: its latency is from when it was due.
  for (const uint64_t in_flight : {uint64_t{8}, uint64_t{64}}) {
    const Histogram latency_ns = Run(1000, in_flight, 1500 * kNsPerMs);
    EXPECT_NEAR(static_cast<double>(CountLong(latency_ns)), 463 * 1.01, 2) << in_flight;
    EXPECT_GT(latency_ns.Quantile(0.99), 950 * kNsPerMs) << in_flight;
  }
}

TEST_F(StallTest, ClosedLoopTellsOnlyOfThoseInFlight) {
  for (const uint64_t in_flight : {uint64_t{1}, uint64_t{3}}) {
    const Histogram latency_ns = Run(0, in_flight, 20 * kNsPerMs);
    EXPECT_EQ(CountLong(latency_ns), in_flight);
    EXPECT_LT(latency_ns.Quantile(0.99), in_flight * 11 * kNsPerUs);
    EXPECT_LT(latency_ns.Quantile(0.999), in_flight * 11 * kNsPerUs);
    EXPECT_GE(latency_ns.max(), kNsPerSecond);
  }
}

TEST_F(StallTest, WithoutAStallBothLoopsAgree) {
  for (const double rate : {0.0, 1000.0}) {
    const Histogram latency_ns = Run(rate, 1, UINT64_MAX);
    EXPECT_EQ(latency_ns.min(), 10 * kNsPerUs);
    EXPECT_EQ(latency_ns.max(), 10 * kNsPerUs) << rate;
  }
}

}  // namespace
}  // namespace farleaf::ycsb
