// verb_bench on a live pool: what it reports, how it ends, and that the pool is as it was.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "test/support/process.h"

namespace farleaf {
namespace {

using Json = nlohmann::json;

struct VerbBenchTest : ::testing::TestWithParam<std::string> {
  ProcessCluster cluster{{.fabric = GetParam(), .region = "8MiB"}};
  void SetUp() override { cluster.StartMemoryServers(); }

  std::vector<std::string> Flags(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--bootstrap", cluster.bootstrap_url(), "--memory-servers-min", "2",
                               "--json", cluster.File("result.json")});
    return more;
  }
  Ended Bench(std::vector<std::string> more) {
    return cluster.Run("verb_bench", Flags(std::move(more)));
  }
  void ExpectPoolIsWhole() {
    const std::vector<std::string> pool{"--pool", cluster.bootstrap_url()};
    const Ended check = cluster.Run("farleafctl", {pool[0], pool[1], "check"});
    EXPECT_EQ(check.code, 0) << check.output;
    const Ended status = cluster.Run("farleafctl", {pool[0], pool[1], "stats"});
    for (const char* id : {"0", "1"}) {
      const std::string line = "memory_server." + std::string(id) + ".chunks.extent       0\n";
      EXPECT_TRUE(status.says(line)) << status.output;
    }
  }
};

TEST_P(VerbBenchTest, CountsEveryVerbOfEachKindAndLoop) {
  struct Case {
    std::string verb, loop, idle, in_flight, batch;
    uint64_t bytes;
  };
  const std::vector<Case> cases = {{"read", "transport", "wait", "1", "1", 8},
                                   {"read", "worker", "wait", "32", "4", 1024},
                                   {"write", "transport", "wait", "32", "4", 1024},
                                   {"cas", "worker", "spin", "1", "1", 8},
                                   {"cas", "transport", "spin", "7", "2", 8},
                                   {"fetch-add", "transport", "wait", "32", "3", 8},
                                   {"fetch-add", "worker", "wait", "32", "3", 8}};
  for (const Case& each : cases) {
    const Ended ended =
        Bench({"--verb", each.verb, "--loop", each.loop, "--in-flight", each.in_flight, "--batch",
               each.batch, "--bytes", std::to_string(each.bytes), "--operations", "1000",
               "--warmup", "10", "--server", "1", "--idle", each.idle});
    ASSERT_EQ(ended.code, 0) << each.verb << ": " << ended.output;
    const Json result = cluster.Json("result.json");
    EXPECT_EQ(result["configuration"]["fabric"], GetParam());
    EXPECT_EQ(result["configuration"]["verb"], each.verb);
    EXPECT_EQ(result["configuration"]["driver"], each.loop);
    EXPECT_EQ(result["configuration"]["bytes"], each.bytes);
    EXPECT_EQ(result["interrupted"], false);
    EXPECT_EQ(result["operations"], 1'000u);
    EXPECT_EQ(result["verbs"], 1'000 * std::stoull(each.batch));
    const Json& latency = result["latency_us"];
    const double median = latency["p50"], p99 = latency["p99"], max = latency["max"];
    EXPECT_GT(max, 0);
    EXPECT_LE(latency["min"].get<double>(), median);
    EXPECT_LE(median, p99);
    EXPECT_LE(p99, max);
    EXPECT_LE(latency["mean"].get<double>(), max);
    // The operations of one place follow each other without a gap.
    const double seconds = result["run_time_ms"].get<double>() * 1e-3;
    EXPECT_NEAR(result["operations_per_second"].get<double>() * seconds, 1'000, 1);
    EXPECT_LE(latency["mean"].get<double>() * 1'000, seconds * 1e6 * std::stod(each.in_flight));
  }
  ExpectPoolIsWhole();
}

TEST_P(VerbBenchTest, EndsEarlyWithItsResultAndGivesTheMemoryBack) {
  for (const int signal : {SIGINT, SIGTERM}) {
    auto bench = cluster.Start("verb_bench", Flags({"--verb", "fetch-add", "--seconds", "3600"}));
    ASSERT_TRUE(bench->WaitForOutput("ops/s")) << bench->Output();
    bench->Signal(signal);
    const Ended ended = cluster.WaitFor(*bench);
    EXPECT_EQ(ended.code, 130) << ended.output;
    EXPECT_EQ(cluster.Json("result.json")["interrupted"], true);
  }
  const Ended timed = Bench({"--seconds", "1"});
  EXPECT_EQ(timed.code, 0) << timed.output;
  EXPECT_GE(cluster.Json("result.json")["run_time_ms"].get<double>(), 990.0);
  ExpectPoolIsWhole();
}

TEST_P(VerbBenchTest, RefusesWhatThePoolDoesNotHave) {
  const Ended no_server = Bench({"--server", "2"});
  EXPECT_EQ(no_server.code, 2) << no_server.output;
  EXPECT_TRUE(no_server.says("memory server 2 is not in the pool, which has 2"))
      << no_server.output;
  const Ended too_much = Bench({"--span", "16MiB"});
  EXPECT_EQ(too_much.code, 1) << too_much.output;
  EXPECT_TRUE(too_much.says("bytes of free chunks in a row")) << too_much.output;
  // There is room for five chunks on either server, not for two such targets on one.
  auto first = cluster.Start("verb_bench", Flags({"--span", "5MiB", "--seconds", "3600"}));
  ASSERT_TRUE(first->WaitForOutput("ops/s")) << first->Output();
  const Ended second = Bench({"--span", "5MiB"});
  EXPECT_EQ(second.code, 1) << second.output;
  EXPECT_TRUE(second.says("memory server 0 has no 5242880 bytes")) << second.output;
  first->Signal(SIGTERM);
  EXPECT_EQ(cluster.WaitFor(*first).code, 130);
  ExpectPoolIsWhole();
}

TEST_P(VerbBenchTest, NamesTheMemoryServerThatIsLost) {
  for (const std::string loop : {"transport", "worker"}) {
    auto bench = cluster.Start("verb_bench", Flags({"--server", "1", "--in-flight", "8",
                                                    "--seconds", "3600", "--loop", loop}));
    ASSERT_TRUE(bench->WaitForOutput("ops/s")) << bench->Output();
    cluster.KillMemoryServer(1);
    const Ended ended = cluster.WaitFor(*bench);
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_TRUE(ended.says("verb_bench: unavailable: ")) << ended.output;
    EXPECT_TRUE(ended.says("memory server 1 lost")) << ended.output;
    cluster.KillMemoryServer(0);
    cluster.StartMemoryServers();
  }
}

TEST_P(VerbBenchTest, RefusesFlagsThatContradictEachOther) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--verb", "cas", "--bytes", "16"}, "--verb cas has 8 bytes"},
      {{"--bytes", "12"}, "multiple of 8"},
      {{"--bytes", "128KiB"}, "--span 65536"},
      {{"--bytes", "64MiB", "--batch", "3", "--span", "1GiB"}, "of one doorbell"},
      {{"--bytes", "64KiB", "--in-flight", "65536"}, "of local memory"},
      {{"--verb", "jump"}, "read, write, cas or fetch-add"},
      {{"--json", "/nowhere/result.json"}, "/nowhere/result.json"}};
  for (const auto& [flags, message] : cases) {
    const Ended ended = Bench(flags);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says(message)) << ended.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Fabric, VerbBenchTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
