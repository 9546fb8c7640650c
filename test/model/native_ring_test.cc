// A real session of the native protocol whose frames go through a ring over the memory layer, to the connection and the
// service that servers have, over a tree of a pool: on every fabric.
//
//   Session — socket — SessionEnd, ClientHalf ═ WRITEs ═ ServerHalf, NativeConnection, NativeService — tree
//
// The session has the test's thread; all else runs on one other, which looks at everything in turn.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "client/endpoint.h"
#include "client/ring/client_half.h"
#include "client/session.h"
#include "dsm/base/random.h"
#include "server/frontend/native_service.h"
#include "test/support/fabric_link.h"
#include "test/support/pool_hosts.h"
#include "test/support/test_scale.h"

namespace farleaf::server {
namespace {

namespace ring = client::ring;
namespace wire = client::protocol;
using client::internal::Fd;
using test::FabricLink;
using test::FabricWriter;

constexpr uint64_t kPatienceMs = 120'000;

class FabricReplies final : public ReplyWriter {
 public:
  explicit FabricReplies(FabricLink* link) : writer_{link} {}
  void Publish(uint64_t offset, const ring::HeaderBytes& header, std::span<const std::byte> payload,
               uint64_t rendezvous) override {
    writer_.Publish(offset, header, payload, rendezvous);
  }

 private:
  FabricWriter writer_;
};

/// The server's side without its sockets: one connection, whose ring is over the fabric.
class RingServer final : public ServingThread, public NativeConnection::Runner {
 public:
  RingServer(TreeHost* host, std::span<std::byte> requests, FabricLink* to_client,
             uint32_t reply_bytes)
      : requests_(requests), to_client_(to_client), reply_bytes_(reply_bytes) {
    auto opened = host->OpenWorker();
    FARLEAF_CHECK(opened.ok(), opened.status());
    own_worker_ = std::move(*opened);
    worker_ = own_worker_.get();
    worker_->GoOnline();
    service_.emplace(NativeService::Deps{this, host, &clock_, [] { return std::string(); },
                                         &slow_log_, &clock_, &authenticator_},
                     NativeService::Options{kLimits, 1, kPatienceMs, kPatienceMs, 1});
    connection_.set_peer_is_local(true);
  }
  ~RingServer() override {
    connection_.InputEnded();
    connection_.Abandon();
    worker_->RunUntilIdle();
    EXPECT_EQ(connection_.in_flight(), 0u);
    worker_->GoOffline();
  }

  /// Bytes of the socket, until the ring is open; returns what is answered there.
  std::string Take(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto space = connection_.InputSpace();
      const size_t count = std::min(space.size(), bytes.size());
      std::copy_n(AsBytes(bytes).begin(), count, space.begin());
      bytes.remove_prefix(count);
      connection_.InputArrived(count);
    }
    std::string answer(connection_.output());
    connection_.OutputSent(answer.size());
    return answer;
  }
  void Turn() {
    arrival_ns_ = clock_.NowNs();
    worker_->RunOnce(dsm::Worker::Idle::kReturn);
    if (connection_.has_ring()) connection_.TakeRing();
    connection_.Continue();
    EXPECT_TRUE(connection_.failure().ok()) << connection_.failure();
    EXPECT_EQ(connection_.output(), "") << "past the ring";
  }
  bool has_ring() const { return connection_.has_ring(); }
  uint64_t answered() const { return answered_; }

  // ServingThread.
  bool full() const override { return false; }
  void Serve(Connection&, dsm::Task<void> task) override { worker_->Spawn(std::move(task)); }
  void Served(Connection&) override {}
  void Flush(Connection&) override {}
  void RunAside(dsm::Task<void> task) override { worker_->Spawn(std::move(task)); }
  void Link(Running&) override {}
  void Record(OperationRecord record) override { answered_ += record.operations; }

  // NativeConnection::Runner: the service's, but for the ring.
  wire::ServerHello Hello() override { return service_->Hello(); }
  uint32_t view() override { return service_->view(); }
  void StartRequest(NativeConnection& connection, InputBlockRef block, wire::Request request,
                    NativeConnection::Token token) override {
    service_->StartRequest(connection, std::move(block), std::move(request), token);
  }
  void StartRequests(NativeConnection& connection, const InputBlockRef& block,
                     std::span<NativeConnection::Taken> taken) override {
    service_->StartRequests(connection, block, taken);
  }
  Result<std::unique_ptr<RingChannel>> OpenRing(wire::RingBytes, uint64_t,
                                                RingChannel::Fd*) override {
    return RingChannel::Over(requests_, std::make_unique<FabricReplies>(to_client_), reply_bytes_);
  }

 private:
  static constexpr NativeConnection::Limits kLimits = {.in_flight_max = 64};

  const std::span<std::byte> requests_;
  FabricLink* const to_client_;
  const uint32_t reply_bytes_;
  MonotonicClock clock_;
  std::unique_ptr<dsm::Worker> own_worker_;
  farleaf::server::SlowLog slow_log_{SlowLogOptions{}};
  const Authenticator authenticator_{};
  std::optional<NativeService> service_;
  uint64_t answered_ = 0;
  NativeConnection connection_{this, kLimits};
};

/// The client's side: what a session has said on its socket, and what it is to hear, by way of the ring: as a client's
/// Connection does it.
class SessionEnd {
 public:
  SessionEnd(const std::string& path, FabricLink* to_server, uint64_t request_bytes,
             std::span<std::byte> replies)
      : half_(FabricWriter{to_server}, request_bytes, replies) {
    const auto address = client::internal::Resolve(*client::ParseUnixPath(path))->front();
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    FARLEAF_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                         address.bytes) == 0 &&
                      ::listen(listener_.get(), 1) == 0,
                  errno);
  }
  void Turn(RingServer& server) {
    if (!socket_.valid()) {
      socket_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (!socket_.valid()) return;
    }
    char bytes[4096];
    const ssize_t n = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (n > 0) said_.append(bytes, static_cast<size_t>(n));
    ended_ = n == 0;
    if (!server.has_ring() && !said_.empty()) OpenRing(server);
    while (server.has_ring() && SendFrame()) {
    }
    const auto any = half_.Receive(&to_hear_);
    ASSERT_TRUE(any.ok()) << any.status();
    if (to_hear_.empty()) return;
    const ssize_t sent = ::send(socket_.get(), to_hear_.data(), to_hear_.size(), MSG_NOSIGNAL);
    if (sent > 0) to_hear_.erase(0, static_cast<size_t>(sent));
  }
  /// The session is gone, and nothing is on its way.
  bool done() const { return ended_ && half_.outstanding() == 0; }
  uint64_t frames() const { return frames_; }

 private:
  /// Behind the hello, which goes by the socket, as on any ring.
  void OpenRing(RingServer& server) {
    const auto hello = wire::FindFrame(AsBytes(said_), wire::kHelloBytesMax);
    if (hello.state != wire::FrameLookup::State::kComplete) return;
    to_hear_ = server.Take(std::string_view(said_).substr(0, hello.frame_bytes));
    said_.erase(0, hello.frame_bytes);
    wire::Request request;
    request.opcode = wire::Opcode::kOpenRing;
    std::string frame;
    wire::AppendBatch(0, 0, request, &frame);
    const std::string answer = server.Take(frame);
    wire::Response response;
    ASSERT_TRUE(
        ParseResponse(wire::FindFrame(AsBytes(answer), wire::kHelloBytesMax).body, &response).ok());
    ASSERT_EQ(response.code, StatusCode::kOk) << response.message;
    ASSERT_TRUE(server.has_ring());
  }
  bool SendFrame() {
    const auto found = wire::FindFrame(AsBytes(said_), wire::kFrameBytesMax);
    if (found.state != wire::FrameLookup::State::kComplete) return false;
    const auto requests = LoadLittle<uint32_t>(said_.data() + wire::kBatchCountAt);
    if (!half_.Send(AsBytes(said_).first(found.frame_bytes), requests)) return false;
    said_.erase(0, found.frame_bytes);
    ++frames_;
    return true;
  }

  Fd listener_, socket_;
  ring::ClientHalf<FabricWriter> half_;
  std::string said_, to_hear_;
  bool ended_ = false;
  uint64_t frames_ = 0;
};

/// Operations of a session, each judged by a map.
void UseATree(client::Session& session, uint64_t seed) {
  Random random(seed);
  auto opened = session.CreateTree({.name = "t"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto tree = session.OpenTree("t");
  ASSERT_TRUE(tree.ok()) << tree.status();
  std::map<std::string, std::string> model;
  const auto await = [&session] {
    while (session.pending() > 0) session.Poll(1'000);
  };
  uint64_t wrong = 0;
  const uint64_t rounds = test::Amount{.small = 2, .usual = 3, .large = 50};
  for (uint64_t round = 0; round < rounds; ++round) {
    // Some that fit no slot, or no message.
    for (uint64_t i = 0; i < 40; ++i) {
      const std::string key = "key" + std::to_string(random.Below(60));
      const size_t bytes = i == 0 || random.OneIn(20) ? 30'000 : random.Below(200);
      if (!model.try_emplace(key).second) continue;  // puts of one key have no order
      model[key] = std::string(bytes, static_cast<char>('a' + i % 26));
      tree->PutAsync(key, model[key], [&wrong](Result<bool> put) { wrong += !put.ok(); });
    }
    await();
    for (const auto& [key, value] : model) {
      tree->GetAsync(key, [&wrong, &value](Result<client::Value> got) {
        wrong += !got.ok() || *got != client::Value(value);
      });
    }
    await();
    ASSERT_EQ(wrong, 0u) << "round " << round;
    const std::string first = model.begin()->first;
    const auto changed = tree->CompareAndSet(first, model.begin()->second, "changed");
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_EQ(*changed, client::ConditionOutcome::kDone);
    EXPECT_EQ(*tree->Add("zcounter", 3, 0), static_cast<int64_t>(3 * (round + 1)));
    const std::string last = model.rbegin()->first;
    EXPECT_TRUE(*tree->Delete(last));
    model.erase(last);
    model[first] = "changed";
    client::Rows expected;
    std::vector<std::string> keys;
    client::Values values;
    for (const auto& [key, value] : model) {
      expected.push_back({key, value});
      keys.push_back(key);
      values.emplace_back(value);
    }
    EXPECT_TRUE(*tree->MultiGet(keys) == values);
    EXPECT_TRUE(*tree->Scan({.end = "z"}) == expected);
    // Half of them are new in the next round.
    for (uint64_t i = 0; i < 60; i += 2) {
      const std::string key = "key" + std::to_string(i);
      if (model.erase(key) == 0) continue;
      EXPECT_TRUE(*tree->Delete(key));
    }
  }
}

class NativeRingFabricTest : public ::testing::TestWithParam<dsm::FabricKind> {
 protected:
  static constexpr uint64_t kBase = 8 << 20;
};
INSTANTIATE_TEST_SUITE_P(Fabrics, NativeRingFabricTest, ::testing::ValuesIn(dsm::AllFabrics()),
                         [](const auto& kind) { return dsm::FabricKindName(kind.param); });

// The server's memory is the region of memory server 0, the client's that of memory server 1.
TEST_P(NativeRingFabricTest, ARealSessionIsServedThroughARingOverTheMemoryLayer) {
  for (const auto& [request_bytes, reply_bytes] : test::kRingAreas) {
    const uint64_t seed = request_bytes + 5;
    SCOPED_TRACE("seed " + std::to_string(seed));
    dsm::TempFolder folder;
    // The tree's verbs end late, and so answers come in another order than requests.
    test::PoolHosts trees(1, seed);
    dsm::FabricUnderTest under_test(GetParam(), {.servers = 2, .region_bytes = 16 << 20});
    const auto requests = under_test.region_bytes(0).subspan(kBase, request_bytes);
    const auto replies = under_test.region_bytes(1).subspan(kBase, reply_bytes);
    FabricLink to_server(under_test.Connect(), under_test.clock(), {0, kBase, request_bytes});
    FabricLink to_client(under_test.Connect(), under_test.clock(), {1, kBase, reply_bytes});
    const std::string path = folder.File("socket");
    SessionEnd end(path, &to_server, request_bytes, replies);
    uint64_t answered = 0;
    std::thread others([&] {
      RingServer server(&trees.host(0), requests, &to_client, reply_bytes);
      const MonotonicClock patience;
      const uint64_t end_ns = patience.NowNs() + kPatienceMs * kNsPerMs;
      while (!(end.done() && to_server.landed() && to_client.landed())) {
        end.Turn(server);
        to_server.Turn();
        server.Turn();
        to_client.Turn();
        if (HasFatalFailure()) break;
        if (patience.NowNs() > end_ns) FAIL() << "not all is answered";
      }
      answered = server.answered();
    });
    {
      auto session = client::Session::Connect(
          "farleaf+unix:" + path, {.deadline_ms = kPatienceMs, .connect_timeout_ms = kPatienceMs});
      EXPECT_TRUE(session.ok()) << session.status();
      if (session.ok()) UseATree(**session, seed);
    }
    others.join();
    EXPECT_GT(answered, 80u);
    EXPECT_GT(end.frames(), 20u);
    for (const FabricLink* link : {&to_server, &to_client}) {
      EXPECT_GT(link->sent().messages.size(), 4u) << "of many sizes";
    }
    EXPECT_GT(to_server.sent().messages.rbegin()->first, 1u);
    EXPECT_GT(to_server.sent().resets, 0u);
    for (const auto& area : {requests, replies}) {
      for (size_t at = 0; at < area.size(); at += ring::kUnitBytes) {
        ASSERT_EQ(LoadLittle<uint64_t>(area.data() + at), 0u) << at;
      }
    }
  }
}

}  // namespace
}  // namespace farleaf::server
