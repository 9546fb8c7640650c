// Wrong flags, files and surroundings: each program refuses them with an exit code and a message that
// names what is wrong, and never hangs or crashes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "test/support/process.h"

namespace farleaf {
namespace {

constexpr int kWrongArguments = 2;

struct ConfigurationTest : ::testing::Test {
  ProcessCluster cluster{{.memory_servers = 1}};

  void ExpectRefused(const std::string& program, const std::vector<std::string>& flags,
                     const std::vector<std::string>& says) {
    const Ended ended = cluster.Run(program, flags);
    std::string command = program;
    for (const std::string& flag : flags) command += " " + flag;
    EXPECT_EQ(ended.code, kWrongArguments) << command << "\n" << ended.output;
    for (const std::string& text : says) {
      EXPECT_TRUE(ended.says(text)) << command << "\nsays nothing of " << text << ":\n"
                                    << ended.output;
    }
  }
};

/// What --help of a server says of one of its options.
struct HelpLine {
  std::string flag;  ///< "--size"
  std::string kind;  ///< "BYTES", or "" for a switch
  std::string text;
};

std::vector<HelpLine> ParseHelp(const std::string& help) {
  std::vector<HelpLine> lines;
  std::istringstream stream(help);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("  --")) continue;
    std::istringstream words(line);
    HelpLine parsed;
    words >> parsed.flag;
    if (parsed.flag == "--help" || parsed.flag == "--version" || parsed.flag == "--config")
      continue;
    if (line[2 + parsed.flag.size() + 1] != ' ') words >> parsed.kind;
    std::getline(words, parsed.text);
    lines.push_back(parsed);
  }
  return lines;
}

/// Values that no option of the kind takes; none where every text has a meaning.
std::vector<std::string> WrongValues(const std::string& kind) {
  if (kind == "N") return {"x", "-1", "99999999999999999999", "1.5", "99999999999"};
  if (kind == "BYTES") return {"x", "12XiB", "-1", "1B", "9999999TiB"};
  if (kind == "WORD") return {"nonsense"};
  if (kind.empty()) return {"maybe"};
  return {};
}

std::string KeyOf(const std::string& flag) {
  std::string key = flag.substr(2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

struct ServerConfigurationTest : ConfigurationTest, ::testing::WithParamInterface<std::string> {
  const std::string program = GetParam();

  std::vector<HelpLine> Options() {
    const Ended help = cluster.Run(program, {"--help"});
    EXPECT_EQ(help.code, 0);
    const auto options = ParseHelp(help.output);
    EXPECT_GT(options.size(), 15u) << help.output;
    return options;
  }
  std::string TomlFile(const std::string& text) const {
    const std::string path = cluster.File("server.toml");
    std::ofstream(path) << text;
    return path;
  }
};

TEST_P(ServerConfigurationTest, AWrongValueOfAnyFlagIsNamedWithWhatIsAllowed) {
  int cases = 0;
  for (const HelpLine& option : Options()) {
    for (const std::string& value : WrongValues(option.kind)) {
      const bool from_none =  // 0 and whatever is more is allowed there
          option.flag == "--value-hint-bytes" || option.flag == "--value-list-bytes";
      if (value == "1B" && from_none) continue;
      ++cases;
      ExpectRefused(program, {"--bootstrap", cluster.bootstrap_url(), option.flag + "=" + value},
                    {program + ": " + option.flag + ":", value, "allowed: "});
    }
  }
  EXPECT_GT(cases, 25);
}

TEST_P(ServerConfigurationTest, AWrongValueOfAnyKeyIsNamedWithItsLine) {
  for (const HelpLine& option : Options()) {
    const bool is_text = option.kind == "TEXT" || option.kind == "LIST" || option.kind == "WORD";
    const std::string value = is_text ? "17" : option.kind == "BYTES" ? "true" : "'x'";
    const std::string file = TomlFile("# a comment\n" + KeyOf(option.flag) + " = " + value + "\n");
    ExpectRefused(program, {"--config", file},
                  {"server.toml, line 2: " + KeyOf(option.flag) + ": "});
  }
}

TEST_P(ServerConfigurationTest, WrongFilesAreRefused) {
  ExpectRefused(program, {"--config", TomlFile("threads = \n")}, {"server.toml, line 1"});
  ExpectRefused(program, {"--config", TomlFile("[section]\nid = 1\n")},
                {"server.toml, line 1: section: unknown key"});
  ExpectRefused(program, {"--config", TomlFile("lisen = '127.0.0.1:0'\n")},
                {"server.toml, line 1: lisen: unknown key; did you mean listen?"});
  ExpectRefused(program, {"--config", TomlFile("log_level = 'info'\nlog_level = 'warn'\n")},
                {"server.toml, line 2", "log_level"});
  ExpectRefused(program, {"--config", TomlFile(std::string("\x00\xff\xfe", 3))}, {"server.toml"});
  ExpectRefused(program, {"--config", TomlFile(std::string(3 << 20, '#'))},
                {"server.toml is larger than 1MiB"});
  ExpectRefused(program, {"--config", "/nonexistent"},
                {"configuration file /nonexistent: No such file"});
  ExpectRefused(program, {"--config", cluster.File("")}, {"cannot be read"});
}

TEST_P(ServerConfigurationTest, WrongFlagsAreRefused) {
  ExpectRefused(program, {}, {"--bootstrap is missing", "key bootstrap"});
  ExpectRefused(program, {"--bootstrap"}, {"--bootstrap"});
  ExpectRefused(program, {"--bootstrap", "carrier://pigeon"},
                {"'carrier://pigeon'", "memcached://HOST:PORT/CLUSTER", "file:PATH"});
  ExpectRefused(program, {"--bootstrap", "memcached://nowhere"}, {"memcached://nowhere"});
  ExpectRefused(program, {"--bootstrp", "x"}, {"--bootstrp; did you mean --bootstrap?"});
  ExpectRefused(program, {"positional"}, {"'positional' is not expected"});
}

TEST_P(ServerConfigurationTest, AMemcachedThatDoesNotAnswerIsNamed) {
  const std::string address = FreeAddress();
  std::vector<std::string> flags{"--bootstrap", "memcached://" + address + "/tested"};
  if (program == "compute_server") flags.insert(flags.end(), {"--join-wait-ms", "300"});
  const Ended ended = cluster.Run(program, flags);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(ended.says("memcached at " + address)) << ended.output;
}

INSTANTIATE_TEST_SUITE_P(Program, ServerConfigurationTest,
                         ::testing::Values("memory_server", "compute_server"),
                         [](const auto& each) { return each.param; });

TEST_F(ConfigurationTest, EveryProgramTellsItsHelpAndItsVersion) {
  for (const char* program : {"memory_server", "compute_server", "ycsb", "farleafctl"}) {
    const Ended help = cluster.Run(program, {"--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_TRUE(help.says("Usage: ")) << help.output;
    const Ended version = cluster.Run(program, {"--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_TRUE(version.output.starts_with(std::string(program) + " (farleaf) 0."))
        << version.output;
    EXPECT_EQ(version.output.find('\n'), version.output.size() - 1) << version.output;
  }
}

TEST_F(ConfigurationTest, YcsbRefusesWrongArguments) {
  struct Case {
    std::vector<std::string> flags;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases{
      {{"--threads", "0"}, {"--threads", "0", "1 to 1000"}},
      {{"--threads", "many"}, {"--threads", "many"}},
      {{"--in-flight", "65537"}, {"--in-flight", "65537", "1 to 65536"}},
      {{"--seed", "1.5"}, {"--seed", "1.5"}},
      {{"--rate", "-1"}, {"--rate", "-1"}},
      {{"--warmup", "-1"}, {"--warmup", "-1"}},
      {{"--cache", "maybe"}, {"--cache", "maybe", "on", "off"}},
      {{"--phase", "nap"}, {"--phase nap", "load, run or load,run"}},
      {{"--status-interval", "x"}, {"--status-interval", "x"}},
      {{"--json", "/nonexistent/x"}, {"--json /nonexistent/x", "writing"}},
      {{"--sing"}, {"--sing"}},
      {{"-P", "/nonexistent"}, {"'/nonexistent'"}},
      {{"-p", "recordcount"}, {"-p recordcount", "NAME=VALUE"}},
      {{"-p", "recordcount=none"}, {"recordcount=none", "1 to "}},
      {{"-p", "recordcount=0"}, {"recordcount=0", "1 to "}},
      {{"-p", "readproportion=2"}, {"readproportion=2", "0 to 1"}},
      {{"-p", "farleaf.keys=words"}, {"farleaf.keys=words", "fixed8", "bytes"}},
      {{"-p", "requestdistribution=fair"}, {"requestdistribution=fair", "zipfian"}},
      {{"-p", "fieldlength=16777217"}, {"fieldlength=16777217", "1 to 16777216"}},
      {{"-p", "maxscanlength=0"}, {"maxscanlength=0"}},
      {{"-p", "farleaf.tree="}, {"farleaf.tree="}},
      {{"-p", "farleaf.allow_errors=maybe"}, {"farleaf.allow_errors=maybe", "true", "false"}},
      {{"-p", "farleaf.operation_timeout_ms=0"}, {"farleaf.operation_timeout_ms=0", "1 to "}},
      {{"--target", "nowhere:"}, {"--target nowhere:", "local:", "farleaf://HOST:PORT"}},
      {{"--target", "local:?servers=65"}, {"servers=65", "1 to 64"}},
      {{"--target", "local:?region=1KiB"}, {"region=1KiB", "1MiB to 1TiB"}},
      {{"--target", "pool:x"}, {"'x'", "file:PATH"}},
      {{"--target", "farleaf://here"}, {"here", "HOST:PORT"}},
      {{"--target", "farleaf+unix:"}, {"1 to 107"}},
  };
  for (const Case& each : cases) {
    std::vector<std::string> flags{"-p", "recordcount=10",  "-p", "operationcount=10",
                                   "-p", "readproportion=1"};
    const bool has_target = each.flags[0] == "--target";
    if (!has_target) flags.insert(flags.end(), {"--target", "local:"});
    flags.insert(flags.end(), each.flags.begin(), each.flags.end());
    ExpectRefused("ycsb", flags, each.says);
  }
  ExpectRefused("ycsb", {"-p", "recordcount=10"}, {"--target is missing"});
  ExpectRefused("ycsb", {"--target", "local:"}, {"recordcount is not set"});
}

TEST_F(ConfigurationTest, ControlRefusesWrongArguments) {
  ExpectRefused("farleafctl", {}, {"subcommand"});
  ExpectRefused("farleafctl", {"status"}, {"--pool", "--server"});
  ExpectRefused("farleafctl", {"--pool", "x", "status"}, {"'x'", "file:PATH"});
  ExpectRefused("farleafctl", {"--pool", "file:/nonexistent", "status"}, {"/nonexistent"});
  ExpectRefused("farleafctl", {"--server", "file:x", "status"}, {"farleaf://HOST:PORT"});
  ExpectRefused("farleafctl", {"--server", "a", "--pool", "b", "status"}, {"--pool", "--server"});
  const std::vector<std::string> there{"--pool", cluster.bootstrap_url()};
  const auto expect = [&](std::vector<std::string> flags, const std::vector<std::string>& says) {
    flags.insert(flags.begin(), there.begin(), there.end());
    ExpectRefused("farleafctl", flags, says);
  };
  expect({"sing"}, {"subcommand"});
  expect({"get", "k"}, {"--tree"});
  expect({"put", "--tree", "t", "k"}, {"value"});
  expect({"--deadline-ms", "0", "status"}, {"--deadline-ms", "1 to 86400000"});
  expect({"scan", "--tree", "t", "--limit", "x"}, {"--limit", "x"});
  expect({"get", "--tree", "t", "--format", "smoke", "k"}, {"--format", "smoke"});
  expect({"create-tree"}, {"name"});
  expect({"create-tree", "t", "--layout", "columns"}, {"--layout", "columns", "fixed8"});
  expect({"create-tree", "t", "--leaf-bytes", "x"}, {"--leaf-bytes", "x"});
}

// ---- clusters ------------------------------------------------------------------------------------

struct ClusterTest : ::testing::TestWithParam<std::string> {};

TEST_P(ClusterTest, OfTwoServersThatClaimOneIdTheSecondEnds) {
  ProcessCluster cluster(
      {.fabric = GetParam(), .bootstrap = Bootstrap::kMemcached, .memory_servers = 1});
  cluster.StartMemoryServers();
  const std::string bootstrap = cluster.bootstrap_url();
  const Ended second = cluster.Run(
      "memory_server", {"--bootstrap", bootstrap, "--id", "0", "--size", "16MiB", "--fabric",
                        GetParam(), "--socket", cluster.File("other.sock")});
  EXPECT_EQ(second.code, 1) << second.output;
  EXPECT_TRUE(second.says("memory server id 0 of cluster 'tested' is taken by ")) << second.output;
  EXPECT_FALSE(std::filesystem::exists(cluster.File("other.sock")));
  EXPECT_TRUE(cluster.memory_server(0).running());
  EXPECT_EQ(cluster.Run("farleafctl", {"--pool", bootstrap, "status"}).code, 0);
  cluster.StopMemoryServers();
  // Nothing is announced any more.
  const Ended status =
      cluster.Run("farleafctl", {"--pool", bootstrap, "--deadline-ms", "300", "status"});
  EXPECT_EQ(status.code, 1) << status.output;
}

TEST_P(ClusterTest, AMemberOfAnotherClusterIsRefusedWithBothNames) {
  ProcessCluster cluster({.fabric = GetParam(), .memory_servers = 1});
  cluster.StartMemoryServers();
  std::ifstream file(cluster.File("pool"));
  std::ostringstream text;
  text << file.rdbuf();
  std::ofstream(cluster.File("other")) << "cluster strangers\n"
                                       << text.str().substr(text.str().find('\n') + 1);
  const std::string other = "file:" + cluster.File("other");
  const std::vector<Ended> refused{
      cluster.Run("compute_server",
                  {"--bootstrap", other, "--listen", "127.0.0.1:0", "--join-wait-ms", "2000"}),
      cluster.Run("ycsb", {"--target", "pool:" + other, "-p", "recordcount=1", "--phase", "load"}),
      cluster.Run("farleafctl", {"--pool", other, "status"})};
  for (const Ended& each : refused) {
    EXPECT_TRUE(each.code == 1 || each.code == 2) << each.output;
    EXPECT_TRUE(each.says("strangers") && each.says("tested")) << each.output;
  }
  const Ended server = cluster.Run("memory_server", {"--bootstrap", other, "--cluster", "tested"});
  EXPECT_EQ(server.code, kWrongArguments) << server.output;
  EXPECT_TRUE(server.says("strangers") && server.says("tested")) << server.output;
}

INSTANTIATE_TEST_SUITE_P(Fabric, ClusterTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
