// Hot spots, resting and shifting, and YCSB's exponential distribution: which key numbers a thread
// asks for.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "benchmark/ycsb/operations.h"

namespace farleaf::ycsb {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

Result<WorkloadOptions> ParseHotSpot(const Settings& settings, bool has_run_phase = true) {
  Properties properties;
  properties.Set("recordcount", "1000");
  properties.Set("operationcount", "100000");
  for (const auto& [name, value] : settings) properties.Set(name, value);
  std::vector<std::string> unknown;
  auto workload = ParseWorkload(properties, has_run_phase, &unknown);
  EXPECT_TRUE(unknown.empty()) << unknown.front();
  return workload;
}

/// One thread's generator, and all that it works with.
struct Thread {
  Thread(const Settings& settings, GeneratorOptions generator_options)
      : options(*ParseHotSpot(settings)),
        inserts(options.record_count),
        generator(&phase, generator_options) {}

  /// The key numbers of its next `count` operations, inserts left out.
  std::vector<uint64_t> Draw(uint64_t count) {
    std::vector<uint64_t> numbers;
    Operation operation;
    for (uint64_t i = 0; i < count && generator.Next(&operation); ++i) {
      if (operation.kind != OpKind::kInsert) numbers.push_back(operation.key_number);
    }
    return numbers;
  }

  ManualClock clock;
  WorkloadOptions options;
  RecordCodec codec{KeyLayout::kFixed8, InsertOrder::kHashed, 1, 8};
  AcknowledgedCounter inserts;
  RunState run{.options = options, .codec = codec, .inserts = inserts, .clock = clock};
  PhaseState phase{.run = run};
  OperationGenerator generator;
};

GeneratorOptions ThreadOf(uint64_t thread, uint64_t threads) {
  GeneratorOptions options;
  options.thread = thread;
  options.threads = threads;
  options.seed = 17;
  options.operations = 1'000'000;
  return options;
}

/// Six standard deviations of the number of hits among `draws`, each with `chance`.
double SixSigma(double draws, double chance) {
  return 6 * std::sqrt(draws * chance * (1 - chance));
}

void ExpectUniform(const std::vector<uint64_t>& counts, double draws) {
  const double chance = 1 / static_cast<double>(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(counts[i]), draws * chance, SixSigma(draws, chance)) << i;
  }
}

/// Whether `number` is among the `hot` numbers from `begin` on, in a ring of `count`.
bool IsHot(uint64_t number, uint64_t begin, uint64_t hot, uint64_t count) {
  return (number + count - begin % count) % count < hot;
}

TEST(HotSpotTest, HotKeysAreTheFirstAndHaveTheirShare) {
  Thread thread({{"requestdistribution", "hotspot"}, {"insertstart", "400"}}, ThreadOf(0, 1));
  constexpr double kDraws = 200'000;
  std::vector<uint64_t> hot(120), cold(480);  // of the 600 numbers from 400 on
  for (uint64_t number : thread.Draw(static_cast<uint64_t>(kDraws))) {
    ASSERT_GE(number, 400u);
    ASSERT_LT(number, 1000u);
    number < 520 ? ++hot[number - 400] : ++cold[number - 520];
  }
  double hot_draws = 0;
  for (uint64_t count : hot) hot_draws += static_cast<double>(count);
  EXPECT_NEAR(hot_draws, kDraws * 0.8, SixSigma(kDraws, 0.8));
  ExpectUniform(hot, hot_draws);
  ExpectUniform(cold, kDraws - hot_draws);
}

TEST(HotSpotTest, FractionsAreThoseOfTheProperties) {
  Thread thread({{"requestdistribution", "hotspot"},
                 {"hotspotdatafraction", "0.0015"},  // one key of a thousand, rounded down
                 {"hotspotopnfraction", "0.25"}},
                ThreadOf(0, 1));
  double hot = 0;
  for (uint64_t number : thread.Draw(100'000)) hot += number == 0;
  EXPECT_NEAR(hot, 25'000, SixSigma(100'000, 0.25));
}

TEST(HotSpotTest, AllOrNothingIsHot) {
  for (uint64_t number : Thread({{"requestdistribution", "hotspot"}, {"hotspotopnfraction", "1"}},
                                ThreadOf(0, 1))
                             .Draw(10'000)) {
    ASSERT_LT(number, 200u);
  }
  for (uint64_t number : Thread({{"requestdistribution", "hotspot"}, {"hotspotopnfraction", "0"}},
                                ThreadOf(0, 1))
                             .Draw(10'000)) {
    ASSERT_GE(number, 200u);
  }
  std::vector<uint64_t> all(1000);
  for (uint64_t number : Thread({{"requestdistribution", "hotspot"},
                                 {"hotspotdatafraction", "1"},
                                 {"hotspotopnfraction", "1"}},
                                ThreadOf(0, 1))
                             .Draw(100'000)) {
    ++all.at(number);
  }
  ExpectUniform(all, 100'000);
}

TEST(HotSpotTest, InsertsOfTheRunAreNeverChosen) {
  // As with the uniform distribution, and as in YCSB.
  for (const char* distribution : {"hotspot", "shiftinghotspot"}) {
    Thread thread({{"requestdistribution", distribution},
                   {"farleaf.hotspot_shift_operations", "10"},
                   {"insertproportion", "0.5"}},
                  ThreadOf(0, 1));
    thread.inserts.Acknowledge(thread.inserts.Take());
    for (uint64_t number : thread.Draw(20'000)) ASSERT_LT(number, 1000u);
  }
}

TEST(ShiftingHotSpotTest, MovesOnByItsLengthAndRoundTheEnd) {
  // 300 of 1000 are hot, so that the fourth place is [900, 1000) and [0, 200), and the eleventh the
  // first again. With every operation hot, nothing may lie outside.
  Thread thread({{"requestdistribution", "shiftinghotspot"},
                 {"hotspotdatafraction", "0.3"},
                 {"hotspotopnfraction", "1"},
                 {"farleaf.hotspot_shift_operations", "5000"}},
                ThreadOf(0, 1));
  for (uint64_t shift = 0; shift < 25; ++shift) {
    uint64_t at_the_beginning = 0, lowest = 1000, highest = 0;
    for (uint64_t number : thread.Draw(5'000)) {
      ASSERT_TRUE(IsHot(number, shift * 300, 300, 1000)) << number << " after shift " << shift;
      at_the_beginning += number < 200;
      lowest = std::min(lowest, number);
      highest = std::max(highest, number);
    }
    if (shift % 10 == 0) {
      EXPECT_LT(highest, 300u);
    } else if (shift % 10 == 1) {
      EXPECT_GE(lowest, 300u);
    } else if (shift % 10 == 3) {
      EXPECT_NEAR(static_cast<double>(at_the_beginning), 5'000 * 2 / 3.0, SixSigma(5'000, 2 / 3.0));
    }
  }
}

TEST(ShiftingHotSpotTest, SharesHoldInEveryPlace) {
  Thread thread({{"requestdistribution", "shiftinghotspot"},
                 {"farleaf.hotspot_shift_operations", "20000"}},
                ThreadOf(0, 1));
  for (uint64_t shift = 0; shift < 7; ++shift) {
    double hot = 0;
    for (uint64_t number : thread.Draw(20'000)) hot += IsHot(number, shift * 200, 200, 1000);
    EXPECT_NEAR(hot, 16'000, SixSigma(20'000, 0.8)) << shift;
  }
}

TEST(ShiftingHotSpotTest, OperationsOfAllThreadsCount) {
  // Operation i of thread t of 4 is number 4 i + t of the run. With a shift every 999, thread 3's
  // operation 249 is the first after it, and the other threads' operations 250.
  for (uint64_t t = 0; t < 4; ++t) {
    Thread thread({{"requestdistribution", "shiftinghotspot"},
                   {"hotspotopnfraction", "1"},
                   {"farleaf.hotspot_shift_operations", "999"}},
                  ThreadOf(t, 4));
    const auto numbers = thread.Draw(300);
    for (uint64_t i = 0; i < 300; ++i) {
      const uint64_t shift = (i * 4 + t) / 999;
      ASSERT_EQ(numbers[i] / 200, shift) << "thread " << t << " operation " << i;
    }
    EXPECT_EQ(numbers[249] / 200, t == 3 ? 1u : 0u);
  }
}

TEST(ShiftingHotSpotTest, InsertsCountAsOperations) {
  Thread thread({{"requestdistribution", "shiftinghotspot"},
                 {"hotspotopnfraction", "1"},
                 {"readproportion", "0.5"},
                 {"updateproportion", "0"},
                 {"insertproportion", "0.5"},
                 {"farleaf.hotspot_shift_operations", "1000"}},
                ThreadOf(0, 1));
  for (uint64_t shift = 0; shift < 4; ++shift) {
    for (uint64_t number : thread.Draw(1'000)) ASSERT_EQ(number / 200, shift);
  }
}

TEST(ShiftingHotSpotTest, SeedAndThreadDecideEverything) {
  const Settings settings = {{"requestdistribution", "shiftinghotspot"},
                             {"farleaf.hotspot_shift_operations", "100"}};
  EXPECT_EQ(Thread(settings, ThreadOf(1, 4)).Draw(5'000),
            Thread(settings, ThreadOf(1, 4)).Draw(5'000));
  EXPECT_NE(Thread(settings, ThreadOf(1, 4)).Draw(100), Thread(settings, ThreadOf(2, 4)).Draw(100));
}

TEST(ShiftingHotSpotTest, ManyShiftsOfManyKeysStayInRange) {
  const HotSpot spot({.first = 7,
                      .count = uint64_t{1} << 40,
                      .data_fraction = 0.9,
                      .operation_fraction = 0.5});
  Random random(5);
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t number = spot.Next(random, (UINT64_MAX >> 8) - i);
    ASSERT_GE(number, 7u);
    ASSERT_LT(number, (uint64_t{1} << 40) + 7);
  }
}

TEST(ExponentialTest, PercentileOfRequestsIsForTheNewestRecords) {
  Thread thread({{"requestdistribution", "exponential"},
                 {"exponential.percentile", "90"},
                 {"exponential.frac", "0.1"}},
                ThreadOf(0, 1));
  double newest = 0, newer_half = 0;
  for (uint64_t number : thread.Draw(100'000)) {
    ASSERT_LT(number, 1000u);
    newest += number >= 900;
    newer_half += number >= 950;
  }
  EXPECT_NEAR(newest, 90'000, SixSigma(100'000, 0.9));
  const double half = 1 - std::sqrt(0.1);
  EXPECT_NEAR(newer_half, 100'000 * half, SixSigma(100'000, half));
}

TEST(ExponentialTest, AcknowledgedInsertsAreTheNewest) {
  Thread thread({{"requestdistribution", "exponential"}, {"exponential.frac", "0.001"}},
                ThreadOf(0, 1));
  const uint64_t first = thread.inserts.Take(), second = thread.inserts.Take();
  thread.inserts.Acknowledge(second);
  for (uint64_t number : thread.Draw(1'000)) ASSERT_LT(number, 1000u);
  thread.inserts.Acknowledge(first);
  uint64_t newest = 0;
  for (uint64_t number : thread.Draw(1'000)) newest += number == second;
  EXPECT_NEAR(static_cast<double>(newest), 950, SixSigma(1'000, 0.95));
}

TEST(ExponentialTest, RangeBeyondTheRecordsStaysInThem) {
  Thread thread({{"requestdistribution", "exponential"},
                 {"exponential.percentile", "0.001"},
                 {"exponential.frac", "1000"},
                 {"recordcount", "3"}},
                ThreadOf(0, 1));
  for (uint64_t number : thread.Draw(100)) ASSERT_LT(number, 3u);
}

struct Refused {
  Settings settings;
  std::string message;
};
struct RefusedTest : ::testing::TestWithParam<Refused> {};

TEST_P(RefusedTest, ByNameAndWithWhatWasExpected) {
  const auto workload = ParseHotSpot(GetParam().settings);
  ASSERT_FALSE(workload.ok());
  EXPECT_NE(workload.status().message().find(GetParam().message), std::string::npos)
      << workload.status();
}

const std::pair<std::string, std::string> kHotSpot = {"requestdistribution", "hotspot"};
const std::pair<std::string, std::string> kShifting = {"requestdistribution", "shiftinghotspot"};

INSTANTIATE_TEST_SUITE_P(
    HotSpots, RefusedTest,
    ::testing::Values(
        Refused{{{"hotspotdatafraction", "1.1"}},
                "hotspotdatafraction=1.1: expected a number from 0 to 1"},
        Refused{{{"hotspotdatafraction", "-0.1"}}, "hotspotdatafraction=-0.1: expected a number"},
        Refused{{{"hotspotopnfraction", "2"}},
                "hotspotopnfraction=2: expected a number from 0 to 1"},
        Refused{{{"hotspotopnfraction", "most"}}, "hotspotopnfraction=most: expected a number"},
        Refused{{kHotSpot, {"hotspotdatafraction", "0.0009"}},
                "hotspotdatafraction=0.0009: no key of 1000 is hot"},
        Refused{{kHotSpot, {"recordcount", "4"}},
                "hotspotdatafraction is not set: no key of 4 is hot"},
        Refused{{kHotSpot, {"hotspotdatafraction", "1"}},
                "hotspotdatafraction=1: every key is hot"},
        Refused{{kShifting}, "farleaf.hotspot_shift_operations is not set"},
        Refused{{kShifting, {"farleaf.hotspot_shift_operations", "0"}},
                "farleaf.hotspot_shift_operations=0: expected an integer from 1 to"},
        Refused{{kShifting,
                 {"farleaf.hotspot_shift_operations", "9"},
                 {"hotspotdatafraction", "0"}},
                "hotspotdatafraction=0: no key of 1000 is hot"},
        Refused{{{"exponential.percentile", "100"}},
                "exponential.percentile=100: expected a number from 0.001"},
        Refused{{{"exponential.frac", "0"}}, "exponential.frac=0: must be above 0"},
        Refused{{{"exponential.frac", "1001"}},
                "exponential.frac=1001: expected a number from 0 to 1000"}));

TEST(HotSpotTest, ALoadOfAFewRecordsIsNotRefused) {
  // One of several processes that load: where the hot keys are is the run's affair.
  EXPECT_TRUE(ParseHotSpot({kHotSpot, {"insertcount", "2"}}, /*has_run_phase=*/false).ok());
  EXPECT_FALSE(ParseHotSpot({kHotSpot, {"insertcount", "2"}}).ok());
}

}  // namespace
}  // namespace farleaf::ycsb
