// Comparisons: what is concluded from rounds, and runs of two targets in turns, on a clock that
// moves only by what operations cost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "benchmark/ycsb/acknowledged.h"
#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/comparison.h"
#include "benchmark/ycsb/paired_ratio.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {
namespace {

// --- statistics ---

/// P(T < t) of Student's distribution, by Simpson's rule.
double StudentBelow(double t, double degrees) {
  const double scale = std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2)) /
                       std::sqrt(degrees * std::numbers::pi);
  const auto density = [&](double x) {
    return scale * std::pow(1 + x * x / degrees, -(degrees + 1) / 2);
  };
  constexpr int kSteps = 20'000;
  const double step = t / kSteps;
  double sum = density(0) + density(t);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * density(i * step);
  return 0.5 + sum * step / 3;
}

TEST(PairedRatioTest, TableIsStudents) {
  for (size_t degrees = 1; degrees <= 30; ++degrees) {
    EXPECT_NEAR(StudentBelow(StudentT95(degrees), static_cast<double>(degrees)), 0.975, 5e-5)
        << degrees;
  }
  for (size_t degrees : {40, 60, 100}) {
    EXPECT_NEAR(StudentBelow(StudentT95(degrees), static_cast<double>(degrees)), 0.975, 5e-5)
        << degrees;
  }
  // Between the rows and behind the last, an interval may be too wide, not too narrow.
  for (size_t degrees : {31, 39, 41, 59, 61, 99, 101, 999}) {
    const double held = StudentBelow(StudentT95(degrees), static_cast<double>(degrees));
    EXPECT_GE(held, 0.975) << degrees;
    EXPECT_LT(held, 0.9775) << degrees;
  }
}

TEST(PairedRatioTest, RatioAndIntervalAreThoseByHand) {
  // Logarithms of the ratios 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t of two degrees 4.303;
  // half width 4.303 x 0.1 / sqrt(3) = 0.248434.
  const PairedValues rounds[] = {{100 * std::exp(0.1), 100}, {200 * std::exp(0.3), 200},
                                 {50 * std::exp(0.2), 50}};
  const auto compared = CompareRounds(rounds);
  ASSERT_TRUE(compared && compared->interval);
  EXPECT_EQ(compared->rounds, 3u);
  EXPECT_NEAR(compared->ratio, 1.221403, 1e-6);
  EXPECT_NEAR(compared->interval->low, 0.952720, 1e-6);
  EXPECT_NEAR(compared->interval->high, 1.565857, 2e-6);
  EXPECT_FALSE(compared->difference_shown());
  EXPECT_NEAR(compared->target_median, 110.517092, 1e-6);
  EXPECT_EQ(compared->against_median, 100);
}

TEST(PairedRatioTest, MedianOfAnEvenNumberIsBetweenTheMiddleTwo) {
  const PairedValues rounds[] = {{4, 40}, {1, 10}, {3, 20}, {100, 30}};
  const auto compared = CompareRounds(rounds);
  EXPECT_EQ(compared->target_median, 3.5);
  EXPECT_EQ(compared->against_median, 25);
}

TEST(PairedRatioTest, EqualValuesHaveTheRatioOneExactly) {
  const PairedValues rounds[] = {{0.1, 0.1}, {3, 3}, {1e9, 1e9}, {7, 7}};
  const auto compared = CompareRounds(rounds);
  ASSERT_TRUE(compared && compared->interval);
  EXPECT_EQ(compared->ratio, 1);
  EXPECT_EQ(compared->interval->low, 1);
  EXPECT_EQ(compared->interval->high, 1);
  EXPECT_FALSE(compared->difference_shown());
}

TEST(PairedRatioTest, DifferenceIsShownWhereTheIntervalLeavesOneOut) {
  const PairedValues higher[] = {{1.10, 1}, {1.11, 1}, {1.12, 1}};
  EXPECT_TRUE(CompareRounds(higher)->difference_shown());
  const PairedValues lower[] = {{1, 1.10}, {1, 1.11}, {1, 1.12}};
  EXPECT_TRUE(CompareRounds(lower)->difference_shown());
}

TEST(PairedRatioTest, TwoRoundsHaveARatioAndNoInterval) {
  const PairedValues rounds[] = {{2, 1}, {8, 1}};
  const auto compared = CompareRounds(rounds);
  EXPECT_NEAR(compared->ratio, 4, 1e-12);
  EXPECT_FALSE(compared->interval);
  EXPECT_FALSE(compared->difference_shown());
}

TEST(PairedRatioTest, RoundsWithoutARatioDoNotCount) {
  const PairedValues rounds[] = {{2, 1}, {0, 1}, {2, 0}, {std::nan(""), 1}, {2, 1}};
  const auto compared = CompareRounds(rounds);
  EXPECT_EQ(compared->rounds, 2u);
  EXPECT_FALSE(compared->interval);
  EXPECT_FALSE(CompareRounds(std::span(rounds).subspan(1, 3)));
  EXPECT_FALSE(CompareRounds({}));
}

double Normal(Random& random) {
  const double u = 1 - random.Uniform(), v = random.Uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

TEST(PairedRatioTest, IntervalHoldsTheTrueRatioInNineteenOfTwentyExperiments) {
  constexpr int kExperiments = 2000;
  constexpr double kTrueRatio = 1.07;
  for (size_t rounds : {3, 10, 35}) {
    Random random(20 + rounds);
    int held = 0;
    for (int i = 0; i < kExperiments; ++i) {
      std::vector<PairedValues> values;
      for (size_t round = 0; round < rounds; ++round) {
        // The machine's speed differs from round to round by far more than the targets do.
        const double machine = std::exp(Normal(random));
        values.push_back({kTrueRatio * machine * std::exp(0.1 * Normal(random)),
                          machine * std::exp(0.1 * Normal(random))});
      }
      held += CompareRounds(values)->interval->Holds(kTrueRatio) ? 1 : 0;
    }
    EXPECT_GE(held, kExperiments * 93 / 100) << rounds << " rounds";
    EXPECT_LE(held, kExperiments * 97 / 100) << rounds << " rounds";
  }
}

// --- figures ---

PhaseResult ResultWithReads(uint64_t reads) {
  PhaseResult result;
  KindStats& stats = result.kinds[static_cast<size_t>(OpKind::kRead)];
  stats.latency_ns.RecordMany(1000, reads);
  stats.returns[static_cast<size_t>(Return::kOk)] = reads;
  result.elapsed_ns = reads * 1000;
  result.cpu_ns = reads * 500;
  return result;
}

TEST(FiguresTest, AreThroughputCpuTimeAndPercentiles) {
  const auto figures = FiguresOf(ResultWithReads(1000));
  std::map<std::string, double> values;
  for (const Figure& figure : figures) values[figure.name] = figure.value;
  const std::map<std::string, double> expected = {{"ops_per_second", 1e6},
                                                  {"cpu_ns_per_op", 500},
                                                  {"READ.latency_us.p50", 1},
                                                  {"READ.latency_us.p99", 1},
                                                  {"READ.latency_us.p999", 1}};
  EXPECT_EQ(values, expected);
}

TEST(FiguresTest, PercentileThatNoOperationIsBeyondIsLeftOut) {
  const auto names = [](uint64_t reads) {
    std::string joined;
    for (const Figure& figure : FiguresOf(ResultWithReads(reads))) joined += figure.title + ";";
    return joined;
  };
  EXPECT_NE(names(1000).find("READ p99.9 (us)"), std::string::npos);
  EXPECT_EQ(names(999).find("READ p99.9 (us)"), std::string::npos);
  EXPECT_NE(names(100).find("READ p99 (us)"), std::string::npos);
  EXPECT_EQ(names(99).find("READ p99 (us)"), std::string::npos);
  EXPECT_EQ(names(0), "");
}

// --- inserts over several phases ---

TEST(AcknowledgedCounterTest, DroppedNumbersAreTakenAgainFirst) {
  AcknowledgedCounter counter(10);
  for (uint64_t number = 10; number < 16; ++number) ASSERT_EQ(counter.Take(), number);
  for (uint64_t number : {10, 12, 15}) counter.Acknowledge(number);
  EXPECT_EQ(counter.end(), 11u);
  counter.ReclaimDropped();
  for (uint64_t number : {11, 13, 14}) EXPECT_EQ(counter.Take(), number);
  EXPECT_EQ(counter.Take(), 16u);
  for (uint64_t number : {14, 13, 16, 11}) counter.Acknowledge(number);
  EXPECT_EQ(counter.end(), 17u);
  counter.ReclaimDropped();
  EXPECT_EQ(counter.Take(), 17u);
}

// --- whole runs ---

/// One Session::Run.
struct SessionRun {
  std::string target;
  std::vector<std::string> operations;  ///< kind and key of each
};

struct FakeWorld {
  ManualClock clock;
  /// What the next operation of the target takes; the second: Session::Runs of the target before
  /// this one.
  std::function<uint64_t(const std::string&, size_t)> cost_ns = [](const std::string&, size_t) {
    return 1000;
  };
  /// May spoil an operation that has been answered.
  std::function<void(const std::string&, size_t, Operation*)> after = [](const std::string&, size_t,
                                                                         Operation*) {};
  /// Whether the session drops an operation, as it does those that a stopped phase leaves.
  std::function<bool(const std::string&, size_t, const Operation&)> drops =
      [](const std::string&, size_t, const Operation&) { return false; };
  std::vector<SessionRun> runs;
  std::map<std::string, TargetOptions> opened;
  std::vector<std::string> closed;
};

/// A map whose operations take what the world says.
class FakeTarget final : public Target {
 public:
  FakeTarget(FakeWorld* world, std::string url) : world_(world), url_(std::move(url)) {}

  Result<std::unique_ptr<Session>> OpenSession() override {
    return std::unique_ptr<Session>(std::make_unique<FakeSession>(this));
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override {
    world_->closed.push_back(url_);
    return Status::Ok();
  }

 private:
  class FakeSession final : public Session {
   public:
    explicit FakeSession(FakeTarget* target) : target_(*target) {}
    Status Run(OperationSource& source, uint64_t) override {
      FakeWorld& world = *target_.world_;
      const size_t run = target_.runs_++;
      std::vector<std::string> operations;
      for (Operation operation; source.Next(&operation);) {
        if (world.drops(target_.url_, run, operation) || !source.Begin(&operation)) continue;
        world.clock.AdvanceNs(world.cost_ns(target_.url_, run));
        operations.push_back(std::string(OpKindName(operation.kind)) + " " + operation.key);
        target_.Answer(&operation);
        world.after(target_.url_, run, &operation);
        source.Done(operation);
      }
      world.runs.push_back({target_.url_, std::move(operations)});
      return Status::Ok();
    }

   private:
    FakeTarget& target_;
  };

  void Answer(Operation* operation) {
    auto [at, inserted] = map_.try_emplace(operation->key, operation->value);
    operation->found = !inserted;
    operation->found_value = at->second;
    if (operation->kind == OpKind::kUpdate) at->second = operation->value;
    if (inserted && operation->kind != OpKind::kInsert) map_.erase(at);
  }

  FakeWorld* world_;
  const std::string url_;
  std::map<std::string, std::string> map_;
  size_t runs_ = 0;
};

struct CompareTest : ::testing::Test {
  FakeWorld world;
  std::ostringstream out, error;
  int interrupt_fds[2] = {-1, -1};
  const std::string json_path =
      ::testing::TempDir() + "ycsb_compare_test." + std::to_string(::getpid()) + ".json";

  void SetUp() override { ASSERT_EQ(::pipe(interrupt_fds), 0); }
  void TearDown() override {
    for (int fd : interrupt_fds) ::close(fd);
    std::filesystem::remove(json_path);
  }
  void Interrupt() { ASSERT_EQ(::write(interrupt_fds[1], "x", 1), 1); }

  int Ycsb(const std::vector<std::string>& arguments) {
    out.str("");
    error.str("");
    return RunCommand(
        arguments,
        {.open_target = [this](const std::string& url, const TargetOptions& options,
                               const Clock*) -> Result<std::unique_ptr<Target>> {
           if (url.starts_with("broken:")) return Status::Unavailable("nobody there");
           world.opened[url] = options;
           return std::unique_ptr<Target>(std::make_unique<FakeTarget>(&world, url));
         },
         .clock = &world.clock,
         .out = &out,
         .error = &error,
         .interrupt_fd = interrupt_fds[0]});
  }
  int Compare(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"-p",        "recordcount=200",
                                          "-p",        "operationcount=2000",
                                          "-p",        "readproportion=0.5",
                                          "-p",        "updateproportion=0.5",
                                          "--phase",   "load,run",
                                          "--target",  "a:",
                                          "--against", "b:",
                                          "--json",    json_path,
                                          "--status-interval", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Ycsb(arguments);
  }
  nlohmann::json Json() const {
    std::ifstream file(json_path);
    return nlohmann::json::parse(file);
  }
  /// The line of the table that begins with `title`.
  std::string Line(const std::string& title) const {
    std::istringstream text(out.str());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with(title)) return line;
    }
    return "";
  }
  std::string Order() const {
    std::string order;
    for (const SessionRun& run : world.runs) order += run.target;
    return order;
  }
};

TEST_F(CompareTest, BothAreLoadedOnceAndRunInTurns) {
  ASSERT_EQ(Compare({"--rounds", "4"}), kExitOk) << error.str();
  EXPECT_EQ(Order(), "a:b:a:b:b:a:a:b:b:a:");
  EXPECT_EQ(world.closed, (std::vector<std::string>{"b:", "a:"}));
  EXPECT_EQ(error.str(), "");
  const auto comparison = Json().at("comparison");
  EXPECT_EQ(comparison.at("load").at("target").at("operations").at("INSERT").at("count"), 200);
  EXPECT_EQ(comparison.at("load").at("against").at("operations").at("INSERT").at("count"), 200);
  std::string first;
  for (const auto& round : comparison.at("rounds")) first += round.at("first").get<std::string>();
  EXPECT_EQ(first, "targetagainsttargetagainst");
}

TEST_F(CompareTest, RoundHasItsOwnSeedAndBothGetItsOperations) {
  ASSERT_EQ(Compare({"--rounds", "3", "--seed", "40"}), kExitOk) << error.str();
  ASSERT_EQ(world.runs.size(), 8u);
  EXPECT_EQ(world.runs[2].operations, world.runs[3].operations);
  EXPECT_EQ(world.runs[4].operations, world.runs[5].operations);
  EXPECT_EQ(world.runs[6].operations, world.runs[7].operations);
  EXPECT_NE(world.runs[2].operations, world.runs[4].operations);
  EXPECT_NE(world.runs[4].operations, world.runs[6].operations);
  EXPECT_EQ(world.runs[2].operations.size(), 2000u);
  const auto rounds = Json().at("comparison").at("rounds");
  EXPECT_EQ(rounds.at(0).at("seed"), 40);
  EXPECT_EQ(rounds.at(2).at("seed"), 42);
  // The operations are those of a run by itself with that seed.
  const auto of_the_third = world.runs[6].operations;
  ASSERT_EQ(Ycsb({"-p", "recordcount=200", "-p", "operationcount=2000", "-p", "readproportion=0.5",
                  "-p", "updateproportion=0.5", "--phase", "load,run", "--target", "c:", "--seed",
                  "42"}),
            kExitOk);
  EXPECT_EQ(world.runs.back().operations, of_the_third);
}

TEST_F(CompareTest, IdenticalTargetsHaveTheRatioOne) {
  ASSERT_EQ(Compare({"--rounds", "3"}), kExitOk) << error.str();
  const auto figures = Json().at("comparison").at("figures");
  for (const char* name : {"ops_per_second", "READ.latency_us.p50", "READ.latency_us.p99",
                           "UPDATE.latency_us.p50", "UPDATE.latency_us.p99"}) {
    const auto& figure = figures.at(name);
    EXPECT_EQ(figure.at("ratio"), 1) << name;
    EXPECT_EQ(figure.at("ci95"), nlohmann::json({1, 1})) << name;
    EXPECT_EQ(figure.at("difference_shown"), false) << name;
  }
  EXPECT_TRUE(Line("throughput (ops/s)").ends_with("no difference shown")) << out.str();
}

TEST_F(CompareTest, RatioIsOfTheTargetToTheOther) {
  world.cost_ns = [](const std::string& target, size_t) { return target == "a:" ? 1000 : 2000; };
  ASSERT_EQ(Compare({"--rounds", "3"}), kExitOk) << error.str();
  const auto figures = Json().at("comparison").at("figures");
  EXPECT_NEAR(figures.at("ops_per_second").at("ratio"), 2, 1e-12);
  EXPECT_EQ(figures.at("ops_per_second").at("target_median"), 1e6);
  EXPECT_EQ(figures.at("ops_per_second").at("against_median"), 5e5);
  EXPECT_EQ(figures.at("ops_per_second").at("difference_shown"), true);
  EXPECT_NEAR(figures.at("READ.latency_us.p99").at("ratio"), 0.5, 1e-12);
  EXPECT_TRUE(Line("throughput (ops/s)").ends_with("A higher")) << out.str();
  EXPECT_TRUE(Line("READ p50 (us)").ends_with("A lower")) << out.str();
}

TEST_F(CompareTest, IntervalIsOfTheRoundsRatios) {
  // Of a:, the three rounds (runs 1 to 3) take 1, 2 and 4 us an operation, of b: 1: ratios 1, 1/2,
  // 1/4. The logarithms' deviation is ln 2; half width 4.303 x ln 2 / sqrt(3) = 1.722010.
  world.cost_ns = [](const std::string& target, size_t run) -> uint64_t {
    return target == "a:" && run > 0 ? uint64_t{500} << run : 1000;
  };
  ASSERT_EQ(Compare({"--rounds", "3"}), kExitOk) << error.str();
  const auto figure = Json().at("comparison").at("figures").at("ops_per_second");
  EXPECT_NEAR(figure.at("ratio"), 0.5, 1e-9);
  EXPECT_NEAR(figure.at("ci95").at(0), 0.5 * std::exp(-1.722010), 1e-5);
  EXPECT_NEAR(figure.at("ci95").at(1), 0.5 * std::exp(1.722010), 1e-4);
  EXPECT_EQ(figure.at("target_median"), 5e5);
  EXPECT_EQ(figure.at("difference_shown"), false);
  EXPECT_NE(Line("throughput (ops/s)").find("0.5000  [0.0894, 2.7979]"), std::string::npos)
      << out.str();
}

TEST_F(CompareTest, DriftThatIsEvenCancels) {
  // Every Session::Run finds the machine a tenth slower than the one before it.
  world.cost_ns = [this](const std::string&, size_t) {
    return static_cast<uint64_t>(1e6 * std::pow(1.1, static_cast<double>(world.runs.size())));
  };
  ASSERT_EQ(Compare({"--rounds", "10"}), kExitOk) << error.str();
  EXPECT_NEAR(Json().at("comparison").at("figures").at("ops_per_second").at("ratio"), 1, 1e-5);
}

TEST_F(CompareTest, InsertThatARoundDroppedIsTheNextOnesFirst) {
  std::string dropped;
  world.drops = [&](const std::string& target, size_t run, const Operation& operation) {
    if (target != "a:" || run != 1 || !dropped.empty()) return false;
    dropped = "INSERT " + operation.key;
    return true;
  };
  ASSERT_EQ(Compare({"--rounds", "3", "-p", "readproportion=0", "-p", "updateproportion=0", "-p",
                     "insertproportion=1"}),
            kExitOk)
      << error.str();
  // a: is the first of round 1 and the second of round 2.
  EXPECT_EQ(world.runs[2].operations.size(), 1999u);
  EXPECT_EQ(world.runs[3].operations.front(), dropped);
  EXPECT_EQ(world.runs[5].target, "a:");
  EXPECT_EQ(world.runs[5].operations.front(), dropped);
  EXPECT_NE(world.runs[5].operations[1], world.runs[4].operations[1]);
}

TEST_F(CompareTest, InterruptedRunTellsTheRoundsThatAreComplete) {
  for (const size_t complete : {0, 1, 2, 3}) {
    SCOPED_TRACE(complete);
    TearDown();
    SetUp();
    world.runs.clear();
    // In the first phase of the round behind them; Session::Run 0 is the load.
    const std::string stops = FirstOf(complete) == Side::kTarget ? "a:" : "b:";
    bool interrupted = false;
    world.after = [&](const std::string& target, size_t run, Operation*) {
      if (interrupted || target != stops || run != complete + 1) return;
      interrupted = true;
      Interrupt();
    };
    EXPECT_EQ(Compare({"--rounds", "5"}), kExitInterrupted);
    EXPECT_EQ(world.runs.back().target, stops);
    const auto comparison = Json().at("comparison");
    EXPECT_EQ(comparison.at("interrupted"), true);
    EXPECT_EQ(comparison.at("rounds").size(), complete);
    EXPECT_NE(out.str().find(std::to_string(complete) + " of 5 rounds"), std::string::npos);
    if (complete == 0) {
      EXPECT_TRUE(comparison.at("figures").empty());
      continue;
    }
    const auto& figure = comparison.at("figures").at("ops_per_second");
    EXPECT_EQ(figure.at("ratio"), 1);
    EXPECT_EQ(figure.at("ci95").is_null(), complete < 3);
    EXPECT_EQ(figure.at("difference_shown").is_null(), complete < 3);
    EXPECT_EQ(Line("throughput (ops/s)").ends_with("1.0000  -"), complete < 3) << out.str();
  }
}

TEST_F(CompareTest, InterruptedLoadTellsNothingButThat) {
  Interrupt();
  EXPECT_EQ(Compare(), kExitInterrupted);
  EXPECT_TRUE(world.runs.empty());
  EXPECT_EQ(Json().at("comparison").at("interrupted"), true);
  EXPECT_EQ(world.closed.size(), 2u);
}

TEST_F(CompareTest, TargetThatFailsIsNamedWithItsRound) {
  world.after = [](const std::string& target, size_t run, Operation* operation) {
    if (target == "b:" && run == 2 && operation->kind == OpKind::kRead) {
      operation->found_value = "12345678";
    }
  };
  EXPECT_EQ(Compare({"--rounds", "5"}), kExitFailed);
  EXPECT_NE(error.str().find("ycsb: --against b:: round 2: READ of key"), std::string::npos)
      << error.str();
  EXPECT_EQ(error.str().find("--target a:"), std::string::npos) << error.str();
  const auto comparison = Json().at("comparison");
  EXPECT_EQ(comparison.at("failed"), true);
  EXPECT_EQ(comparison.at("rounds").size(), 1u);
  EXPECT_NE(comparison.at("problems").at(0).get<std::string>().find("--against b:: round 2"),
            std::string::npos);
  EXPECT_NE(out.str().find("1 of 5 rounds"), std::string::npos) << out.str();
  EXPECT_EQ(world.closed.size(), 2u);
}

TEST_F(CompareTest, TargetThatFailsInTheLoadIsNamed) {
  world.after = [](const std::string& target, size_t, Operation* operation) {
    if (target == "a:") operation->status = Status::Unavailable("memory server 3 lost");
  };
  EXPECT_EQ(Compare(), kExitFailed);
  EXPECT_NE(error.str().find("ycsb: --target a:: load: INSERT of key"), std::string::npos)
      << error.str();
  EXPECT_EQ(Order(), "a:");
}

TEST_F(CompareTest, TargetThatCannotBeOpenedIsNamedAndTheOtherClosed) {
  EXPECT_EQ(Ycsb({"-p", "recordcount=20", "-p", "operationcount=20", "--target", "a:", "--against",
                  "broken:"}),
            kExitFailed);
  EXPECT_NE(error.str().find("ycsb: --against broken:: "), std::string::npos) << error.str();
  EXPECT_NE(error.str().find("nobody there"), std::string::npos) << error.str();
  EXPECT_EQ(world.closed, std::vector<std::string>{"a:"});
}

TEST_F(CompareTest, AllowedErrorsAreCountedBesideTheTable) {
  world.after = [](const std::string& target, size_t run, Operation* operation) {
    if (target == "b:" && run > 0) operation->status = Status::Unavailable("lost");
  };
  EXPECT_EQ(Compare({"--rounds", "3", "-p", "farleaf.allow_errors=true"}), kExitOk);
  EXPECT_NE(out.str().find("failed operations, which count in the throughput: 0 of A, 6000 of B"),
            std::string::npos)
      << out.str();
  EXPECT_FALSE(Json().at("comparison").at("figures").contains("READ.latency_us.p50"));
}

TEST_F(CompareTest, ProgressTellsEveryRound) {
  std::vector<std::string> arguments = {"-p", "recordcount=20", "-p", "operationcount=20",
                                        "--phase", "load,run", "--target", "a:",
                                        "--against", "b:", "--rounds", "3"};
  ASSERT_EQ(Ycsb(arguments), kExitOk);
  EXPECT_NE(error.str().find("ycsb: round 1 of 3: A 1000000 ops/s, B 1000000 ops/s, A/B 1.0000\n"),
            std::string::npos)
      << error.str();
  EXPECT_NE(error.str().find("ycsb: round 3 of 3: "), std::string::npos) << error.str();
}

TEST_F(CompareTest, ArgumentsOfTheOtherChangeOnlyIt) {
  ASSERT_EQ(Compare({"--rounds", "3", "--scan-leaves-max", "5", "--against-args",
                     "--cache off --value-hint-bytes 4096 --sorted-leaves "
                     "--program 'a design' -p farleaf.tree=other"}),
            kExitOk)
      << error.str();
  const TargetOptions &a = world.opened["a:"], &b = world.opened["b:"];
  EXPECT_TRUE(a.cache);
  EXPECT_FALSE(b.cache);
  EXPECT_NE(a.value_hint_bytes, 4096u);
  EXPECT_EQ(b.value_hint_bytes, 4096u);
  EXPECT_FALSE(a.sorted_leaves);
  EXPECT_TRUE(b.sorted_leaves);
  EXPECT_EQ(a.program, "");
  EXPECT_EQ(b.program, "a design");
  EXPECT_EQ(a.tree, "usertable");
  EXPECT_EQ(b.tree, "other");
  // What both are told.
  EXPECT_EQ(a.scan_leaves_max, 5u);
  EXPECT_EQ(b.scan_leaves_max, 5u);
  EXPECT_TRUE(a.create_tree && b.create_tree);
  const auto json = Json();
  EXPECT_EQ(json.at("configuration").at("cache"), true);
  EXPECT_EQ(json.at("comparison").at("against_configuration").at("cache"), false);
  EXPECT_NE(out.str().find("B = b: --cache off"), std::string::npos) << out.str();
}

TEST_F(CompareTest, ArgumentsOfTheOtherMayTakeBackWhatTheTargetHas) {
  ASSERT_EQ(Compare({"--rounds", "3", "--sorted-leaves", "--cache", "off", "--against-args",
                     "--sorted-leaves=false --cache on"}),
            kExitOk)
      << error.str();
  EXPECT_TRUE(world.opened["a:"].sorted_leaves);
  EXPECT_FALSE(world.opened["b:"].sorted_leaves);
  EXPECT_FALSE(world.opened["a:"].cache);
  EXPECT_TRUE(world.opened["b:"].cache);
}

TEST_F(CompareTest, RunPhaseAloneIsComparedToo) {
  ASSERT_EQ(Compare({"--rounds", "3"}), kExitOk);
  world.runs.clear();
  // The fake's maps are gone with it, so that only missing keys are there to be found.
  EXPECT_EQ(Ycsb({"-p", "recordcount=20", "-p", "operationcount=20", "--target", "a:", "--against",
                  "b:"}),
            kExitFailed);
  EXPECT_NE(error.str().find("--target a:: round 1: "), std::string::npos) << error.str();
  EXPECT_FALSE(world.opened["b:"].create_tree);
}

TEST_F(CompareTest, WrongFlagsAreRefusedByName) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--rounds", "5"}, "--rounds requires --against"},
      {{"--against-args", "--cache off"}, "--against-args requires --against"},
      {{"--against", "b:", "--rounds", "2"}, "--rounds"},
      {{"--against", "b:", "--rounds", "1001"}, "--rounds"},
      {{"--against", ""}, "--against"},
      {{"--against", "b:", "--phase", "load"}, "--against: it is the run phase"},
      {{"--against", "b:", "--processes", "2"}, "--against: two targets take turns in one process"},
      {{"--against", "b:", "--hdr-log", "log"}, "--against: --hdr-log is of one target"},
      {{"--against", "sim:model.toml"}, "--against sim:model.toml: a target in virtual time"},
      {{"--against", "b:", "--against-args", "--threads 2"}, "--threads"},
      {{"--against", "b:", "--against-args", "--threads 2"}, "--against-args: "},
      {{"--against", "b:", "--against-args", "--cache maybe"}, "--cache"},
      {{"--against", "b:", "--against-args", "--help"}, "--help"},
      {{"--against", "b:", "--against-args", "-p recordcount=5"},
       "--against-args: -p recordcount=5: only farleaf.tree"},
      {{"--against", "b:", "--against-args", "-p farleaf.tree="}, "-p farleaf.tree="}};
  for (const auto& [flags, named] : cases) {
    std::vector<std::string> arguments = {
        "-p", "recordcount=10", "-p", "operationcount=10", "--target", "a:"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(Ycsb(arguments), kExitUsage) << named;
    EXPECT_NE(error.str().find(named), std::string::npos) << named << ": " << error.str();
  }
  EXPECT_TRUE(world.opened.empty());
}

TEST_F(CompareTest, OnePlaceIsNotLoadedTwice) {
  const auto load = [this](const std::string& target, const std::string& against,
                           const std::string& args = "") {
    return Ycsb({"-p", "recordcount=10", "-p", "operationcount=10", "--phase", "load,run",
                 "--target", target, "--against", against, "--against-args", args, "--rounds", "3"});
  };
  for (const auto& [target, against] : std::vector<std::pair<std::string, std::string>>{
           {"lsm:/tmp/d", "lsm:/tmp/d"},
           {"lsm:/tmp/d", "lsm:/tmp/./e/../d/?cache_mb=3"},
           {"lsm:/tmp/d", "rocksdb:/tmp/d"},
           {"lsm:d", "lsm:" + std::filesystem::current_path().string() + "/d"},
           {"pool:memcached://h:1/c", "pool:memcached://h:1/c"}}) {
    EXPECT_EQ(load(target, against), kExitUsage) << against;
    EXPECT_NE(error.str().find("--against " + against + ": the same place"), std::string::npos)
        << error.str();
  }
  // A store has one tree, whatever its name.
  EXPECT_EQ(load("lsm:/tmp/d", "lsm:/tmp/d", "-p farleaf.tree=other"), kExitUsage);
  EXPECT_TRUE(world.opened.empty());
  EXPECT_EQ(load("lsm:/tmp/d", "lsm:/tmp/e"), kExitOk) << error.str();
  EXPECT_EQ(load("pool:memcached://h:1/c", "pool:memcached://h:1/c", "-p farleaf.tree=other"),
            kExitOk)
      << error.str();
  EXPECT_EQ(load("local:?servers=2", "local:?servers=2"), kExitOk) << error.str();
}

TEST_F(CompareTest, HelpNamesItsFlags) {
  ASSERT_EQ(Ycsb({"--help"}), kExitOk);
  for (const char* flag : {"--against TARGET", "--against-args", "--rounds"}) {
    EXPECT_NE(out.str().find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace farleaf::ycsb
