// TLS under every protocol of two compute servers on one pool: handshakes that succeed, fail and stall; large and many messages; new
// certificates; clients that are asked for theirs.
#include "server/frontend/tls_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "client/tls.h"
#include "test/support/native_under_test.h"
#include "test/support/openssl_client.h"
#include "test/support/test_certificates.h"
#include "test/support/text_client.h"

namespace farleaf::server {
namespace {

using client::Session;
using test::kPatienceMs;
using test::TestCertificate;

struct TlsServerTest : test::TwoOnOnePool {
  TestCertificate ours, others;
  std::unique_ptr<TlsServer> tls;

  void SetUp() override {
    TwoOnOnePool::SetUp();
    if (!test::CanMakeCertificates()) GTEST_SKIP() << "openssl is not installed";
    ours = test::MakeCertificate(directory, "ours");
    others = test::MakeCertificate(directory, "others");
    ListenForRecords();
  }
  void StartServer(std::string client_ca = "") {
    auto loaded = TlsServer::Load({ours.certificate, ours.key, std::move(client_ca)});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tls = std::move(*loaded);
    options.tls = tls.get();
    TwoOnOnePool::StartServer();
  }

  static client::Options Over(const client::TlsOptions& tls_options) {
    client::Options with;
    with.deadline_ms = with.connect_timeout_ms = kPatienceMs;
    auto transport = client::NewTls(tls_options);
    EXPECT_TRUE(transport.ok()) << transport.status();
    with.transport = std::move(*transport);
    return with;
  }
  /// Now to the one, now to the other.
  Status Connect(const client::TlsOptions& tls_options) {
    const auto session = Session::Connect(tcp_url(connected_++), Over(tls_options));
    return session.ok() ? (*session)->Ping() : session.status();
  }
  std::string SClient(const std::string& to, const std::string& input, const std::string& flags) {
    return test::AskOpenssl(directory, to, input, flags);
  }

 private:
  size_t connected_ = 0;
};

TEST_F(TlsServerTest, NativeClientsSpeakTls) {
  StartServer();
  auto connected = client::Client::Connect(tcp_url(0), Over({.ca_file = ours.certificate})),
       others_client = client::Client::Connect(tcp_url(1), Over({.ca_file = ours.certificate}));
  ASSERT_TRUE(connected.ok()) << connected.status();
  ASSERT_TRUE(others_client.ok()) << others_client.status();
  auto tree = (*connected)->CreateTree({.name = "tested"});
  ASSERT_TRUE(tree.ok()) << tree.status();
  auto there = (*others_client)->OpenTree("tested");
  ASSERT_TRUE(there.ok()) << there.status();
  // Larger than a record, a socket's buffer and a block of the server's; many at once, both ways.
  const std::string large(3 << 20, 'v');
  std::vector<std::future<Result<bool>>> puts;
  for (int i = 0; i < 300; ++i) {
    puts.push_back(tree->PutAsync("k" + std::to_string(i), i % 50 == 0 ? large : "small"));
  }
  for (auto& put : puts) EXPECT_TRUE(put.get().ok());
  std::vector<std::future<Result<client::Value>>> gets;
  for (int i = 0; i < 300; ++i) gets.push_back(there->GetAsync("k" + std::to_string(i)));
  for (int i = 0; i < 300; ++i) {
    const auto value = gets[static_cast<size_t>(i)].get();
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ((*value)->size(), i % 50 == 0 ? large.size() : 5u) << i;
  }
}

TEST_F(TlsServerTest, AClientTrustsOnlyWhoIsSignedForTheHost) {
  StartServer();
  EXPECT_TRUE(Connect({.ca_file = ours.certificate}).ok());
  EXPECT_TRUE(Connect({.ca_file = ours.certificate, .server_name = "localhost"}).ok());
  EXPECT_TRUE(Connect({.verify = false}).ok());
  for (const client::TlsOptions& wrong :
       {client::TlsOptions{.ca_file = others.certificate}, client::TlsOptions{},
        client::TlsOptions{.ca_file = ours.certificate, .server_name = "elsewhere.example"}}) {
    const Status refused = Connect(wrong);
    EXPECT_NE(refused.message().find("certificate verify failed"), std::string::npos) << refused;
  }
  EXPECT_EQ(client::NewTls({.ca_file = "/none"}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TlsServerTest, OpensslsClientSpeaksToMemcachedsPort) {
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    const std::string output =
        SClient(memcached_url(i), "append a 0 0 1\r\nx\r\nset a 0 0 1\r\ny\r\nget a\r\nquit\r\n",
                std::string(i == 0 ? "-tls1_2" : "-tls1_3") + " -verify_return_error -CAfile " +
                    ours.certificate);
    const std::string appended = i == 0 ? "NOT_STORED\r\n" : "STORED\r\n";
    EXPECT_NE(output.find(appended + "STORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"), std::string::npos)
        << output;
  }
  EXPECT_EQ(SClient(memcached_url(), "get a\r\nquit\r\n", "-tls1_1").find("VALUE"),
            std::string::npos);
}

TEST_F(TlsServerTest, OpensslsClientSpeaksToRedisPort) {
  options.passwords = {"secret"};
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    const std::string output =
        SClient(redis_url(i), "GET a\r\nAUTH wrong\r\nAUTH secret\r\nINCR a\r\nGET a\r\nQUIT\r\n",
                std::string(i == 0 ? "-tls1_2" : "-tls1_3") + " -verify_return_error -CAfile " +
                    ours.certificate);
    const std::string count = std::to_string(i + 1);
    EXPECT_NE(output.find("-NOAUTH Authentication required.\r\n-WRONGPASS invalid "
                          "username-password pair or user is disabled.\r\n+OK\r\n:" +
                          count + "\r\n$1\r\n" + count + "\r\n+OK\r\n"),
              std::string::npos)
        << output;
  }
  const std::string old = SClient(redis_url(), "AUTH secret\r\nGET a\r\nQUIT\r\n", "-tls1_1");
  EXPECT_EQ(old.find("+OK"), std::string::npos) << old;
  const std::string distrusting =
      SClient(redis_url(), "QUIT\r\n", "-verify_return_error -CAfile " + others.certificate);
  EXPECT_EQ(distrusting.find("+OK"), std::string::npos) << distrusting;
}

TEST_F(TlsServerTest, PlainBytesAreRefused) {
  StartServer();
  test::TextClient plain_redis(redis_url());
  plain_redis.Send("SET a x\r\n");
  EXPECT_EQ(plain_redis.ReceiveAll().find("+OK"), std::string::npos);
  test::TextClient plain(memcached_url(1));
  plain.Send("set a 0 0 1\r\nx\r\n");
  EXPECT_EQ(plain.ReceiveAll().find("STORED"), std::string::npos);
  client::Options without;
  without.connect_timeout_ms = kPatienceMs;
  EXPECT_FALSE(Session::Connect(tcp_url(), without).ok());
  EXPECT_EQ(Connections().refused, 3u);
  EXPECT_TRUE(Connect({.ca_file = ours.certificate}).ok());
}

TEST_F(TlsServerTest, TlsOnAPortWithoutItEnds) {
  options.memcached.listen.clear();
  TwoOnOnePool::StartServer();
  EXPECT_FALSE(Connect({.ca_file = ours.certificate}).ok());
}

TEST_F(TlsServerTest, AHandshakeThatStallsIsTimedOut) {
  options.hello_timeout_ms = 100;
  StartServer();
  size_t i = 0;
  for (const std::string& begun : {std::string(), std::string("\x16\x03\x01\x02", 4)}) {
    test::TextClient stalled(memcached_url(i++));
    stalled.Send(begun);
    (void)stalled.ReceiveAll();  // until the server closes
  }
  EXPECT_EQ(Connections().refused, 2u);
}

TEST_F(TlsServerTest, ClientsAreAskedForTheirCertificate) {
  StartServer(others.certificate);
  EXPECT_TRUE(Connect({.ca_file = ours.certificate,
                       .certificate_file = others.certificate,
                       .key_file = others.key})
                  .ok());
  EXPECT_FALSE(Connect({.ca_file = ours.certificate}).ok());
  EXPECT_FALSE(
      Connect(
          {.ca_file = ours.certificate, .certificate_file = ours.certificate, .key_file = ours.key})
          .ok());
}

// Its bytes do not leave the host's memory, and its socket's permissions say who may open it.
TEST_F(TlsServerTest, ARingBesideItWantsThePasswordAndNoTls) {
  options.passwords = {"secret"};
  StartServer();
  const auto status_of = [](const std::string& ring, client::Options with, std::string password) {
    with.deadline_ms = with.connect_timeout_ms = kPatienceMs;
    with.password = std::move(password);
    const auto session = Session::Connect(ring, with);
    return session.ok() ? (*session)->Ping() : session.status();
  };
  EXPECT_TRUE(status_of(ring_url(), {}, "secret").ok());
  EXPECT_EQ(status_of(ring_url(), {}, "guess").ToString(),
            "invalid argument: " + ring_url() + ": wrong password");
  EXPECT_EQ(status_of(ring_url(), {}, "").ToString(),
            "invalid argument: " + ring_url() +
                ": this server wants a password (--password-file of the tools, Options::password "
                "of the client)");
  const client::Options over_tls = Over({.ca_file = ours.certificate});
  const Status mixed = status_of(ring_url(), over_tls, "secret");
  EXPECT_EQ(mixed.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(mixed.message().find("a ring takes no secure transport"), std::string::npos) << mixed;
  client::Options over_tcp = over_tls;
  over_tcp.carrier = client::Carrier::kRing;
  const Status remote = status_of(tcp_url(), over_tcp, "secret");
  EXPECT_NE(remote.message().find("a ring needs a Unix socket"), std::string::npos) << remote;
}

TEST_F(TlsServerTest, ANewCertificateIsForConnectionsToCome) {
  StartServer();
  const std::string old_ca = (directory / "old.pem").string();
  std::filesystem::copy_file(ours.certificate, old_ca);
  auto session = Session::Connect(tcp_url(), Over({.ca_file = old_ca}));
  ASSERT_TRUE(session.ok()) << session.status();
  test::MakeCertificate(directory, "ours");
  ASSERT_TRUE(tls->Reload().ok());
  EXPECT_TRUE((*session)->Ping().ok());
  EXPECT_TRUE(Connect({.ca_file = ours.certificate}).ok());
  EXPECT_FALSE(Connect({.ca_file = old_ca}).ok());
  std::filesystem::remove(ours.key);
  EXPECT_EQ(tls->Reload().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Connect({.ca_file = ours.certificate}).ok());
}

TEST_F(TlsServerTest, FilesThatAreNotWhatTheyShouldBeAreNamed) {
  const auto code_of = [](const TlsServerOptions& wrong, const std::string& says) {
    const Status refused = TlsServer::Load(wrong).status();
    EXPECT_NE(refused.message().find(says), std::string::npos) << refused;
    return refused.code();
  };
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  EXPECT_EQ(code_of({"/none.pem", ours.key, ""}, "tls_certificate /none.pem"), kWrong);
  EXPECT_EQ(code_of({ours.certificate, "/none.key", ""}, "tls_key /none.key"), kWrong);
  EXPECT_EQ(code_of({ours.certificate, others.key, ""}, "tls_key"), kWrong);
  EXPECT_EQ(code_of({ours.certificate, ours.key, ours.key}, "tls_client_ca"), kWrong);
  std::filesystem::permissions(ours.key, std::filesystem::perms(0644));
  EXPECT_EQ(code_of({ours.certificate, ours.key, ""}, "chmod o-rw"), kWrong);
}

TEST_F(TlsServerTest, ConnectionsThatBreakAnywhereDoNoHarm) {
  StartServer();
  // A handshake and a request, recorded in full by nobody: prefixes of garbage that look like one.
  const std::string start("\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03", 11);
  for (size_t bytes = 0; bytes <= 200; bytes += 7) {
    test::TextClient broken(bytes % 2 == 0 ? memcached_url(bytes / 2) : redis_url(bytes / 2));
    broken.Send((start + std::string(300, '\x01')).substr(0, bytes));
  }
  for (size_t i = 0; i < 20; ++i) {
    auto session = Session::Connect(tcp_url(i), Over({.ca_file = ours.certificate}));
    ASSERT_TRUE(session.ok()) << session.status();
  }
  EXPECT_TRUE(Connect({.ca_file = ours.certificate}).ok());
}

}  // namespace
}  // namespace farleaf::server
