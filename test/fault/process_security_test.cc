// Who is let in: passwords on each front end, permissions of files and sockets, and where a server may listen.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "test/support/openssl_client.h"
#include "test/support/process.h"
#include "test/support/process_client.h"
#include "test/support/record_dialect.h"
#include "test/support/test_certificates.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

using Protocol = test::RecordDialect::Protocol;

struct SecurityProcessTest : ::testing::Test {
  ProcessCluster cluster{{.memory_servers = 1}};

  std::string FileOf(const std::string& name, const std::string& text,
                     std::filesystem::perms mode = std::filesystem::perms(0600)) {
    const std::string path = cluster.File(name);
    std::ofstream(path) << text;
    std::filesystem::permissions(path, mode);
    return path;
  }
  static std::string PortOf(const std::string& address) {
    return address.substr(address.rfind(':') + 1);
  }
  static Status ConnectWith(const std::string& url, client::Options options) {
    options.deadline_ms = options.connect_timeout_ms = kPatienceMs;
    const auto session = client::Session::Connect(url, options);
    return session.ok() ? (*session)->Ping() : session.status();
  }
  static Status ConnectWithPassword(const std::string& url, const std::string& password) {
    client::Options options;
    options.password = password;
    return ConnectWith(url, options);
  }
  void ExpectRefused(std::vector<std::string> flags, const std::string& says) {
    flags.insert(flags.begin(), {"--bootstrap", cluster.bootstrap_url()});
    const Ended ended = cluster.Run("compute_server", flags);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says(says)) << ended.output;
  }
};

TEST_F(SecurityProcessTest, ANativeClientHasToKnowAPassword) {
  cluster.StartMemoryServers();
  const std::string file = FileOf("passwords", "first one\n\nsecond\r\n");
  const auto server = cluster.StartComputeServer({"--password-file", file});
  EXPECT_TRUE(ConnectWithPassword(server.url(), "first one").ok());
  EXPECT_TRUE(ConnectWithPassword(server.url(), "second").ok());
  client::Options options;
  options.password_file = file;
  EXPECT_TRUE(ConnectWith(server.url(), options).ok());
  for (const std::string wrong : {"first", "first one ", "third", "\n", "first onf", "Second"}) {
    const Status refused = ConnectWithPassword(server.url(), wrong);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_NE(refused.message().find("wrong password"), std::string::npos) << refused;
  }
  const Status missing = ConnectWithPassword(server.url(), "");
  EXPECT_NE(missing.message().find("wants a password"), std::string::npos) << missing;
  EXPECT_EQ(ConnectWithPassword(server.url(), std::string(600, 'x')).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(server.process->WaitForOutput("wrong password"));  // it is in the server's log
}

TEST_F(SecurityProcessTest, AMemcachedClientHasToKnowAPassword) {
  cluster.StartMemoryServers();
  const std::string address = FreeAddress();
  const auto server = cluster.StartComputeServer(
      {"--password-file", FileOf("passwords", "secret\n"), "--memcached-listen", address});
  test::TextClient client("memcached://" + address);
  const auto ask = [&client](const std::string& request) {
    client.Send(request);
    return client.ReceiveUntil("\r\n");
  };
  EXPECT_EQ(ask("get a\r\n"), "CLIENT_ERROR unauthenticated\r\n");
  EXPECT_EQ(ask("set a 0 0 10\r\nuser wrong\r\n"), "CLIENT_ERROR authentication failure\r\n");
  EXPECT_EQ(ask("set any 0 0 11\r\nuser secret\r\n"), "STORED\r\n");
  EXPECT_EQ(ask("get any\r\n"), "END\r\n");  // it was no item
  EXPECT_EQ(ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");

  test::TextClient pipelines("memcached://" + address);
  pipelines.Send("set k 0 0 11\r\nuser secret\r\nget a\r\n");
  EXPECT_EQ(pipelines.ReceiveUntil("END\r\n"), "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");

  test::TextClient guesses("memcached://" + address);
  guesses.Send(
      "set a 0 0 6\r\nu guess\r\nset a 0 0 7\r\nu guess2\r\nset a 0 0 8\r\nu guess33\r\nget a\r\n");
  const std::string answers = guesses.ReceiveAll();  // the server closes
  EXPECT_EQ(answers.find("VALUE"), std::string::npos) << answers;
  EXPECT_TRUE(server.process->WaitForOutput("does not know the password"));

  test::TextClient floods("memcached://" + address);
  floods.Send("set " + std::string(100'000, 'k'));
  EXPECT_EQ(floods.ReceiveAll(), "CLIENT_ERROR line too long\r\n");
}

TEST_F(SecurityProcessTest, ARedisClientHasToKnowAPassword) {
  cluster.StartMemoryServers();
  const std::string address = FreeAddress();
  const auto server = cluster.StartComputeServer(
      {"--password-file", FileOf("passwords", "secret\nother\n"), "--redis-listen", address});
  const std::string none = "-NOAUTH Authentication required.\r\n";
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  test::TextClient client("redis://" + address);
  const auto ask = [&client](const std::string& request) {
    client.Send(request);
    return client.ReceiveUntil("\r\n");
  };
  for (const std::string missing : {"GET a\r\n", "PING\r\n", "SET a x\r\n", "FLUSHALL\r\n"}) {
    EXPECT_EQ(ask(missing), none) << missing;
  }
  EXPECT_EQ(ask("AUTH wrong\r\n"), wrong);
  EXPECT_EQ(ask("GET a\r\n"), none);
  EXPECT_EQ(ask("AUTH someone secret\r\n"), wrong);
  EXPECT_EQ(ask("AUTH secret\r\n"), "+OK\r\n");
  EXPECT_EQ(ask("SET a x\r\n"), "+OK\r\n");

  test::TextClient pipelines("redis://" + address);
  pipelines.Send("AUTH default other\r\nGET a\r\nQUIT\r\n");
  EXPECT_EQ(pipelines.ReceiveAll(), "+OK\r\n$1\r\nx\r\n+OK\r\n");

  test::TextClient guesses("redis://" + address);
  guesses.Send("AUTH a\r\nAUTH b\r\nAUTH c\r\nAUTH secret\r\nGET a\r\n");
  EXPECT_EQ(guesses.ReceiveAll(), wrong + wrong + wrong);  // the server closes
  EXPECT_TRUE(server.process->WaitForOutput("does not know the password"));

  test::TextClient floods("redis://" + address);
  floods.Send("*2\r\n$4\r\nAUTH\r\n$100000\r\n" + std::string(100'000, 'x') + "\r\nQUIT\r\n");
  EXPECT_EQ(floods.ReceiveAll(), none + "+OK\r\n");
}

TEST_F(SecurityProcessTest, FarleafctlGivesThePasswordOfAFile) {
  cluster.StartMemoryServers();
  const std::string file = FileOf("passwords", "secret\n");
  const auto server = cluster.StartComputeServer({"--password-file", file});
  const Ended without = cluster.Run("farleafctl", {"--server", server.url(), "trees"});
  EXPECT_EQ(without.code, 2) << without.output;
  EXPECT_TRUE(without.says("wants a password")) << without.output;
  const Ended with =
      cluster.Run("farleafctl", {"--server", server.url(), "--password-file", file, "trees"});
  EXPECT_EQ(with.code, 0) << with.output;
}

TEST_F(SecurityProcessTest, APasswordFileThatAllMayReadIsRefused) {
  ExpectRefused({"--password-file", FileOf("open", "secret\n", std::filesystem::perms(0644))},
                "chmod o-rw");
  ExpectRefused({"--password-file", FileOf("empty", "\n\n")}, "no password in it");
  ExpectRefused({"--password-file", FileOf("long", std::string(513, 'x'))}, "more than 512 bytes");
  ExpectRefused({"--password-file", cluster.File("none")}, "No such file");
  ExpectRefused({"--password-file", "/"}, "not a regular file");
}

/// What a text protocol answers up to the end that the requests ask for.
std::string AskedAndQuit(const std::string& url, std::string_view requests) {
  test::TextClient client(url);
  client.Send(requests);
  return client.ReceiveAll();
}

// Each front end by itself, the others on loopback.
TEST_F(SecurityProcessTest, BeyondLoopbackSomethingHasToProtectClients) {
  cluster.StartMemoryServers();
  const std::string file = FileOf("passwords", "secret\n");
  for (const std::string flag : {"--listen", "--memcached-listen", "--redis-listen"}) {
    ExpectRefused({flag, "0.0.0.0:0"}, "give --password-file");
    for (const bool insecure : {false, true}) {
      SCOPED_TRACE(flag + (insecure ? " insecure" : " with a password"));
      const std::string port = PortOf(FreeAddress()), everywhere = "0.0.0.0:" + port,
                        here = "127.0.0.1:" + port;
      std::vector<std::string> flags = {"--insecure"};
      if (!insecure) flags = {"--password-file", file};
      const bool native = flag == "--listen";
      if (!native) flags.insert(flags.end(), {flag, everywhere});
      const auto server = cluster.StartComputeServer(flags, native ? everywhere : FreeAddress());
      if (native) {
        EXPECT_TRUE(ConnectWithPassword("farleaf://" + here, insecure ? "" : "secret").ok());
        EXPECT_EQ(ConnectWithPassword("farleaf://" + here, "").ok(), insecure);
        continue;
      }
      const bool redis = flag == "--redis-listen";
      EXPECT_EQ(AskedAndQuit("text://" + here, redis ? "PING\r\nQUIT\r\n" : "mn\r\nquit\r\n"),
                insecure ? (redis ? "+PONG\r\n+OK\r\n" : "MN\r\n")
                : redis  ? "-NOAUTH Authentication required.\r\n+OK\r\n"
                         : "CLIENT_ERROR unauthenticated\r\n");
    }
  }
}

// Who may see metrics is another question: what allows the one does not allow the other.
TEST_F(SecurityProcessTest, MetricsForAllOpenNothingElse) {
  cluster.StartMemoryServers();
  const std::string everywhere = "0.0.0.0:" + PortOf(FreeAddress());
  ExpectRefused({"--metrics-listen", everywhere, "--insecure"}, "give --metrics-insecure");
  ExpectRefused(
      {"--metrics-listen", everywhere, "--metrics-insecure", "--redis-listen", "0.0.0.0:0"},
      "give --password-file");
  const auto server =
      cluster.StartComputeServer({"--metrics-listen", everywhere, "--metrics-insecure"});
  EXPECT_EQ(cluster.Run("farleafctl", {"--server", server.url(), "trees"}).code, 0);
}

// TLS without a password is enough, too; the native front end's is below.
TEST_F(SecurityProcessTest, TlsAloneProtectsTextFrontEndsBeyondLoopback) {
  if (!test::CanMakeCertificates()) GTEST_SKIP() << "openssl is not installed";
  cluster.StartMemoryServers();
  const std::filesystem::path folder = std::filesystem::path(cluster.File("x")).parent_path();
  const auto ours = test::MakeCertificate(folder, "ours");
  for (const auto protocol : {Protocol::kMemcached, Protocol::kRedis}) {
    const test::RecordDialect dialect{protocol};
    SCOPED_TRACE(dialect.name());
    const std::string port = PortOf(FreeAddress()), here = "text://127.0.0.1:" + port;
    const auto server = cluster.StartComputeServer(
        {dialect.redis() ? "--redis-listen" : "--memcached-listen", "0.0.0.0:" + port,
         "--tls-certificate", ours.certificate, "--tls-key", ours.key});
    const std::string input = dialect.ping() + dialect.Set("a", "x") + dialect.quit();
    const std::string said =
        test::AskOpenssl(folder, here, input, "-verify_return_error -CAfile " + ours.certificate);
    EXPECT_NE(said.find(dialect.pong() + dialect.stored()), std::string::npos) << said;
    test::TextClient plain(here);
    plain.Send(input);
    EXPECT_EQ(plain.ReceiveAll().find(dialect.pong()), std::string::npos);
  }
}

TEST_F(SecurityProcessTest, ACertificateIsReadAgainWhenItIsAskedFor) {
  if (!test::CanMakeCertificates()) GTEST_SKIP() << "openssl is not installed";
  cluster.StartMemoryServers();
  const std::filesystem::path folder = std::filesystem::path(cluster.File("x")).parent_path();
  const auto ours = test::MakeCertificate(folder, "ours");
  const std::string port = PortOf(FreeAddress());
  const auto server = cluster.StartComputeServer(
      {"--tls-certificate", ours.certificate, "--tls-key", ours.key}, "0.0.0.0:" + port);
  const auto trees = [&](const std::string& ca) {
    return cluster.Run("farleafctl", {"--server", "farleaf://127.0.0.1:" + port, "--tls",
                                      "--tls-ca", ca, "--deadline-ms", "60000", "trees"});
  };
  const Ended before = trees(ours.certificate);
  EXPECT_EQ(before.code, 0) << before.output;
  const std::string old = (folder / "old.pem").string();
  std::filesystem::copy_file(ours.certificate, old);
  test::MakeCertificate(folder, "ours");
  server.process->Signal(SIGHUP);
  ASSERT_TRUE(server.process->WaitForOutput("read the certificate again"));
  EXPECT_EQ(trees(ours.certificate).code, 0);
  const Ended distrusted = trees(old);
  EXPECT_TRUE(distrusted.says("certificate verify failed")) << distrusted.output;
  ExpectRefused({"--tls-certificate", ours.certificate}, "together or not at all");
}

// TCP is protected by TLS, a ring by its socket's permissions; the password both have to know.
TEST_F(SecurityProcessTest, TheBenchmarkIsLetInByPasswordTlsAndRing) {
  if (!test::CanMakeCertificates()) GTEST_SKIP() << "openssl is not installed";
  cluster.StartMemoryServers();
  const std::filesystem::path folder = std::filesystem::path(cluster.File("x")).parent_path();
  const auto ours = test::MakeCertificate(folder, "ours");
  const std::string passwords = FileOf("passwords", "secret\n"),
                    socket = cluster.File("native.sock");
  const std::string port = PortOf(FreeAddress());
  const auto server =
      cluster.StartComputeServer({"--tls-certificate", ours.certificate, "--tls-key", ours.key,
                                  "--password-file", passwords, "--unix-socket", socket},
                                 "0.0.0.0:" + port);
  const auto run = [&](const std::string& target, std::vector<std::string> flags,
                       const std::string& phase = "run") {
    flags.insert(flags.end(), {"--target", target, "--phase", phase, "-p", "recordcount=100", "-p",
                               "operationcount=100", "-p", "farleaf.operation_timeout_ms=60000"});
    return cluster.Run("ycsb", flags);
  };
  const std::string tcp = "farleaf://127.0.0.1:" + port, ring = "farleaf+ring:" + socket;
  const std::vector<std::string> password = {"--password-file", passwords},
                                 both = {"--password-file", passwords, "--tls", "--tls-ca",
                                         ours.certificate};
  const Ended secured = run(tcp, both, "load"), through_ring = run(ring, password);
  EXPECT_EQ(secured.code, 0) << secured.output;
  EXPECT_EQ(through_ring.code, 0) << through_ring.output;
  const Ended without = run(ring, {});
  EXPECT_EQ(without.code, 2) << without.output;
  EXPECT_TRUE(without.says("wants a password")) << without.output;
  const Ended mixed = run(ring, both);
  EXPECT_EQ(mixed.code, 2) << mixed.output;
  EXPECT_TRUE(mixed.says("a ring takes no secure transport")) << mixed.output;
  const Ended plain = run(tcp, password);
  EXPECT_NE(plain.code, 0) << plain.output;
  const Ended elsewhere = run("local:", password);
  EXPECT_EQ(elsewhere.code, 2) << elsewhere.output;
  EXPECT_TRUE(elsewhere.says("are for servers")) << elsewhere.output;
  const Ended control =
      cluster.Run("farleafctl", {"--server", ring, "--password-file", passwords, "trees"});
  EXPECT_EQ(control.code, 0) << control.output;
}

TEST_F(SecurityProcessTest, UnixSocketsHaveThePermissionsAskedFor) {
  cluster.StartMemoryServers();
  const std::string native = cluster.File("native.sock"), text = cluster.File("memcached.sock"),
                    redis = cluster.File("redis.sock");
  ExpectRefused({"--unix-socket-mode", "0999"}, "an octal number");
  for (const std::string mode : {"", "0666", "0640"}) {
    std::vector<std::string> flags = {
        "--unix-socket", native, "--memcached-unix-socket", text, "--redis-unix-socket", redis};
    if (!mode.empty()) flags.insert(flags.end(), {"--unix-socket-mode", mode});
    const auto server = cluster.StartComputeServer(flags);
    for (const std::string& path : {native, text, redis}) {
      struct stat about {};
      ASSERT_EQ(::stat(path.c_str(), &about), 0);
      EXPECT_EQ(about.st_mode & 0777, mode.empty() ? 0600 : std::stoul(mode, nullptr, 8)) << path;
    }
    EXPECT_TRUE(ConnectWithPassword("farleaf+unix:" + native, "").ok());
    EXPECT_EQ(AskedAndQuit("redis+unix:" + redis, "PING\r\nQUIT\r\n"), "+PONG\r\n+OK\r\n");
    EXPECT_EQ(AskedAndQuit("memcached+unix:" + text, "mn\r\nquit\r\n"), "MN\r\n");
    server.process->Signal(SIGTERM);
    EXPECT_EQ(cluster.WaitFor(*server.process).code, 0);
    for (const std::string& path : {native, text, redis})
      EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
}

}  // namespace
}  // namespace farleaf
