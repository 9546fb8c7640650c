// Whatever bytes a peer sends over the tcp fabric: a memory server touches nothing outside its
// region, a client nothing outside its buffers, and both end with a Status.
//
// The first byte chooses the parser, the second how the stream is cut into pieces.
#include <algorithm>
#include <cstring>
#include <list>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"
#include "dsm/handshake.h"
#include "dsm/tcp/batch_executor.h"
#include "dsm/tcp/reply_reader.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::dsm {
namespace {

constexpr size_t kRegionBytes = 4096, kGuardBytes = 512;

/// Memory with guards on both sides, which nobody may change.
class GuardedMemory {
 public:
  GuardedMemory() { std::fill(bytes_, bytes_ + sizeof bytes_, std::byte{0xa5}); }
  ~GuardedMemory() {
    for (size_t i = 0; i < kGuardBytes; ++i) {
      FARLEAF_CHECK(bytes_[i] == std::byte{0xa5}, i);
      FARLEAF_CHECK(bytes_[kGuardBytes + kRegionBytes + i] == std::byte{0xa5}, i);
    }
  }
  std::span<std::byte> bytes() { return {bytes_ + kGuardBytes, kRegionBytes}; }

 private:
  alignas(64) std::byte bytes_[kRegionBytes + 2 * kGuardBytes];
};

void RunRequests(std::span<const std::byte> stream, uint64_t seed) {
  GuardedMemory region;
  Random random(seed);
  BatchExecutor executor(region.bytes(), "memory server 0");
  ByteQueue in(256 << 10), out(16 << 10);
  // Room must come back within as many turns as the largest reply takes to drain.
  for (int idle = 0; idle < 3;) {
    const size_t piece = std::min<size_t>({stream.size(), 1 + random.Below(512), in.room()});
    in.Append(stream.first(piece));
    stream = stream.subspan(piece);
    auto consumed = executor.Consume(in.readable(), &out);
    if (!consumed.ok()) {
      FARLEAF_CHECK(consumed.status().code() == StatusCode::kCorruption && !out.empty(),
                    consumed.status());
      return;
    }
    FARLEAF_CHECK(*consumed <= in.size(), *consumed, in.size());
    in.Consume(*consumed);
    const bool moved = piece > 0 || *consumed > 0 || !out.empty();
    out.Consume(std::min<size_t>(out.size(), 1 + random.Below(16 << 10)));
    idle = moved ? 0 : idle + 1;
  }
}

void RunReplies(std::span<const std::byte> stream, uint64_t seed) {
  GuardedMemory memory;
  Random random(seed);
  std::list<Batch> batches;
  RoundTripState state;
  ReplyReader reader;
  uint64_t sequence = 0;
  const auto post = [&](Batch& batch) {
    state.AddBatch();
    batch.set_round_trip(&state);
    reader.Expect(&batch, ++sequence);
  };
  auto* word = reinterpret_cast<uint64_t*>(memory.bytes().data());
  post((batches.emplace_back(0).Read(0, memory.bytes().first(64)), batches.back()));
  post((batches.emplace_back(0).CompareAndSwap(0, 0, 1, word), batches.back()));
  post((batches.emplace_back(0).WriteWord(0, word), batches.back()));
  post((batches.emplace_back(0).Read(0, memory.bytes()), batches.back()));
  ByteQueue in(256 << 10);
  size_t completed = 0;
  while (!stream.empty()) {
    if (in.empty() && random.OneIn(2)) {
      const std::span<std::byte> into = reader.Destination();
      const size_t direct = std::min(into.size(), stream.size());
      if (direct > 0) {
        std::memcpy(into.data(), stream.data(), direct);
        stream = stream.subspan(direct);
        reader.CommitDestination(direct, &completed);
        continue;
      }
    }
    const size_t piece = std::min<size_t>(stream.size(), 1 + random.Below(512));
    in.Append(stream.first(piece));
    stream = stream.subspan(piece);
    auto consumed = reader.Consume(in.readable(), &completed);
    if (!consumed.ok()) break;
    FARLEAF_CHECK(*consumed <= in.size(), *consumed, in.size());
    in.Consume(*consumed);
  }
  FARLEAF_CHECK(completed + reader.TakeAll().size() == batches.size(), completed);
}

void RunHandshake(std::span<const std::byte> bytes) {
  auto whole = HandshakeBytes(bytes);
  if (!whole.ok() || !*whole || bytes.size() < **whole) return;
  const std::span<const std::byte> message = bytes.first(**whole);
  if (auto hello = ParseHello(message); hello.ok() && hello->version == kProtocolVersion) {
    FARLEAF_CHECK(ParseHello(AsBytes(EncodeHello(*hello))).ok());
    (void)CheckHello(*hello, {"tested", {0, kRegionBytes, 5}});
  }
  if (auto welcome = ParseWelcome(message); welcome.ok()) {
    FARLEAF_CHECK(ParseWelcome(AsBytes(EncodeWelcome(*welcome))).ok());
    (void)CheckWelcome(*welcome, Hello{}, 5);
  }
}

std::string Request(uint64_t sequence, const std::vector<FrameVerb>& verbs) {
  std::string frame, payload;
  for (const FrameVerb& verb : verbs) {
    payload += std::string(RequestPayloadBytes(static_cast<VerbKind>(verb.kind), verb.length), 'p');
  }
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

std::string Reply(uint64_t sequence, StatusCode code, size_t bytes) {
  std::string frame(kFrameHeaderBytes, '\0');
  EncodeReplyHeader({static_cast<uint32_t>(kFrameHeaderBytes + bytes), code, sequence},
                    reinterpret_cast<std::byte*>(frame.data()));
  return frame + std::string(bytes, 'r');
}

}  // namespace
}  // namespace farleaf::dsm

std::vector<std::string> FuzzSeeds() {
  using namespace farleaf::dsm;
  const std::string requests("\0\1", 2), replies("\1\1", 2), handshakes("\2\1", 2);
  Hello hello;
  hello.cluster = "tested";
  Hello cut_off = hello;
  cut_off.kind = HelloKind::kCutOff;
  cut_off.member = {1, 2};
  cut_off.target = {3, 4};
  Welcome welcome, refusal;
  welcome.region = {0, kRegionBytes, 5};
  refusal.refusal = farleaf::Status::InvalidArgument("another cluster");
  return {
      requests + Request(1, {{1, 64, 0}}) + Request(2, {{2, 64, 8}, {2, 8, 0}}),
      requests + Request(1, {{2, 8, 0}, {3, 8, 0}, {4, 8, 8}, {1, 4096, 0}}),
      requests + Request(1, {{1, 4096, 0}, {1, 4096, 0}, {1, 4096, 0}, {1, 4096, 0}, {1, 4096, 0}}),
      replies + Reply(1, farleaf::StatusCode::kOk, 64) + Reply(2, farleaf::StatusCode::kOk, 8) +
          Reply(3, farleaf::StatusCode::kOk, 0) + Reply(4, farleaf::StatusCode::kOk, 4096),
      replies + Reply(1, farleaf::StatusCode::kInvalidArgument, 20),
      handshakes + EncodeHello(hello),
      handshakes + EncodeHello(cut_off),
      handshakes + EncodeWelcome(welcome),
      handshakes + EncodeWelcome(refusal),
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::dsm;
  if (size < 2) return 0;
  const std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data) + 2, size - 2);
  switch (data[0] % 3) {
    case 0:
      RunRequests(rest, data[1]);
      break;
    case 1:
      RunReplies(rest, data[1]);
      break;
    case 2:
      RunHandshake(rest);
      break;
  }
  return 0;
}
