// The benchmark's targets redis: and memcached:, against Farleaf's front ends, Redis and memcached
// as they are packaged, and servers that misbehave.
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/record.h"
#include "test/support/child_process.h"
#include "test/support/record_servers.h"
#include "test/support/scripted_text_server.h"
#include "test/support/text_client.h"

namespace farleaf::ycsb {
namespace {

struct TextTargetTest : ::testing::Test {
  MonotonicClock clock;
  std::ostringstream out, error;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("farleaf-ycsb-text-" + std::to_string(::getpid()));

  TextTargetTest() { std::filesystem::create_directories(folder); }
  ~TextTargetTest() override { std::filesystem::remove_all(folder); }

  int Ycsb(char workload, const std::string& target, const std::vector<std::string>& more = {}) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {"-P",
                                          std::string(FARLEAF_WORKLOADS) + "/workload" + workload,
                                          "-p",
                                          "recordcount=500",
                                          "-p",
                                          "operationcount=1000",
                                          "-p",
                                          "farleaf.keys=bytes",
                                          "-p",
                                          "fieldlength=20",
                                          "--target",
                                          target,
                                          "--status-interval",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  bool Complained(std::string_view text) const {
    return error.str().find(text) != std::string::npos;
  }
  /// The sum of the numbers behind `line`, of all kinds of operations and phases.
  uint64_t Sum(const std::string& line) const {
    uint64_t sum = 0;
    const std::string text = out.str(), wanted = line + ", ";
    for (size_t at = 0; (at = text.find(wanted, at)) != std::string::npos;) {
      at += wanted.size();
      sum += std::stoull(text.substr(at));
    }
    return sum;
  }
  std::string PasswordFile(const std::string& name, const std::string& password) const {
    const std::filesystem::path path = folder / name;
    std::ofstream(path) << password << "\n";
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return path.string();
  }
};

// --- servers that work ---

enum class ServerKind { kFarleafRedis, kFarleafMemcached, kRedis, kMemcached };

bool IsInstalled(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

/// A rival on a Unix socket. `ask`: what it answers when it serves.
class Rival {
 public:
  Rival(std::vector<std::string> command, const std::filesystem::path& socket,
        const std::string& ask)
      : process_(std::move(command), socket.string() + ".out") {
    const MonotonicClock clock;
    const uint64_t end_ns = clock.NowNs() + 60 * kNsPerSecond;
    while (process_.running() && clock.NowNs() < end_ns) {
      if (!std::filesystem::exists(socket)) continue;
      const auto endpoint = client::ParseUnixPath(socket.string());
      const auto addresses = client::internal::Resolve(*endpoint);
      if (!client::internal::Dial(addresses->front()).ok()) continue;
      test::TextClient client("any+unix:" + socket.string());
      client.Send(ask);
      if (!client.ReceiveUntil("\r\n").empty()) return;
    }
    ADD_FAILURE() << process_.Output();
  }

 private:
  ChildProcess process_;
};

struct TextServersTest : TextTargetTest, ::testing::WithParamInterface<ServerKind> {
  std::unique_ptr<test::RecordServers> farleaf;
  std::unique_ptr<Rival> rival;
  std::string url;

  static bool speaks_redis() {
    return GetParam() == ServerKind::kFarleafRedis || GetParam() == ServerKind::kRedis;
  }
  /// False: it is not installed.
  bool StartWith(const std::string& password) {
    const std::string socket = (folder / "socket").string();
    switch (GetParam()) {
      case ServerKind::kFarleafRedis:
      case ServerKind::kFarleafMemcached: {
        server::NativeServerOptions options;
        if (!password.empty()) options.passwords = {password};
        farleaf = test::StartRecordServers(test::RecordServersKind::kPool, options);
        url = speaks_redis() ? farleaf->redis_url(0) : farleaf->memcached_url(0);
        return true;
      }
      case ServerKind::kRedis: {
        if (!IsInstalled("redis-server")) return false;
        std::vector<std::string> command = {"redis-server", "--port", "0",  "--unixsocket",
                                            socket,         "--save", "",   "--appendonly",
                                            "no",           "--dir",  folder};
        if (!password.empty()) command.insert(command.end(), {"--requirepass", password});
        rival = std::make_unique<Rival>(command, socket, "PING\r\n");
        url = "redis+unix:" + socket;
        return true;
      }
      case ServerKind::kMemcached: {
        if (!IsInstalled("memcached")) return false;
        const passwd* const user = ::getpwuid(::geteuid());
        std::vector<std::string> command = {"memcached", "-s", socket, "-u",
                                            user ? user->pw_name : "nobody"};
        if (!password.empty()) {
          const std::string file = PasswordFile("memcached", "ycsb:" + password);
          command.insert(command.end(), {"-Y", file});
        }
        rival = std::make_unique<Rival>(command, socket, "version\r\n");
        url = "memcached+unix:" + socket;
        return true;
      }
    }
    return false;
  }
  void SetUp() override {
    if (!StartWith("")) GTEST_SKIP() << "not installed";
  }
};

TEST_P(TextServersTest, EveryWorkloadWithoutScansEndsWithNothingToComplainOf) {
  for (const char* in_flight : {"1", "16"}) {
    for (char workload : std::string("abcdf")) {
      const std::string tree = std::string("farleaf.tree=") + workload + in_flight;
      ASSERT_EQ(Ycsb(workload, url,
                     {"--phase", "load,run", "--threads", "2", "--in-flight", in_flight, "-p",
                      tree}),
                kExitOk)
          << workload << in_flight << error.str();
      EXPECT_EQ(error.str(), "");
      EXPECT_EQ(Sum(", Operations"), 1'500u) << out.str();
      EXPECT_EQ(Sum(", Return=OK"), 1'500u) << out.str();
      EXPECT_EQ(Sum("[OVERALL], Errors"), 0u);
    }
  }
}

TEST_P(TextServersTest, OpenLoopHoldsItsRate) {
  ASSERT_EQ(Ycsb('f', url, {"--phase", "load"}), kExitOk) << error.str();
  for (const char* in_flight : {"1", "16"}) {
    ASSERT_EQ(Ycsb('f', url,
                   {"-p", "operationcount=300", "--rate", "1000", "--in-flight", in_flight}),
              kExitOk)
        << error.str();
    EXPECT_GE(Sum("[OVERALL], RunTime(ms)"), 299u);
    EXPECT_EQ(Sum(", Return=OK"), 300u) << out.str();
  }
}

TEST_P(TextServersTest, TreesAreApartAndASecondLoadOfOneIsRefused) {
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load", "-p", "farleaf.tree=apple"}), kExitOk);
  ASSERT_EQ(Ycsb('c', url, {"--phase", "load,run", "-p", "farleaf.tree=pear"}), kExitOk);
  EXPECT_EQ(Ycsb('c', url, {"--phase", "load", "-p", "farleaf.tree=apple"}), kExitFailed);
  EXPECT_TRUE(Complained("the key is there already")) << error.str();
  EXPECT_EQ(Ycsb('c', url, {"-p", "farleaf.tree=plum"}), kExitFailed);
  EXPECT_TRUE(Complained("expected a value, found none")) << error.str();
  EXPECT_EQ(Ycsb('a', url, {"-p", "farleaf.tree=plum", "-p", "readproportion=0"}), kExitFailed);
  EXPECT_TRUE(Complained("UPDATE of key")) << error.str();
  EXPECT_TRUE(Complained("expected a value, found none")) << error.str();
}

TEST_P(TextServersTest, LargeValuesInFlightNeedNoMoreThanTheSocketTakes) {
  ASSERT_EQ(Ycsb('a', url,
                 {"--phase", "load,run", "--in-flight", "64", "-p", "fieldlength=20000", "-p",
                  "recordcount=128", "-p", "operationcount=256"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Sum(", Return=OK"), 384u) << out.str();
}

TEST_P(TextServersTest, KeysOfEightRawBytesAreForRedisOnly) {
  if (speaks_redis()) {
    EXPECT_EQ(Ycsb('a', url, {"--phase", "load,run", "-p", "farleaf.keys=fixed8"}), kExitOk)
        << error.str();
  } else {
    EXPECT_EQ(Ycsb('a', url, {"--phase", "load,run", "-p", "farleaf.keys=fixed8"}), kExitUsage);
    EXPECT_TRUE(Complained("-p farleaf.keys=bytes")) << error.str();
  }
}

TEST_P(TextServersTest, OtherProtocolIsNoticedBeforeTheFirstOperation) {
  const std::string other =
      (speaks_redis() ? "memcached" : "redis") + url.substr(url.find_first_of(":+"));
  EXPECT_EQ(Ycsb('a', other), kExitFailed);
  EXPECT_TRUE(Complained("corruption: ")) << error.str();
  EXPECT_EQ(out.str(), "");
}

const auto kAllServers = ::testing::Values(ServerKind::kFarleafRedis, ServerKind::kFarleafMemcached,
                                           ServerKind::kRedis, ServerKind::kMemcached);
std::string ServerName(const ::testing::TestParamInfo<ServerKind>& info) {
  constexpr const char* kNames[] = {"FarleafAsRedis", "FarleafAsMemcached", "Redis", "Memcached"};
  return kNames[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Servers, TextServersTest, kAllServers, ServerName);

struct TextPasswordTest : TextServersTest {
  void SetUp() override {
    if (!StartWith("secret")) GTEST_SKIP() << "not installed";
  }
};

TEST_P(TextPasswordTest, RightPasswordIsNeeded) {
  ASSERT_EQ(Ycsb('a', url,
                 {"--phase", "load,run", "--password-file", PasswordFile("right", "secret")}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Ycsb('a', url), kExitUsage);
  EXPECT_TRUE(Complained("--password-file gives a password")) << error.str();
  EXPECT_EQ(Ycsb('a', url, {"--password-file", PasswordFile("wrong", "guess")}), kExitUsage);
  EXPECT_TRUE(Complained("--password-file: the server answers")) << error.str();
  EXPECT_FALSE(Complained("guess")) << error.str();
}

INSTANTIATE_TEST_SUITE_P(Servers, TextPasswordTest, kAllServers, ServerName);

// --- what is refused ---

TEST_F(TextTargetTest, WrongUrlsAndOptionsAreRefusedByName) {
  const std::string redis = "redis://127.0.0.1:1", memcached = "memcached://127.0.0.1:1";
  const struct {
    std::string target;
    std::vector<std::string> more;
    std::string named;
  } cases[] = {
      {"redis:", {}, "redis://HOST:PORT"},
      {"redis:host:1", {}, "redis://HOST:PORT"},
      {"redis://", {}, "no port"},
      {"redis://host", {}, "no port"},
      {"redis://:1", {}, "no host"},
      {"redis://host:1/0", {}, "no valid port"},
      {"redis://host:0", {}, "port 0"},
      {"redis+unix:", {}, "Unix socket path"},
      {"rediss://host:1", {}, "redis://HOST:PORT"},
      {"memcached:host", {}, "memcached://HOST:PORT"},
      {"memcached://::1:1", {}, "brackets"},
      {"memcached://host:65536", {}, "no valid port"},
      {redis, {"-p", "scanproportion=0.1"}, "-p scanproportion=0"},
      {memcached, {"-p", "scanproportion=0.1"}, "-p scanproportion=0"},
      {redis, {"--tls"}, "--tls"},
      {memcached, {"-p", "farleaf.tree=two words"}, "two words"},
      {memcached, {"-p", "farleaf.tree=" + std::string(182, 'x')}, "181 at most"},
      {redis, {"--password-file", "/nowhere"}, "/nowhere"},
      {redis, {"--program", "sherman"}, "sherman"},
  };
  for (const auto& [target, more, named] : cases) {
    EXPECT_EQ(Ycsb('a', target, more), kExitUsage) << target << error.str();
    EXPECT_TRUE(Complained(named)) << target << ": " << error.str();
  }
}

TEST_F(TextTargetTest, ScansAreNoMatterToALoad) {
  EXPECT_EQ(Ycsb('e', "redis+unix:/nowhere/at/all.sock", {"--phase", "load"}), kExitFailed);
  EXPECT_TRUE(Complained("/nowhere/at/all.sock: No such file")) << error.str();
}

// --- servers that do not work ---

using Reply = test::ScriptedTextServer::Reply;

/// Answers the benchmark's first request, which asks whether a server is there, and then as `script`
/// says.
test::ScriptedTextServer::Script Behind(bool redis, test::ScriptedTextServer::Script script) {
  const std::string probe = redis ? "*1\r\n$4\r\nPING\r\n" : "version\r\n";
  const std::string there = redis ? "+PONG\r\n" : "VERSION 1\r\n";
  return [=](std::string* received) -> Reply {
    if (*received != probe) return script(received);
    received->clear();
    return {.bytes = there};
  };
}

/// The same reply to whatever is asked.
test::ScriptedTextServer::Script Say(bool redis, std::string answer) {
  return Behind(redis, [=](std::string*) -> Reply { return {.bytes = answer}; });
}
test::ScriptedTextServer::Script SayAndHangUp(bool redis, std::string answer) {
  return Behind(redis, [=](std::string*) -> Reply { return {.bytes = answer, .hang_up = true}; });
}

uint64_t Count(const std::string& text, const std::string& what) {
  uint64_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

struct BadServerTest : TextTargetTest {
  /// One operation at a time; `more` may say otherwise.
  void ExpectFailure(bool redis, test::ScriptedTextServer::Script script, const std::string& named,
                     const std::vector<std::string>& more = {}) {
    test::ScriptedTextServer server(std::move(script));
    const std::string url = (redis ? "redis://" : "memcached://") + server.address();
    EXPECT_EQ(Ycsb('c', url, more), kExitFailed) << named;
    EXPECT_TRUE(Complained(named)) << named << ": " << error.str();
    EXPECT_TRUE(Complained(url)) << error.str();
  }
};

TEST_F(BadServerTest, AnswersThatAreNoneFailTheRunAndAreShown) {
  const struct {
    bool redis;
    std::string answer, named;
  } cases[] = {
      {true, "nonsense\r\n", "corruption: "},
      {true, "\r\n", "expected $LENGTH, got ''"},
      {true, "\n", "CR LF"},
      {true, "+OK\n", "CR LF"},
      {true, "+OK\r\n", "expected $LENGTH, got '+OK'"},
      {true, ":1\r\n", "got ':1'"},
      {true, "*1\r\n$1\r\na\r\n", "got '*1'"},
      {true, "$\r\n", "got '$'"},
      {true, "$-2\r\n", "got '$-2'"},
      {true, "$1x\r\n", "got '$1x'"},
      {true, "$67108865\r\n", "got '$67108865'"},
      {true, "$99999999999999999999\r\n", "got '$99999999999999999999'"},
      {true, "$3\r\nabcde\r\n", "expected CR LF behind $3, got 'de'"},
      {true, std::string(5'000, 'x'), "4096 bytes"},
      {true, "$-1\r\n$-1\r\n", "expected no more answers, got '$-1..'"},
      {false, "nonsense\r\n", "corruption: "},
      {false, "STORED\r\n", "got 'STORED'"},
      {false, "VALUE\r\n", "got 'VALUE'"},
      {false, "VALUE else 0 3\r\nabc\r\nEND\r\n", "got 'VALUE else 0 3'"},
      {false, "END\r\nEND\r\n", "expected no more answers"},
      {false, std::string(5'000, 'x'), "4096 bytes"},
  };
  for (const auto& [redis, answer, named] : cases) {
    ExpectFailure(redis, Say(redis, answer), named);
  }
}

/// Answers a get of memcached's with its key in `form` instead of %.
test::ScriptedTextServer::Script SayWithKey(std::string form) {
  return Behind(false, [form](std::string* received) -> Reply {
    const std::string key = received->substr(4, received->find('\r') - 4);
    std::string answer = form;
    return {.bytes = answer.replace(answer.find('%'), 1, key)};
  });
}

TEST_F(BadServerTest, ValuesOfMemcachedThatAreNoneFailTheRun) {
  for (const auto& [form, named] : std::vector<std::pair<std::string, std::string>>{
           {"VALUE % 0\r\nabc\r\nEND\r\n", " 0 LENGTH, got 'VALUE usertable:user"},
           {"VALUE % 1 3\r\nabc\r\nEND\r\n", " 0 LENGTH, got"},
           {"VALUE % 0 3 7\r\nabc\r\nEND\r\n", " 0 LENGTH, got"},
           {"VALUE % 0 3 7 7\r\nabc\r\nEND\r\n", " 0 LENGTH, got"},
           {"VALUE %  0 3\r\nabc\r\nEND\r\n", " 0 LENGTH, got"},
           {"VALUE % 0 -3\r\nabc\r\nEND\r\n", " 0 LENGTH, got"},
           {"VALUE % 0 67108865\r\n", " 0 LENGTH, got"},
           {"VALUE % 0 3\r\nabcde\r\nEND\r\n", "expected END behind VALUE"},
           {"VALUE % 0 3\r\nabc\r\nVALUE\r\n", "expected END behind VALUE"}}) {
    ExpectFailure(false, SayWithKey(form), named);
  }
}

TEST_F(BadServerTest, ValueThatNobodyWroteFailsTheRun) {
  test::ScriptedTextServer server(SayWithKey("VALUE % 0 3\r\nabc\r\nEND\r\n"));
  EXPECT_EQ(Ycsb('c', "memcached://" + server.address()), kExitFailed);
  EXPECT_TRUE(Complained("READ of key")) << error.str();
  EXPECT_TRUE(Complained("expected")) << error.str();
}

TEST_F(BadServerTest, ErrorsOfTheServerFailTheOperationInItsWords) {
  const struct {
    bool redis;
    std::string answer, named;
  } cases[] = {
      {true, "-ERR no way\r\n", "invalid argument: "},
      {true, "-OOM command not allowed\r\n", "resource exhausted: "},
      {true, "-LOADING the dataset\r\n", "unavailable: "},
      {true, "-ERR unavailable: memory server 1\r\n", "unavailable: "},
      {true, "-ERR unknown outcome: lost\r\n", "unknown outcome: "},
      {false, "ERROR\r\n", "invalid argument: "},
      {false, "CLIENT_ERROR bad command line format\r\n", "invalid argument: "},
      {false, "SERVER_ERROR out of memory storing object\r\n", "resource exhausted: "},
      {false, "SERVER_ERROR object too large for cache\r\n", "resource exhausted: "},
      {false, "SERVER_ERROR busy\r\n", "unavailable: "},
      {false, "SERVER_ERROR deadline exceeded: memory server 1\r\n", "deadline exceeded: "},
  };
  for (const auto& [redis, answer, code] : cases) {
    ExpectFailure(redis, Say(redis, answer), "): " + code);
    const std::string words = answer.substr(0, answer.size() - 2);
    EXPECT_TRUE(Complained("the server answers \"" + words + "\"")) << error.str();
  }
}

TEST_F(BadServerTest, ErrorOfTheServerLeavesTheConnectionToTheOthers) {
  test::ScriptedTextServer server(Say(true, "-ERR no way\r\n"), 2);  // and no third one
  EXPECT_EQ(Ycsb('c', "redis://" + server.address(),
                 {"-p", "farleaf.allow_errors=true", "-p", "operationcount=20"}),
            kExitOk);
  EXPECT_EQ(Sum("Return=INVALID_ARGUMENT"), 20u) << out.str();
}

TEST_F(BadServerTest, ConnectionThatEndsFailsWhatIsInFlight) {
  for (const bool redis : {true, false}) {
    const std::string begun = redis ? "$500\r\nabc" : "VALUE k 0 500";
    for (const std::string& answer : {std::string(), begun}) {
      ExpectFailure(redis, SayAndHangUp(redis, answer), "the server closed the connection");
      EXPECT_TRUE(Complained("unavailable: ")) << error.str();
    }
  }
  // All of them, of which it has answered none.
  test::ScriptedTextServer server(Behind(true, [](std::string* received) -> Reply {
    return {.bytes = {}, .hang_up = Count(*received, "GET") == 4};
  }));
  EXPECT_EQ(Ycsb('c', "redis://" + server.address(),
                 {"-p", "farleaf.allow_errors=true", "-p", "operationcount=4", "--in-flight", "4"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Sum("Return=UNAVAILABLE"), 4u) << out.str();
}

TEST_F(BadServerTest, WriteWithoutAnAnswerMayHaveTakenEffect) {
  for (const bool redis : {true, false}) {
    const auto hang_up = SayAndHangUp(redis, "");
    const std::vector<std::string> load = {"--phase", "load"};
    ExpectFailure(redis, hang_up, "unknown outcome: ", load);
    EXPECT_TRUE(Complained("it may or may not have taken effect")) << error.str();
  }
  ExpectFailure(true, Say(true, ""), "no answer by the deadline",
                {"--phase", "load", "-p", "farleaf.operation_timeout_ms=3000"});
  EXPECT_TRUE(Complained("unknown outcome: ")) << error.str();
}

TEST_F(BadServerTest, AnswerThatNeverEndsEndsAtTheDeadline) {
  ExpectFailure(true, Say(true, "$500\r\n"), "deadline exceeded: ",
                {"-p", "farleaf.operation_timeout_ms=3000"});
  const auto mute = [](std::string*) { return Reply(); };
  ExpectFailure(false, mute, "no answer within 1000 ms",
                {"-p", "farleaf.operation_timeout_ms=1000"});
}

TEST_F(BadServerTest, NextOperationsConnectAgain) {
  const auto hang_up = SayAndHangUp(true, "");
  test::ScriptedTextServer server(hang_up);
  EXPECT_EQ(Ycsb('c', "redis://" + server.address(),
                 {"-p", "farleaf.allow_errors=true", "-p", "operationcount=5"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Sum("Return=UNAVAILABLE"), 5u) << out.str();
  EXPECT_FALSE(Complained("not connected until its deadline")) << error.str();
}

TEST_F(BadServerTest, WithoutAServerOperationsFailAtTheirDeadlines) {
  const auto hang_up = SayAndHangUp(true, "");
  test::ScriptedTextServer server(hang_up, 2);  // the target's first connection, and the session's
  EXPECT_EQ(Ycsb('c', "redis://" + server.address(),
                 {"-p", "farleaf.allow_errors=true", "-p", "operationcount=4", "--in-flight", "2",
                  "-p", "farleaf.operation_timeout_ms=3000"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Sum("Return=UNAVAILABLE"), 4u) << out.str();
  EXPECT_TRUE(Complained("not connected until its deadline: unavailable: redis://")) << error.str();
}

// --- when requests are sent ---

/// Answers when `held` sets of a connection have come, all at once.
test::ScriptedTextServer::Script HoldSets(bool redis, uint64_t held) {
  return Behind(redis, [=](std::string* received) -> Reply {
    if (Count(*received, redis ? "\r\nSET\r\n" : "add ") < held) return {};
    received->clear();
    Reply reply{.bytes = {}, .in_pieces = true};
    for (uint64_t i = 0; i < held; ++i) reply.bytes += redis ? "+OK\r\n" : "STORED\r\n";
    return reply;
  });
}

TEST_F(TextTargetTest, AsManyRequestsAreSentAsMayBeInFlightBeforeTheFirstIsAnswered) {
  for (const bool redis : {true, false}) {
    test::ScriptedTextServer server(HoldSets(redis, 8));
    const std::string url = (redis ? "redis://" : "memcached://") + server.address();
    EXPECT_EQ(Ycsb('a', url, {"--phase", "load", "-p", "recordcount=80", "--in-flight", "8"}),
              kExitOk)
        << error.str();
    EXPECT_EQ(Sum("Return=OK"), 80u) << out.str();
  }
}

TEST_F(TextTargetTest, RequestsThatAreDueAreSentWhileOthersWaitForTheirAnswers) {
  for (const bool redis : {true, false}) {
    test::ScriptedTextServer server(HoldSets(redis, 8));
    const std::string url = (redis ? "redis://" : "memcached://") + server.address();
    EXPECT_EQ(Ycsb('a', url,
                   {"--phase", "load", "-p", "recordcount=80", "--in-flight", "8", "--rate",
                    "1000"}),
              kExitOk)
        << error.str();
    EXPECT_EQ(Sum("Return=OK"), 80u) << out.str();
    EXPECT_GE(Sum("[OVERALL], RunTime(ms)"), 79u);
  }
}

// --- read-modify-write ---

TEST_F(TextTargetTest, ReadModifyWriteOfMemcachedIsAtomicByVersions) {
  const RecordCodec codec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 200);
  std::string key, value, talk;
  codec.MakeKey(0, &key);
  codec.MakeValue(key, 0, 41, &value);
  const std::string name = "usertable:" + key;
  int gets = 0, sets = 0;
  std::optional<test::ScriptedTextServer> server;
  server.emplace(Behind(false, [&](std::string* received) -> Reply {
    talk += received->substr(0, received->find("\r\n") + 2);
    const bool reads = received->starts_with("gets ");
    received->clear();
    if (!reads) return {.bytes = sets++ == 0 ? "EXISTS\r\n" : "STORED\r\n"};
    return {.bytes = "VALUE " + name + " 0 200 " + std::to_string(70 + gets++) + "\r\n" + value +
                     "\r\nEND\r\n"};
  }));
  EXPECT_EQ(Ycsb('f', "memcached://" + server->address(),
                 {"-p", "recordcount=1", "-p", "operationcount=1", "-p", "readproportion=0"}),
            kExitOk)
      << error.str();
  EXPECT_EQ(Sum("[READ-MODIFY-WRITE], Return=OK"), 1u) << out.str();
  server.reset();
  EXPECT_EQ(talk, "gets " + name + "\r\ncas " + name + " 0 0 200 70\r\ngets " + name + "\r\ncas " +
                      name + " 0 0 200 71\r\n");
}

}  // namespace
}  // namespace farleaf::ycsb
