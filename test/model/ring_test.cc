// The ring's protocol, by itself: two halves whose WRITEs land word by word, in any order that the memory layer
// allows, as a seed decides; over the memory layer's fabrics; and against memory that holds whatever a hostile
// client has put there.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "client/ring/client_half.h"
#include "client/ring/server_half.h"
#include "dsm/base/random.h"
#include "test/support/fabric_link.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

namespace ring = client::ring;

/// Memory of one side, as the other's WRITEs reach it: one after the other, the words of each in any order.
class LateMemory {
 public:
  LateMemory(size_t bytes, Random* random) : words_(bytes / 8), random_(random) {}
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words_)); }
  void Write(uint64_t offset, std::span<const std::byte> from) {
    std::vector<std::pair<uint64_t, uint64_t>> write;
    for (size_t i = 0; i < from.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, from.data() + i, std::min<size_t>(8, from.size() - i));
      write.emplace_back((offset + i) / 8, word);
    }
    for (size_t i = write.size(); i > 1; --i) std::swap(write[i - 1], write[random_->Below(i)]);
    landing_.push_back(std::move(write));
  }
  /// One more word arrives.
  void Land() {
    if (landing_.empty()) return;
    auto& write = landing_.front();
    const auto [at, word] = write.back();
    std::atomic_ref(words_[at]).store(word, std::memory_order_release);
    write.pop_back();
    if (write.empty()) landing_.pop_front();
  }
  bool landed() const { return landing_.empty(); }

 private:
  std::vector<uint64_t> words_;
  Random* random_;
  std::deque<std::vector<std::pair<uint64_t, uint64_t>>> landing_;
};

struct LateWriter {
  LateMemory* memory;
  void Publish(uint64_t offset, const ring::HeaderBytes& header, std::span<const std::byte> payload,
               uint64_t rendezvous) {
    std::vector<std::byte> behind(header.begin(), header.end());
    behind.insert(behind.end(), payload.begin(), payload.end());
    memory->Write(offset + 8, behind);
    memory->Write(offset, std::as_bytes(std::span(&rendezvous, 1)));
  }
};

std::string BytesFrom(uint64_t seed, size_t size) {
  Random random(seed);
  std::string bytes(size, '\0');
  // Many words that look like marks, and zeros.
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = random.OneIn(3)   ? ring::RendezvousWord(ring::kMessageMark, 40)
                          : random.OneIn(2) ? 0
                                            : random.Next();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

/// The answer to a frame: its number, and bytes that follow from it.
std::string AnswerTo(const std::string& frame, uint64_t seed) {
  const auto number = LoadLittle<uint64_t>(frame.data());
  Random random(Mix64(seed) ^ number);
  const size_t bytes = random.OneIn(10) ? random.Below(40'000) : random.Below(300);
  return frame.substr(0, 8) + BytesFrom(number + 1, bytes);
}

/// A server that gathers parts, answers frames in any order and keeps what did not fit.
template <typename Writer>
class ModelServer {
 public:
  ModelServer(std::span<std::byte> memory, Writer writer, uint64_t reply_bytes, uint64_t seed)
      : half_(memory, std::move(writer), reply_bytes), seed_(seed), random_(seed + 1) {}

  void Step() {
    const auto next = half_.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    if (next->has_value()) Take(**next);
    if (waiting_.empty() || random_.OneIn(3)) return;
    std::swap(waiting_[random_.Below(waiting_.size())], waiting_.back());
    auto [slot, frame] = std::move(waiting_.back());
    waiting_.pop_back();
    ++answered_;
    Write(slot, slot.sequence, AnswerTo(frame, seed_));
  }
  uint64_t answered() const { return answered_; }
  uint64_t parts() const { return parts_; }
  uint64_t continued() const { return continued_; }
  size_t held() const { return held_.size(); }

 private:
  void Take(const ring::ArrivedMessage& message) {
    std::string payload(message.payload_bytes, '\0');
    half_.Copy(message, 0, std::as_writable_bytes(std::span(payload)));
    half_.Take(message);
    switch (message.kind) {
      case ring::Kind::kPart:
        ++parts_;
        assembly_ += payload;
        half_.Reply(message.reply, {});
        return;
      case ring::Kind::kContinue: {
        const auto origin = LoadLittle<uint64_t>(payload.data());
        ASSERT_TRUE(held_.contains(origin));
        const std::string rest = std::move(held_[origin]);
        held_.erase(origin);
        ++continued_;
        Write(message.reply, origin, rest);
        return;
      }
      case ring::Kind::kWhole:
        waiting_.emplace_back(message.reply, std::exchange(assembly_, {}) + payload);
    }
  }
  void Write(const ring::ReplySlot& slot, uint64_t origin, const std::string& answer) {
    const size_t sent = half_.Reply(slot, AsBytes(answer));
    if (sent < answer.size()) held_[origin] = answer.substr(sent);
  }

  ring::ServerHalf<Writer> half_;
  const uint64_t seed_;
  Random random_;
  std::string assembly_;
  std::vector<std::pair<ring::ReplySlot, std::string>> waiting_;
  std::map<uint64_t, std::string> held_;
  uint64_t answered_ = 0, parts_ = 0, continued_ = 0;
};

/// Sends frames and checks that each is answered once, with its answer.
template <typename Writer>
class ModelClient {
 public:
  ModelClient(Writer writer, uint64_t request_bytes, std::span<std::byte> memory, uint64_t seed,
              uint64_t frames)
      : half_(std::move(writer), request_bytes, memory),
        seed_(seed),
        random_(seed + 2),
        frames_(frames) {}

  void Step() {
    if (next_.empty() && sent_ < frames_ && !random_.OneIn(3)) {
      const size_t bytes = random_.OneIn(12) ? random_.Below(40'000) : random_.Below(400);
      char number[8];
      StoreLittle<uint64_t>(number, sent_ + 1);
      next_ = std::string(number, 8) + BytesFrom(seed_ ^ sent_, bytes);
    }
    if (!next_.empty() && half_.Send(AsBytes(next_), 1)) {
      expected_.push_back(AnswerTo(next_, seed_));
      next_.clear();
      ++sent_;
    }
    std::string out;
    const auto any = half_.Receive(&out);
    ASSERT_TRUE(any.ok()) << any.status();
    while (!out.empty()) {
      const auto number = LoadLittle<uint64_t>(out.data());
      ASSERT_TRUE(number >= 1 && number <= expected_.size());
      std::string& expected = expected_[number - 1];
      ASSERT_FALSE(expected.empty()) << "answered twice: " << number;
      ASSERT_TRUE(out.starts_with(expected)) << number;
      out.erase(0, expected.size());
      expected.clear();
      ++answered_;
    }
  }
  bool done() const { return answered_ == frames_; }
  size_t outstanding() const { return half_.outstanding(); }

 private:
  ring::ClientHalf<Writer> half_;
  const uint64_t seed_;
  Random random_;
  const uint64_t frames_;
  std::string next_;
  uint64_t sent_ = 0, answered_ = 0;
  std::vector<std::string> expected_;  // by number, from 1
};

TEST(RingTest, EveryFrameIsAnsweredOnceHoweverWordsLand) {
  const uint64_t seeds = Amount{.small = 20, .usual = 300, .large = 5'000};
  uint64_t parts = 0;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const uint64_t request_bytes = ring::kUnitBytes * (8 + random.Below(120));
    const uint64_t reply_bytes = ring::kUnitBytes * (8 + random.Below(120));
    LateMemory requests(request_bytes, &random), replies(reply_bytes, &random);
    constexpr uint64_t kFrames = 60;
    ModelServer server(requests.bytes(), LateWriter{&replies}, reply_bytes, seed);
    ModelClient client(LateWriter{&requests}, request_bytes, replies.bytes(), seed, kFrames);
    // Each side is fast at times.
    uint64_t steps = 0;
    for (; !client.done() && steps < 50'000'000; ++steps) {
      const uint64_t dice = random.Below(100), of_client = 1 + steps / 1'000 % 20;
      if (dice < of_client) {
        client.Step();
      } else if (dice < 21) {
        server.Step();
      } else {
        (dice % 2 ? requests : replies).Land();
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(client.done()) << "after " << steps << " steps";
    EXPECT_EQ(server.answered(), kFrames);
    EXPECT_EQ(server.held(), 0u);
    parts += server.parts();
    // When all is answered, and landed, every rendezvous point is zero again.
    while (!requests.landed()) requests.Land();
    while (!replies.landed()) replies.Land();
    for (LateMemory* memory : {&requests, &replies}) {
      for (size_t at = 0; at < memory->bytes().size(); at += ring::kUnitBytes) {
        ASSERT_EQ(LoadLittle<uint64_t>(memory->bytes().data() + at), 0u) << at;
      }
    }
  }
  EXPECT_GT(parts, 0u) << "no frame was longer than a ring takes at once";
}

class RingFabricTest : public ::testing::TestWithParam<dsm::FabricKind> {
 protected:
  static constexpr uint64_t kBase = 8 << 20, kPatienceNs = 120 * kNsPerSecond;

  void ExpectZeroPoints(std::span<std::byte> area) {
    for (size_t at = 0; at < area.size(); at += ring::kUnitBytes) {
      ASSERT_EQ(LoadLittle<uint64_t>(area.data() + at), 0u) << at;
    }
  }
};

// The server's memory is the region of memory server 0, the client's that of memory server 1.
TEST_P(RingFabricTest, TheSameProtocolRunsOverTheMemoryLayer) {
  const MonotonicClock patience;
  for (const auto& [request_bytes, reply_bytes] : kRingAreas) {
    const uint64_t frames = request_bytes < 10'000 ? 60 : 300;
    const uint64_t seed = request_bytes + 5;
    SCOPED_TRACE("seed " + std::to_string(seed));
    dsm::FabricUnderTest under_test(GetParam(), {.servers = 2, .region_bytes = 16 << 20});
    const auto requests = under_test.region_bytes(0).subspan(kBase, request_bytes);
    const auto replies = under_test.region_bytes(1).subspan(kBase, reply_bytes);
    FabricLink to_server(under_test.Connect(), under_test.clock(), {0, kBase, request_bytes});
    FabricLink to_client(under_test.Connect(), under_test.clock(), {1, kBase, reply_bytes});
    ModelServer server(requests, FabricWriter{&to_client}, reply_bytes, seed);
    ModelClient client(FabricWriter{&to_server}, request_bytes, replies, seed, frames);
    const uint64_t end_ns = patience.NowNs() + kPatienceNs;
    while (!(client.done() && to_server.landed() && to_client.landed()) && !HasFatalFailure()) {
      client.Step();
      to_server.Turn();
      server.Step();
      to_client.Turn();
      if (patience.NowNs() > end_ns) FAIL() << "not all is answered";
    }
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(server.answered(), frames);
    EXPECT_EQ(server.held(), 0u);
    // Long frames in parts, long answers asked for again; messages of one unit up to half of the area, as what fills it;
    // back at the first unit both by a reset and by itself.
    EXPECT_GT(server.parts(), 0u);
    EXPECT_GT(server.continued(), 0u);
    for (const FabricLink* link : {&to_server, &to_client}) {
      EXPECT_EQ(link->sent().messages.begin()->first, 1u);
      EXPECT_GT(link->sent().messages.size(), 4u);
      EXPECT_LE(link->sent().messages.rbegin()->first,
                (link == &to_server ? request_bytes : reply_bytes) / ring::kUnitBytes / 2);
      EXPECT_EQ(link->sent().resets > 0, link == &to_server);
    }
    EXPECT_EQ(to_server.sent().messages.rbegin()->first, request_bytes / ring::kUnitBytes / 2);
    EXPECT_TRUE(to_server.sent().up_to_the_end > 0 || request_bytes > 16 * ring::kUnitBytes);
    ExpectZeroPoints(requests);
    ExpectZeroPoints(replies);
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RingFabricTest, ::testing::ValuesIn(dsm::AllFabrics()),
                         [](const auto& kind) { return dsm::FabricKindName(kind.param); });

// Whatever the memory holds, and however it changes between two looks, the half stays inside of its areas. (What it
// would do otherwise is seen under a sanitizer: memory ends where the areas end.)
TEST(RingTest, HostileMemoryIsRefusedOrTakenButNeverBelieved) {
  const uint64_t rounds = Amount{.small = 2'000, .usual = 100'000};
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  uint64_t refused = 0, taken = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t units = 1 + random.Below(40), reply_units = 1 + random.Below(40);
    std::vector<uint64_t> requests(units * ring::kUnitBytes / 8);
    std::vector<uint64_t> replies(reply_units * ring::kUnitBytes / 8);
    ring::ServerHalf half(std::as_writable_bytes(std::span(requests)),
                          ring::MappedWriter(std::as_writable_bytes(std::span(replies))),
                          replies.size() * 8);
    uint64_t at = 0;
    for (uint64_t sequence = 1; sequence < 20; ++sequence) {
      // A message as it should be, and then a few words of it that are not.
      const uint64_t bytes = random.Below(600);
      const uint64_t words[] = {
          ring::RendezvousWord(random.OneIn(6) ? ring::kResetMark : ring::kMessageMark,
                               static_cast<uint32_t>(bytes)),
          random.Below(reply_units) | (1 + random.Below(reply_units)) << 32, sequence,
          1 + random.Below(3)};
      for (uint64_t i = 0; i < 4; ++i) requests[(at + i) % requests.size()] = words[i];
      for (uint64_t changes = random.Below(3); changes > 0; --changes) {
        requests[random.OneIn(2) ? (at + random.Below(4)) % requests.size()
                                 : random.Below(requests.size())] =
            random.OneIn(2) ? random.Next() : random.Below(100'000);
      }
      const auto next = half.Next();
      if (!next.ok()) {
        EXPECT_EQ(next.status().code(), StatusCode::kCorruption);
        ++refused;
        break;
      }
      if (!next->has_value()) break;
      // The length is changed after it was read.
      requests[at % requests.size()] = random.Next();
      std::vector<std::byte> payload((**next).payload_bytes);
      half.Copy(**next, 0, payload);
      half.Take(**next);
      std::vector<std::byte> answer(random.Below(10'000));
      const size_t fits = half.Reply((**next).reply, answer);
      EXPECT_LE(fits, answer.size());
      at += ring::UnitsFor((**next).payload_bytes) * ring::kUnitBytes / 8;
      ++taken;
    }
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_GT(taken, rounds / 10);
}

TEST(RingTest, HostileAnswersAreRefusedByTheClient) {
  for (const auto& [mark, bytes, sequence, rest] :
       {std::tuple{7u, 8u, 1ull, 0ull}, std::tuple{ring::kMessageMark, 0xffffffe0u, 1ull, 0ull},
        std::tuple{ring::kMessageMark, 8u, 2ull, 0ull},
        std::tuple{ring::kMessageMark, 0u, 1ull, 5ull},
        std::tuple{ring::kMessageMark, 8u, 1ull, ~0ull}}) {
    std::vector<uint64_t> requests(64 * ring::kUnitBytes / 8), replies(requests);
    ring::ClientHalf half(ring::MappedWriter(std::as_writable_bytes(std::span(requests))),
                          requests.size() * 8, std::as_writable_bytes(std::span(replies)));
    ASSERT_TRUE(half.Send(AsBytes("frame..."), 1));
    replies[1] = sequence;
    replies[2] = rest;
    replies[0] = ring::RendezvousWord(mark, bytes);
    std::string out;
    EXPECT_EQ(half.Receive(&out).status().code(), StatusCode::kCorruption) << bytes;
  }
}

}  // namespace
}  // namespace farleaf::test
