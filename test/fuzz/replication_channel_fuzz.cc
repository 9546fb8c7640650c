// Whatever a primary writes into a backup's area: the backup reads and writes the area only, and the handler is given what a primary of ours
// has written, in order, and nothing behind what was damaged.
//
// The input is steps, each a byte and what it takes behind that; what is missing is zero. Inputs to start from: corpus/replication_channel.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/null_transport.h"
#include "server/replication/channel_server.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::server::replication {
namespace {

enum class Step : uint8_t {
  kSend,  ///< kind(1), bytes of the head(2), of the payload(2): the next message, as primaries send it
  kStoreByte,  ///< where(2), byte(1): anywhere in a message slot
  kStoreWord,  ///< where(2), word(8): the same
  kAnnounce,   ///< the next message's rendezvous word, whatever is behind it
  kSeal,  ///< token and sequence of the next message, and the CRC, into whatever lies there; then its word
  kServerLooks,  ///< turns(1) of its worker
  kReset,        ///< to another token
};
constexpr uint8_t kSteps = 7;

class HostilePrimary {
 public:
  explicit HostilePrimary(std::span<const std::byte> steps)
      : steps_(steps), worker_({std::make_unique<dsm::NullTransport>(), &epochs_, &clock_}) {
    Reset();
    worker_.Spawn(server_.Serve(worker_, [this](dsm::Worker& on, const ReceivedMessage& message) {
      return Execute(on, message);
    }));
  }
  void Run() {
    while (!steps_.empty()) Take(static_cast<Step>(Number(1) % kSteps));
    Turn(20);
    server_.Stop();
    while (worker_.spawned() > 0) Turn(1);
    for (size_t i = 0; i < kGuardBytes; ++i) {
      FARLEAF_CHECK(memory_[i] == kGuard && memory_[memory_.size() - 1 - i] == kGuard, i);
    }
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xa5};

  dsm::Task<Reply> Execute(dsm::Worker& on, const ReceivedMessage& message) {
    FARLEAF_CHECK(message.sequence == executed_ + 1, message.sequence, executed_);
    FARLEAF_CHECK(message.head.size() <= kMessageHeadBytesMax);
    FARLEAF_CHECK(message.payload.size() <= layout_.payload_bytes);
    uint64_t sum = 0;  // of bytes that a sanitizer has an eye on
    for (const std::byte byte : message.payload) sum += static_cast<uint64_t>(byte);
    if (message.kind % 2 == 1) co_await on.Sleep(30 * kNsPerUs);
    executed_ = message.sequence;
    co_return Reply{
        .values = {sum}, .text = message.head, .payload = std::string(AsChars(message.payload))};
  }
  uint64_t Number(size_t bytes) {
    uint64_t number = 0;
    for (size_t i = 0; i < bytes && !steps_.empty(); ++i) {
      number |= static_cast<uint64_t>(steps_.front()) << 8 * i;
      steps_ = steps_.subspan(1);
    }
    return number;
  }
  void Reset() {
    bool done = false;
    const auto reset = [](ChannelServer* server, uint64_t token, bool* ended) -> dsm::Task<void> {
      co_await server->Reset(token);
      *ended = true;
    };
    worker_.Spawn(reset(&server_, ++token_, &done));
    while (!done) Turn(1);
    executed_ = 0;
    next_ = 1;
  }
  void Turn(uint64_t turns) {
    for (; turns > 0; --turns) {
      clock_.AdvanceNs(25 * kNsPerUs);
      worker_.GoOnline();
      worker_.RunOnce(dsm::Worker::Idle::kReturn);
      worker_.GoOffline();
    }
  }
  std::byte* Slot() { return area_.data() + layout_.MessageOffset(SlotOf(next_, layout_.slots)); }
  /// Anywhere in the page of the next message's slot, or the beginning of its payload.
  std::byte* Somewhere(size_t bytes) {
    return Slot() + Number(2) % (kHeadPageBytes + 64) / bytes * bytes;
  }
  void Announce() {
    const uint64_t word = RendezvousWord(token_, next_++);
    std::memcpy(area_.data() + layout_.MessageOffset(SlotOf(next_ - 1, layout_.slots)), &word,
                sizeof word);
  }
  void Take(Step step) {
    switch (step) {
      case Step::kSend: {
        Message message{.kind = static_cast<uint8_t>(Number(1))};
        const std::string head(Number(2) % (kMessageHeadBytesMax + 1), 'h');
        const std::string payload(Number(2) % (layout_.payload_bytes + 1), 'p');
        message.payload = AsBytes(payload);
        const std::string encoded = EncodeHead(HeaderOf({token_, next_}, message), head);
        std::memcpy(Slot() + 8, encoded.data() + 8, encoded.size() - 8);
        std::memcpy(Slot() + kHeadPageBytes, payload.data(), payload.size());
        return Announce();
      }
      case Step::kStoreByte: {
        std::byte* const at = Somewhere(1);
        *at = static_cast<std::byte>(Number(1));
        return;
      }
      case Step::kStoreWord: {
        std::byte* const at = Somewhere(8);
        const uint64_t word = Number(8);
        std::memcpy(at, &word, sizeof word);
        return;
      }
      case Step::kAnnounce:
        return Announce();
      case Step::kSeal: {
        ChannelHeader header;
        std::memcpy(&header, Slot(), sizeof header);
        header.token = token_;
        header.sequence = next_;
        const size_t head_bytes = std::min<size_t>(header.head_bytes, kMessageHeadBytesMax);
        const size_t payload_bytes = std::min<size_t>(header.payload_bytes, layout_.payload_bytes);
        header.payload_crc = Crc32c({Slot() + kHeadPageBytes, payload_bytes});
        header.crc = HeadCrc(header, AsChars({Slot() + kHeaderBytes, head_bytes}));
        std::memcpy(Slot() + 8, reinterpret_cast<const std::byte*>(&header) + 8, sizeof header - 8);
        return Announce();
      }
      case Step::kServerLooks:
        return Turn(Number(1) % 16);
      case Step::kReset:
        return Reset();
    }
  }

  std::span<const std::byte> steps_;
  ManualClock clock_;
  dsm::EpochDomain epochs_;
  const AreaLayout layout_ = *AreaLayout::For({2, 4'096, 0});
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(layout_.bytes() + 2 * kGuardBytes, kGuard);
  const std::span<std::byte> area_ = std::span(memory_).subspan(kGuardBytes, layout_.bytes());
  uint64_t token_ = 1'000;
  uint64_t next_ = 1;      // sequence of the next message that is sent
  uint64_t executed_ = 0;  // the last one that the handler was given
  dsm::Worker worker_;
  ChannelServer server_{area_, layout_, {}};
};

}  // namespace
}  // namespace farleaf::server::replication

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farleaf::server::replication::HostilePrimary(std::as_bytes(std::span(data, size))).Run();
  return 0;
}

std::vector<std::string> FuzzSeeds() { return farleaf::test::ReadCorpus("replication_channel"); }
