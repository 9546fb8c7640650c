// What clients do to a server through a ring, beside clients of the other compute server on its pool: they die at any moment, and write whatever they like into the
// memory that they share with it.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

using client::Client;
using client::Session;
using client::Value;
using client::internal::Fd;
using test::KeyOf;
using test::kPatienceMs;
namespace ring = client::ring;

/// A client that has opened a ring, and does with it what the test likes.
class RawRing {
 public:
  explicit RawRing(const std::string& unix_path) {
    auto addresses = client::internal::Resolve(*client::ParseUnixPath(unix_path));
    auto fd = client::internal::Dial(addresses->front());
    FARLEAF_CHECK(fd.ok(), fd.status());
    fd_ = std::move(*fd);
    std::string out;
    protocol::AppendClientHello({}, &out);
    protocol::Request request;
    request.opcode = protocol::Opcode::kOpenRing;
    request.ring = {ring::kAreaBytesMin, ring::kAreaBytesMin};
    Send(out);
    (void)ReceiveFrame();
    out.clear();
    protocol::AppendBatch(0, 0, request, &out);
    Send(out);
    const std::string body = ReceiveFrame();
    protocol::Response response;
    FARLEAF_CHECK(ParseResponse(AsBytes(body), &response).ok() && memory_fd_.valid());
    bytes_ = response.ring;
    mapped_ = ring::kControlBytes + size_t{bytes_.request} + bytes_.reply;
    void* const at =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.get(), 0);
    FARLEAF_CHECK(at != MAP_FAILED, errno);
    memory_ = static_cast<std::byte*>(at);
    half_.emplace(ring::MappedWriter(requests()), bytes_.request,
                  std::span(memory_ + ring::kControlBytes + bytes_.request, bytes_.reply));
  }
  ~RawRing() { ::munmap(memory_, mapped_); }

  std::span<std::byte> requests() { return {memory_ + ring::kControlBytes, bytes_.request}; }
  std::span<std::byte> all() { return {memory_, mapped_}; }
  const Fd& memory_fd() const { return memory_fd_; }
  ring::ClientHalf<ring::MappedWriter>& half() { return *half_; }
  bool ServerSleeps() { return ring::WordAt(memory_, ring::kServerSleepsAt).load() != 0; }
  void Put(const std::string& key, const std::string& value) {
    protocol::Request request;
    request.opcode = protocol::Opcode::kPut;
    request.tree = 1;
    request.key = key;
    request.value = value;
    std::string frame;
    protocol::AppendBatch(0, 1, request, &frame);
    (void)half_->Send(AsBytes(frame), 1);
    Wake();
  }
  void Wake() { (void)!::send(fd_.get(), "w", 1, MSG_NOSIGNAL); }
  /// Whether the server has closed the connection, within the patience.
  bool Closed() {
    for (;;) {
      pollfd waited{fd_.get(), POLLIN, 0};
      if (::poll(&waited, 1, static_cast<int>(kPatienceMs)) != 1) return false;
      char bytes[64];
      if (::recv(fd_.get(), bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  void Send(const std::string& bytes) {
    FARLEAF_CHECK(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(bytes.size()),
                  errno);
  }
  std::string ReceiveFrame() {
    std::string in;
    for (;;) {
      const auto found = protocol::FindFrame(AsBytes(in), UINT32_MAX);
      if (found.state == protocol::FrameLookup::State::kComplete) {
        return std::string(AsChars(found.body));
      }
      pollfd waited{fd_.get(), POLLIN, 0};
      FARLEAF_CHECK(::poll(&waited, 1, static_cast<int>(kPatienceMs)) == 1);
      char bytes[4096];
      const ssize_t n = client::internal::ReceiveWithDescriptor(fd_, bytes, &memory_fd_);
      FARLEAF_CHECK(n > 0, n);
      in.append(bytes, static_cast<size_t>(n));
    }
  }

  Fd fd_, memory_fd_;
  protocol::RingBytes bytes_;
  size_t mapped_ = 0;
  std::byte* memory_ = nullptr;
  std::optional<ring::ClientHalf<ring::MappedWriter>> half_;
};

struct RingFaultTest : test::TwoOnOnePool {
  void SetUp() override {
    TwoOnOnePool::SetUp();
    Add("t");
  }
  void StartServer() {
    TwoOnOnePool::StartServer();
    ASSERT_EQ(Connect(unix_url())->OpenTree("t")->info().id, 1u)
        << "which a RawRing takes for open";
  }
  /// A client that dies when it has its answer: of the others none may have got so far.
  void PutAndDie(const std::string& key) {
    RawRing dying(options.unix_path);
    dying.Put(key, "v");
    const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
    for (std::string answers; answers.empty();) {
      const auto any = dying.half().Receive(&answers);
      ASSERT_TRUE(any.ok() && clock.NowNs() < end_ns) << any.status();
    }
  }
  /// Rings that are mapped in this process.
  static size_t MappedRings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find("farleaf-ring") != std::string::npos;
    }
    return count;
  }
};

/// Reads and writes keys of its own, and sees what it wrote, until it is stopped.
class GoodClient {
 public:
  GoodClient(const std::string& url, std::string prefix)
      : client_(*Client::Connect(url, RingFaultTest::Patient())),
        tree_(*client_->OpenTree("t")),
        prefix_(std::move(prefix)),
        thread_([this] { Run(); }) {}
  ~GoodClient() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t right() const { return right_; }
  uint64_t wrong() const { return wrong_; }

 private:
  void Run() {
    for (uint64_t i = 0; !stop_; ++i) {
      const std::string key = prefix_ + KeyOf(i % 50);
      const bool put = tree_.Put(key, std::to_string(i)).ok();
      const auto value = tree_.Get(key);
      ++(put && value.ok() && *value == std::to_string(i) ? right_ : wrong_);
    }
  }

  std::unique_ptr<Client> client_;
  client::Tree tree_;
  const std::string prefix_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> right_{0}, wrong_{0};
  std::thread thread_;
};

TEST_F(RingFaultTest, ClientsThatDieAtAnyMomentLeaveNothingBehind) {
  constexpr uint64_t kSeed = 21;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  StartServer();
  {
    GoodClient good(ring_url(), "good");
    while (good.right() == 0) ASSERT_EQ(good.wrong(), 0u);
    PutAndDie("answered");
    for (int round = 0; round < 200; ++round) {
      RawRing dying(options.unix_path);
      for (uint64_t messages = random.Below(20); messages > 0; --messages) {
        dying.Put(KeyOf(random.Below(100)), std::string(random.Below(3'000), 'v'));
        std::string answers;
        const auto any = dying.half().Receive(&answers);
        ASSERT_TRUE(any.ok()) << any.status();
      }
      // Some die between the WRITEs of a message.
      if (random.OneIn(2)) {
        for (int i = 0; i < 20; ++i) {
          dying.requests()[8 + random.Below(1'000)] = static_cast<std::byte>(random.Next());
        }
      }
    }
    const uint64_t before = good.right();
    while (good.right() < before + 100) ASSERT_EQ(good.wrong(), 0u);
    good.Stop();
    EXPECT_EQ(good.wrong(), 0u);
    EXPECT_GT(Content("t").size(), 50u) << "beside the good client's";
  }
  EXPECT_TRUE(AwaitOpen(0)) << Connections().open;
  // A connection is counted out before its memory is unmapped.
  for (int i = 0; i < 10'000 && MappedRings() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(MappedRings(), 0u);
}

TEST_F(RingFaultTest, BytesOfAHostileClientEndItsConnectionAndNoOther) {
  constexpr uint64_t kSeed = 22;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  StartServer();
  GoodClient good(ring_url(0), "good"), others(ring_url(1), "others");
  for (int round = 0; round < 60; ++round) {
    RawRing hostile(options.unix_path);
    const auto words = hostile.all().size() / 8;
    for (int i = 0; i < 2'000; ++i) {
      if (random.OneIn(10)) hostile.Put("hostile", std::string(random.Below(500), 'v'));
      // Anywhere, the words by which the two sides sleep included.
      const uint64_t word = random.OneIn(2) ? random.Next()
                            : random.OneIn(2)
                                ? ring::RendezvousWord(ring::kMessageMark,
                                                       static_cast<uint32_t>(random.Below(100'000)))
                                : random.Below(4);
      ring::WordAt(hostile.all().data(), random.Below(words) * 8).store(word);
      if (random.OneIn(4)) hostile.Wake();
    }
    // In the end certainly something that is no message.
    for (uint64_t at = 0; at < hostile.requests().size(); at += ring::kUnitBytes) {
      ring::WordAt(hostile.requests().data(), at).store(7);
    }
    hostile.Wake();
    EXPECT_TRUE(hostile.Closed());
  }
  const uint64_t before = good.right() + others.right();
  while (good.right() + others.right() < before + 100) {
    ASSERT_EQ(good.wrong() + others.wrong(), 0u);
  }
  good.Stop();
  others.Stop();
  EXPECT_EQ(good.wrong() + others.wrong(), 0u);
}

/// A connection whose client sends the next message before the server has done with the last.
class EndlessSender final : public NativeConnection::Runner {
 public:
  static constexpr uint32_t kInFlightMax = 16;

  EndlessSender() {
    connection_.set_peer_is_local(true);
    std::string opening;
    protocol::AppendClientHello({}, &opening);
    Deliver(opening);
    opening.clear();
    protocol::Request request;
    request.opcode = protocol::Opcode::kOpenRing;
    request.ring = {ring::kAreaBytesMin, ring::kAreaBytesMin};
    protocol::AppendBatch(0, 0, request, &opening);
    Deliver(opening);
    FARLEAF_CHECK(connection_.has_ring(), connection_.failure());
    void* const at = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                            connection_.descriptor_to_send().get(), 0);
    FARLEAF_CHECK(at != MAP_FAILED, errno);
    memory_ = static_cast<std::byte*>(at);
    const std::span areas(memory_ + ring::kControlBytes, 2 * size_t{ring::kAreaBytesMin});
    half_.emplace(ring::MappedWriter(areas.first(ring::kAreaBytesMin)), ring::kAreaBytesMin,
                  areas.last(ring::kAreaBytesMin));
    Send();
  }
  ~EndlessSender() override {
    connection_.Abandon();
    ::munmap(memory_, kMapped);
  }

  protocol::ServerHello Hello() override { return {}; }
  uint32_t view() override { return 1; }
  void StartRequest(NativeConnection& connection, InputBlockRef, protocol::Request request,
                    NativeConnection::Token token) override {
    protocol::Response answer;
    answer.id = request.id;
    answer.opcode = request.opcode;
    connection.Answer(answer, token);
    if (++taken_ == kSentMax) return;
    std::string answers;
    FARLEAF_CHECK(half_->Receive(&answers).ok());
    Send();
  }
  NativeConnection& connection() { return connection_; }
  uint32_t taken() const { return taken_; }

 private:
  static constexpr size_t kMapped = ring::kControlBytes + 2 * size_t{ring::kAreaBytesMin};
  static constexpr uint32_t kSentMax = 10 * kInFlightMax;  // where the server does not stop before

  void Deliver(std::string_view bytes) {
    std::copy_n(AsBytes(bytes).begin(), bytes.size(), connection_.InputSpace().begin());
    connection_.InputArrived(bytes.size());
  }
  void Send() {
    protocol::Request request;
    request.opcode = protocol::Opcode::kGet;
    request.tree = 1;
    request.key = "k";
    std::string frame;
    protocol::AppendBatch(0, 1, request, &frame);
    FARLEAF_CHECK(half_->Send(AsBytes(frame), 1));
  }

  std::byte* memory_ = nullptr;
  std::optional<ring::ClientHalf<ring::MappedWriter>> half_;
  uint32_t taken_ = 0;
  NativeConnection connection_{this, {.in_flight_max = kInFlightMax}};
};

TEST_F(RingFaultTest, AClientThatNeverPausesLeavesTurnsToOthers) {
  EndlessSender sender;
  for (uint32_t turn = 1; turn <= 3; ++turn) {
    sender.connection().TakeRing();
    EXPECT_EQ(sender.taken(), turn * EndlessSender::kInFlightMax);
    EXPECT_TRUE(sender.connection().RingReady());
    EXPECT_FALSE(sender.connection().RingMaySleep()) << "the rest would wait for a wake-up";
    sender.connection().RingAwake();
    sender.connection().GiveBackRoom();
  }
  EXPECT_TRUE(sender.connection().failure().ok()) << sender.connection().failure();
}

TEST_F(RingFaultTest, AServerThatWasWokenPollsBehindTheMessageThatWokeIt) {
  options.ring_poll_us = kPatienceMs * 1'000;
  StartServer();
  RawRing raw(options.unix_path);
  const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
  while (!raw.ServerSleeps() && clock.NowNs() < end_ns) std::this_thread::yield();
  ASSERT_TRUE(raw.ServerSleeps()) << "no message has come yet";
  raw.Put("k", "v");
  std::string answers;
  while (answers.empty() && clock.NowNs() < end_ns) {
    ASSERT_TRUE(raw.half().Receive(&answers).ok());
  }
  ASSERT_FALSE(answers.empty());
  for (int look = 0; look < 50; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_FALSE(raw.ServerSleeps()) << "the next message would have to wake it again";
  }
}

TEST_F(RingFaultTest, MemoryOfARingCannotBeCutShort) {
  StartServer();
  RawRing raw(options.unix_path);
  EXPECT_NE(::ftruncate(raw.memory_fd().get(), 0), 0);
  raw.Put("k", "v");
  std::string answers;
  const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
  while (answers.empty() && clock.NowNs() < end_ns) {
    ASSERT_TRUE(raw.half().Receive(&answers).ok());
  }
  EXPECT_FALSE(answers.empty());
}

TEST_F(RingFaultTest, RingsAreRefusedWhereTheyCannotBe) {
  options.connection.ring_bytes_max = 0;
  StartServer();
  client::Options wants_ring = Patient();
  wants_ring.carrier = client::Carrier::kRing;
  EXPECT_EQ(Session::Connect(server->urls()[0], wants_ring).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Session::Connect(ring_url()).status().ToString(),
            "unimplemented: " + ring_url() + ": this server opens no rings (ring_bytes_max is 0)");
}

TEST_F(RingFaultTest, LargeAndSmallMixThroughASmallRing) {
  StartServer();
  client::Options small = Patient();
  small.ring_bytes = 16 << 10;
  auto session = *Session::Connect(ring_url(0), small);
  auto others = *Session::Connect(ring_url(1), small);
  auto tree = *session->OpenTree("t"), there = *others->OpenTree("t");
  constexpr uint64_t kSeed = 23, kKeys = 400;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::vector<std::string> values(kKeys);
  uint64_t right = 0;
  for (uint64_t i = 0; i < kKeys; ++i) {
    values[i].assign(random.OneIn(20) ? random.Below(300'000) : random.Below(300), 'a' + i % 26);
    tree.PutAsync(KeyOf(i), values[i], [&](Result<bool> put) { right += put.ok(); });
  }
  while (session->pending() > 0) session->Poll(1'000);
  for (uint64_t i = 0; i < kKeys; ++i) {
    there.GetAsync(KeyOf(i),
                   [&, i](Result<Value> value) { right += value.ok() && *value == values[i]; });
  }
  while (others->pending() > 0) others->Poll(1'000);
  EXPECT_EQ(right, 2 * kKeys);
  EXPECT_EQ(there.Scan({})->size(), kKeys);
}

TEST_F(RingFaultTest, ServerThatIsStartedAgainIsFoundThroughANewRing) {
  StartServer();
  auto client = *Client::Connect(ring_url(), Patient());
  auto tree = *client->OpenTree("t");
  ASSERT_TRUE(tree.Put("k", "1").ok());
  for (int round = 0; round < 3; ++round) {
    server.reset();
    StartServer();
    EXPECT_EQ(**tree.Get("k"), "1");
  }
}

}  // namespace
}  // namespace farleaf::server
