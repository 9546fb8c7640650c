// Handshakes that are refused, connections that break, and bytes that make no sense.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <list>
#include <mutex>

#include "dsm/base/bytes.h"
#include "dsm/handshake.h"
#include "dsm/handshake_listener.h"
#include "dsm/shm/shm_fabric.h"
#include "dsm/tcp/frame.h"
#include "dsm/tcp/tcp_fabric.h"
#include "test/support/fabric_under_test.h"

namespace farleaf::dsm {
namespace {

/// A client that says whatever a test wants, byte by byte.
class RawClient {
 public:
  explicit RawClient(const std::string& endpoint) {
    const std::string address = endpoint.substr(4);
    auto target = endpoint.starts_with("shm:") ? UnixAddress(address) : ResolveTcp(address);
    FARLEAF_CHECK(target.ok(), target.status());
    auto fd = StartConnect(*target);
    FARLEAF_CHECK(fd.ok(), fd.status());
    fd_ = std::move(*fd);
    FARLEAF_CHECK(Ready(POLLOUT) && TakeConnectError(fd_.get()) == 0);
  }
  void Send(std::string_view bytes) {
    FARLEAF_CHECK(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                  static_cast<ssize_t>(bytes.size()));
  }
  /// Waits for room as long as the peer takes bytes.
  void SendAll(std::string_view bytes) {
    while (!bytes.empty() && Ready(POLLOUT)) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      FARLEAF_CHECK(sent > 0 || errno == EAGAIN, errno);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
    FARLEAF_CHECK(bytes.empty(), bytes.size());
  }
  /// To a peer that may have closed.
  void TrySend(std::string_view bytes) {
    [[maybe_unused]] const ssize_t sent =
        ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// What comes until `count` bytes are there or the peer closes.
  std::string Receive(size_t count) {
    std::string received;
    while (received.size() < count && Ready(POLLIN)) {
      char raw[4096];
      const ssize_t got = ::recv(fd_.get(), raw, std::min(sizeof raw, count - received.size()), 0);
      if (got <= 0) break;
      received.append(raw, static_cast<size_t>(got));
    }
    return received;
  }
  bool IsClosed() {
    char raw;
    return Ready(POLLIN) && ::recv(fd_.get(), &raw, 1, 0) <= 0;
  }
  Welcome ReceiveWelcome() {
    std::string message = Receive(kHandshakeHeaderBytes);
    auto whole = HandshakeBytes(AsBytes(message));
    FARLEAF_CHECK(whole.ok() && whole->has_value(), message.size());
    message += Receive(**whole - kHandshakeHeaderBytes);
    auto welcome = ParseWelcome(AsBytes(message));
    FARLEAF_CHECK(welcome.ok(), welcome.status());
    return *welcome;
  }

 private:
  bool Ready(short events) {
    pollfd waited{fd_.get(), events, 0};
    return ::poll(&waited, 1, 60'000) > 0;
  }
  UniqueFd fd_;
};

Hello GoodHello(ServerId server = 0) {
  Hello hello;
  hello.server = server;
  hello.nonce = 77;
  hello.cluster = "tested";
  return hello;
}

// The example of dsm/format.md.
TEST(HandshakeFormatTest, AHelloIsWhatTheFormatSays) {
  Hello hello;
  hello.member = {5, 3};
  hello.nonce = 0x1122334455667788;
  hello.cluster = "rack";
  const std::string expected(
      "FLHS\3\0\x24\0"
      "\0\0\5\0\1\0\0\0"
      "\3\0\0\0\0\0\0\0"
      "\x88\x77\x66\x55\x44\x33\x22\x11"
      "\0\0\0\0\0\0\0\0"
      "rack",
      44);
  EXPECT_EQ(EncodeHello(hello), expected);
  auto parsed = ParseHello(AsBytes(expected));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->member, hello.member);
  EXPECT_EQ(parsed->kind, HelloKind::kAttach);
}

struct HandshakeTest : ::testing::TestWithParam<FabricKind> {
  FabricUnderTest cluster{GetParam()};
  std::string endpoint = cluster.server(0).endpoint().endpoint;

  std::string Refusal(const Hello& hello) {
    RawClient client(endpoint);
    client.Send(EncodeHello(hello));
    const std::string refusal = client.ReceiveWelcome().refusal.ToString();
    EXPECT_TRUE(client.IsClosed());
    return refusal;
  }
};

TEST_P(HandshakeTest, AGoodHelloIsWelcomed) {
  RawClient client(endpoint);
  client.Send(EncodeHello(GoodHello()));
  const Welcome welcome = client.ReceiveWelcome();
  EXPECT_TRUE(welcome.refusal.ok()) << welcome.refusal;
  EXPECT_EQ(welcome.region.region_bytes, FabricUnderTest::kRegionBytes);
  EXPECT_EQ(welcome.region.incarnation, 100u);
}

TEST_P(HandshakeTest, AnotherClusterIsRefused) {
  Hello hello = GoodHello();
  hello.cluster = "other";
  EXPECT_EQ(Refusal(hello),
            "invalid argument: memory server 0 belongs to cluster 'tested', not 'other'");
}

TEST_P(HandshakeTest, AnotherVersionIsRefused) {
  Hello hello = GoodHello();
  hello.version = kProtocolVersion + 1;
  EXPECT_EQ(Refusal(hello),
            "invalid argument: memory server 0 speaks protocol version 3, this program 4");
}

TEST_P(HandshakeTest, AnotherServerIsRefused) {
  EXPECT_EQ(Refusal(GoodHello(5)),
            "invalid argument: this is memory server 0, not memory server 5: the directory's "
            "endpoint is wrong");
}

TEST_P(HandshakeTest, AComputeServerThatCannotBeIsRefused) {
  Hello hello = GoodHello();
  hello.member = {kMembersMax, 1};
  EXPECT_EQ(Refusal(hello),
            "invalid argument: memory server 0 knows no compute server 4096: ids are below 4096");
}

TEST_P(HandshakeTest, AnUnknownKindIsRefused) {
  Hello hello = GoodHello();
  hello.kind = static_cast<HelloKind>(3);
  EXPECT_EQ(Refusal(hello), "corruption: a Hello of unknown kind 3");
}

TEST_P(HandshakeTest, ACutIsConfirmedAndWhomItMeansIsRefusedFromThenOn) {
  Hello cut = GoodHello();
  cut.kind = HelloKind::kCutOff;
  cut.target = {5, 7};
  EXPECT_EQ(Refusal(cut), "ok");
  Hello hello = GoodHello();
  for (const uint64_t incarnation : {1, 7}) {
    hello.member = {5, incarnation};
    EXPECT_EQ(Refusal(hello),
              "fenced: " + hello.member.ToString() +
                  " was cut off by memory server 0; it has to join the pool again, with a "
                  "new incarnation");
  }
  hello.member = {5, 8};
  RawClient newer(endpoint);
  newer.Send(EncodeHello(hello));
  EXPECT_TRUE(newer.ReceiveWelcome().refusal.ok());
}

TEST_P(HandshakeTest, AnythingElseIsRefused) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0'),
        std::string("FLHS\1\0\0\0", 8), std::string("FLHS\1\0\377\377", 8)}) {
    RawClient client(endpoint);
    client.Send(bytes);
    client.Receive(kHandshakeBytesMax);  // a refusal, unless the reset overtook it
    EXPECT_TRUE(client.IsClosed()) << bytes;
  }
  TestClient still_served(cluster.fabric(), cluster.clock());
  still_served.WriteWord(0, 4096, 1);
}

TEST_P(HandshakeTest, AHelloMayComeByteByByte) {
  RawClient client(endpoint);
  for (const char byte : EncodeHello(GoodHello())) client.Send({&byte, 1});
  EXPECT_TRUE(client.ReceiveWelcome().refusal.ok());
}

TEST_P(HandshakeTest, ASilentPeerDoesNotBlockOthers) {
  std::list<RawClient> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(endpoint);
  RawClient client(endpoint);
  client.Send(EncodeHello(GoodHello()));
  EXPECT_TRUE(client.ReceiveWelcome().refusal.ok());
}

INSTANTIATE_TEST_SUITE_P(Fabrics, HandshakeTest,
                         ::testing::Values(FabricKind::kShm, FabricKind::kTcp),
                         [](const auto& kind) { return FabricKindName(kind.param); });

TEST(FabricConnectTest, ErrorsNameTheServer) {
  const MonotonicClock clock;
  for (const FabricKind kind : {FabricKind::kShm, FabricKind::kTcp}) {
    FabricUnderTest cluster(kind);
    const std::vector<ServerEndpoint> endpoints{cluster.server(0).endpoint(),
                                                cluster.server(1).endpoint()};
    const auto connect = [&](const std::vector<ServerEndpoint>& to,
                             const std::string& name) -> Status {
      if (kind == FabricKind::kTcp) return TcpFabric::Connect(to, name, {}, &clock).status();
      return ShmFabric::Connect(to, name, {}, &clock).status();
    };
    EXPECT_EQ(connect(endpoints, "other").ToString(),
              "invalid argument: memory server 0 belongs to cluster 'tested', not 'other'");
    std::vector<ServerEndpoint> swapped = endpoints;
    std::swap(swapped[0].endpoint, swapped[1].endpoint);
    EXPECT_EQ(connect(swapped, "tested").code(), StatusCode::kInvalidArgument);
    cluster.KillServer(1);
    Status gone = connect(endpoints, "tested");
    EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone;
    EXPECT_TRUE(gone.message().starts_with("memory server 1 ")) << gone;
  }
}

// ---- tcp only ------------------------------------------------------------------------------------

std::string Frame(uint64_t sequence, const std::vector<FrameVerb>& verbs,
                  const std::string& payload) {
  std::string frame;
  ByteWriter writer(&frame);
  writer.Write(
      static_cast<uint32_t>(kFrameHeaderBytes + verbs.size() * kFrameVerbBytes + payload.size()));
  writer.Write(static_cast<uint16_t>(verbs.size()));
  writer.Write(uint16_t{0});
  writer.Write(sequence);
  for (const FrameVerb& verb : verbs) {
    writer.Write(uint32_t{verb.kind});
    writer.Write(verb.length);
    writer.Write(verb.offset);
  }
  return frame + payload;
}

struct TcpBytesTest : ::testing::Test {
  FabricUnderTest cluster{FabricKind::kTcp};
  RawClient Joined(uint64_t nonce = 77) {
    RawClient client(cluster.server(0).endpoint().endpoint);
    Hello hello = GoodHello();
    hello.nonce = nonce;
    client.Send(EncodeHello(hello));
    EXPECT_TRUE(client.ReceiveWelcome().refusal.ok());
    return client;
  }
  ReplyHeader ReceiveReply(RawClient& client, std::string* rest) {
    const std::string bytes = client.Receive(kFrameHeaderBytes);
    FARLEAF_CHECK(bytes.size() == kFrameHeaderBytes, bytes.size());
    auto header = ParseReplyHeader(AsBytes(bytes));
    FARLEAF_CHECK(header.ok(), header.status());
    *rest = client.Receive(header->frame_bytes - kFrameHeaderBytes);
    return *header;
  }
};

TEST_F(TcpBytesTest, ARefusedBatchLeavesTheConnectionUsable) {
  RawClient client = Joined();
  std::string rest;
  client.Send(Frame(1, {{9, 8, 4096}}, "12345678"));
  EXPECT_EQ(ReceiveReply(client, &rest).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(rest, "memory server 0: unknown verb kind 9");
  client.Send(Frame(2, {{1, 8, 4096}, {2, 8, 4096}}, "12345678"));
  EXPECT_EQ(ReceiveReply(client, &rest).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(rest, "memory server 0: a WRITE behind a READ or an atomic is not ordered");
  client.Send(Frame(3, {{2, 8, 4096}, {2, 8, uint64_t{1} << 60}}, std::string(16, 'x')));
  EXPECT_EQ(ReceiveReply(client, &rest).code, StatusCode::kInvalidArgument);
  client.Send(Frame(4, {{1, 8, 4096}}, ""));
  const ReplyHeader reply = ReceiveReply(client, &rest);
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(reply.sequence, 4u);
  EXPECT_EQ(rest, std::string(8, '\0'));  // nothing of the refused batches ran
}

TEST_F(TcpBytesTest, LengthsThatDoNotAddUpEndTheConnectionWithAReason) {
  for (std::string frame :
       {Frame(1, {{1, 8, 4096}}, "extra bytes"), Frame(1, {{2, 64, 4096}}, "12345678"),
        std::string(16, '\0'), std::string(16, '\377')}) {
    RawClient client = Joined();
    client.Send(frame);
    std::string rest;
    EXPECT_EQ(ReceiveReply(client, &rest).code, StatusCode::kCorruption);
    EXPECT_TRUE(rest.starts_with("memory server 0: a ")) << rest;
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST_F(TcpBytesTest, AReaderThatDoesNotReadDoesNotStopOthers) {
  RawClient greedy = Joined(1);
  // 1 GiB of results, which nobody takes.
  for (uint64_t i = 1; i <= 32; ++i) greedy.Send(Frame(i, {{1, 32 << 20, 0}}, ""));
  TestClient client(cluster.fabric(), cluster.clock());
  for (uint64_t i = 0; i < 100; ++i) client.WriteWord(0, 4096, i);
  EXPECT_EQ(client.ReadWord(0, 4096), 99u);
}

// Contract rule 5: half a WRITE of the old connection is there, but nothing of it can land any more.
TEST_F(TcpBytesTest, ANewConnectionWithTheSameNonceEndsTheOldOne) {
  RawClient old = Joined(1);
  old.Send(Frame(1, {{2, 64, 4096}}, std::string(64, 'o')).substr(0, 16 + 16 + 32));
  RawClient fresh = Joined(1);
  EXPECT_TRUE(old.IsClosed());
  RawClient other = Joined(2);  // another nonce does not
  std::string rest;
  fresh.Send(Frame(1, {{1, 8, 4096}}, ""));
  EXPECT_EQ(ReceiveReply(fresh, &rest).code, StatusCode::kOk);
}

// The same for a cut. What is left of the WRITE is sent after it, into the closed connection.
TEST_F(TcpBytesTest, ACutEndsAWriteOfWhichHalfIsThere) {
  constexpr uint32_t kHalf = 1 << 20, kOffset = 1 << 20;
  Hello hello = GoodHello();
  hello.member = {5, 1};
  RawClient writer(cluster.server(0).endpoint().endpoint);
  writer.Send(EncodeHello(hello));
  ASSERT_TRUE(writer.ReceiveWelcome().refusal.ok());
  const std::string frame = Frame(1, {{2, 2 * kHalf, kOffset}}, std::string(2 * kHalf, 'w'));
  const size_t first = frame.size() - kHalf;
  writer.SendAll(std::string_view(frame).substr(0, first));
  TestClient client(cluster.fabric(), cluster.clock());
  const uint64_t deadline_ns = cluster.clock().NowNs() + TestClient::kDeadlineNs;
  while (client.ReadWord(0, kOffset + kHalf - 8) == 0) {
    ASSERT_LT(cluster.clock().NowNs(), deadline_ns) << "the first half never came";
  }
  Status cut = cluster.server(0).agent->CutOff({5, 1});
  EXPECT_TRUE(cut.ok()) << cut;
  writer.TrySend(std::string_view(frame).substr(first));
  EXPECT_TRUE(writer.IsClosed());
  for (uint64_t offset = kOffset + kHalf; offset < kOffset + 2 * kHalf; offset += 4096) {
    ASSERT_EQ(client.ReadWord(0, offset), 0u) << offset;
  }
}

struct TcpReconnectTest : ::testing::Test {
  FabricUnderTest cluster{FabricKind::kTcp};
  TestClient client{cluster.fabric(), cluster.clock()};
  std::string address = cluster.server(1).endpoint().endpoint.substr(4);

  Status Read() {
    uint64_t word = 0;
    Batch batch(1);
    batch.ReadWord(4096, &word);
    return client.Run(batch);
  }
  /// Reads until it fails otherwise than before.
  Status ReadUntil(bool (*done)(const Status&)) {
    const uint64_t deadline_ns = cluster.clock().NowNs() + TestClient::kDeadlineNs;
    Status status = Read();
    while (!done(status) && cluster.clock().NowNs() < deadline_ns) status = Read();
    return status;
  }
};

TEST_F(TcpReconnectTest, ARestartedServerIsLostForGood) {
  ASSERT_TRUE(Read().ok());
  cluster.KillServer(1);
  EXPECT_EQ(Read().code(), StatusCode::kUnavailable);
  RegionServer restarted = cluster.StartServer(1, 999, address);
  const Status status =
      ReadUntil([](const Status& s) { return s.message().ends_with("incarnation)"); });
  EXPECT_EQ(status.ToString(),
            "unavailable: memory server 1 lost (restarted with another incarnation)");
  EXPECT_EQ(Read().ToString(), status.ToString());
}

TEST_F(TcpReconnectTest, AServerWithTheSameIncarnationIsTakenUpAgain) {
  ASSERT_TRUE(Read().ok());
  cluster.KillServer(1);
  EXPECT_EQ(Read().code(), StatusCode::kUnavailable);
  RegionServer back = cluster.StartServer(1, 101, address);
  const Status status = ReadUntil([](const Status& s) { return s.ok(); });
  EXPECT_TRUE(status.ok()) << status;
}

/// Accepts connections and welcomes them, and otherwise says what a test wants: nothing, or nonsense.
struct OddServer {
  explicit OddServer(std::string answer)
      : answer_(std::move(answer)),
        listener_(
            Listening(), {.identity = {"tested", {0, 1 << 20, 5}}}, &clock_,
            [this](UniqueFd fd, const Hello&) {
              Welcome welcome;
              welcome.region = {0, 1 << 20, 5};
              const std::string bytes = EncodeWelcome(welcome) + answer_;
              std::lock_guard lock(mutex_);
              open_.push_back(std::move(fd));
              EXPECT_EQ(::send(open_.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                        static_cast<ssize_t>(bytes.size()));
            },
            [](const Hello&) { return Status::Unimplemented("an odd server cuts nobody off"); }) {}
  UniqueFd Listening() {
    auto any = ResolveTcp("127.0.0.1:0");
    auto fd = Listen(*any);
    FARLEAF_CHECK(fd.ok(), fd.status());
    endpoint = {0, "tcp:" + *LocalTcpAddress(fd->get()), 0, 0};
    return std::move(*fd);
  }
  ServerEndpoint endpoint;
  MonotonicClock clock_;
  std::string answer_;
  /// The connection that was accepted last.
  int last() {
    std::lock_guard lock(mutex_);
    return open_.back().get();
  }
  std::mutex mutex_;  // guards open_
  std::vector<UniqueFd> open_;
  HandshakeListener listener_;
};

Status ReadFrom(OddServer& server, uint64_t stall_timeout_ms) {
  auto fabric = TcpFabric::Connect(
      {server.endpoint}, "tested",
      {.recovery = {.connect_timeout_ms = 20'000}, .stall_timeout_ms = stall_timeout_ms},
      &server.clock_);
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  TestClient client(**fabric, server.clock_);
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(4096, &word);
  return client.Run(batch);
}

TEST(OddServerTest, SilenceEndsAtTheStallTimeout) {
  OddServer server("");
  EXPECT_EQ(ReadFrom(server, 500).ToString(),
            "unavailable: memory server 0: the connection broke (no answer for 500 ms) and was "
            "restored; the effect of this batch is unknown");
}

// Pipelining, counted rather than timed: one system call carries all that was posted.
TEST(OddServerTest, WhatIsPostedTogetherLeavesTogether) {
  OddServer server("");
  auto fabric = TcpFabric::Connect({server.endpoint}, "tested",
                                   {.recovery = {.connect_timeout_ms = 20'000}}, &server.clock_);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  TestClient client(**fabric, server.clock_);
  std::list<Batch> batches;
  std::vector<uint64_t> words(32);
  RoundTripState state;
  for (uint64_t& word : words) {
    batches.emplace_back(0).ReadWord(4096, &word);
    client.Post(batches.back(), state);
  }
  client.transport().Poll();
  const int connection = server.last();  // the transport's, behind the fabric's own
  pollfd waited{connection, POLLIN, 0};
  ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
  std::vector<char> received(64 << 10);
  EXPECT_EQ(::recv(connection, received.data(), received.size(), 0),
            static_cast<ssize_t>(words.size() * (kFrameHeaderBytes + kFrameVerbBytes)));
}

TEST(OddServerTest, NonsenseIsNoAnswer) {
  std::string wrong_sequence(kFrameHeaderBytes + 8, '\0'), wrong_length(kFrameHeaderBytes, '\0');
  EncodeReplyHeader({24, StatusCode::kOk, 9}, reinterpret_cast<std::byte*>(wrong_sequence.data()));
  EncodeReplyHeader({16, StatusCode::kOk, 1}, reinterpret_cast<std::byte*>(wrong_length.data()));
  for (const std::string& answer : {wrong_sequence, wrong_length, std::string(64, '\377')}) {
    OddServer server(answer);
    const Status status = ReadFrom(server, 20'000);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(status.message().starts_with("memory server 0: the connection broke (a "))
        << status;
  }
}

}  // namespace
}  // namespace farleaf::dsm
