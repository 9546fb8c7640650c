// Whatever a client writes into the memory that it shares with a server: the server reads and writes the ring's
// areas only, takes no more than its limits, answers each request that it began once, and its connection ends or goes
// on.
//
// The first byte: even: the rest is what lies in the request area when the server looks; odd: the rest is what the
// client does, step by step, on a ring that a connection has opened (Steps). Inputs to start from: corpus/ring.
#include <sys/mman.h>

#include <deque>
#include <optional>
#include <utility>

#include "client/ring/client_half.h"
#include "client/ring/server_half.h"
#include "server/frontend/native_connection.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::server {
namespace {

namespace ring = client::ring;
namespace wire = client::protocol;

/// A request area as the server may find it, whatever is in it.
void TakeAll(std::span<const std::byte> bytes) {
  constexpr int kMessagesMax =
      64;  // messages that follow one another for ever, as far as one can tell
  alignas(8) static std::byte requests[ring::kAreaBytesMin], replies[ring::kAreaBytesMin];
  for (size_t i = 0; i < sizeof requests; ++i) {
    requests[i] = i < bytes.size() ? bytes[i] : std::byte{0};
  }
  const std::span<std::byte> ours(requests), theirs(replies);
  ring::ServerHalf<ring::MappedWriter> half(ours, ring::MappedWriter{theirs}, theirs.size());
  for (int n = 0; n < kMessagesMax; ++n) {
    const auto next = half.Next();
    if (!next.ok() || !next->has_value()) return;
    const ring::ArrivedMessage& message = **next;
    FARLEAF_CHECK(message.payload_bytes <= sizeof requests - ring::kHeaderBytes);
    std::string payload(message.payload_bytes, '\0');
    half.Copy(message, 0, std::as_writable_bytes(std::span(payload)));
    half.Take(message);
    const size_t fits = half.Reply(message.reply, AsBytes(payload));
    FARLEAF_CHECK(fits <= payload.size() && fits <= sizeof replies - ring::kHeaderBytes, fits);
  }
}

/// The client's steps. Each is a byte, and what it takes behind that.
enum class Step : uint8_t {
  kSend,         ///< bytes(2), then so many: a message, as clients send it
  kStoreWord,    ///< where(2), word(8): anywhere in the mapping
  kRendezvous,   ///< unit(1), bytes(2): a message's rendezvous word
  kHeader,       ///< unit(1), unit of the reply(1), its units(1), sequence(1), kind(1)
  kServerLooks,  ///< the server takes what is there
  kAnswer,       ///< bytes(2): one request is answered
  kReceive,      ///< the client takes answers
  kBothSleep,
};
constexpr uint8_t kSteps = 8;

class RingPeer final : public NativeConnection::Runner {
 public:
  explicit RingPeer(std::span<const std::byte> steps) : steps_(steps), connection_(this, kLimits) {
    connection_.set_peer_is_local(true);
    std::string opening;
    wire::AppendClientHello({}, &opening);
    Deliver(opening);
    opening.clear();
    wire::Request request;
    request.opcode = wire::Opcode::kOpenRing;
    request.ring = {ring::kAreaBytesMin, ring::kAreaBytesMin};
    wire::AppendBatch(0, 0, request, &opening);
    Deliver(opening);
    FARLEAF_CHECK(connection_.has_ring() && connection_.descriptor_to_send().valid());
    void* const at = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                            connection_.descriptor_to_send().get(), 0);
    FARLEAF_CHECK(at != MAP_FAILED, errno);
    memory_ = static_cast<std::byte*>(at);
    half_.emplace(ring::MappedWriter(Requests()), ring::kAreaBytesMin,
                  std::span(memory_ + ring::kControlBytes + ring::kAreaBytesMin,
                            size_t{ring::kAreaBytesMin}));
    connection_.OutputSent(connection_.output().size());
  }
  ~RingPeer() override { ::munmap(memory_, kMapped); }

  wire::ServerHello Hello() override { return {}; }
  uint32_t view() override { return 7; }
  void StartRequest(NativeConnection&, InputBlockRef block, wire::Request request,
                    NativeConnection::Token token) override {
    if (request.opcode == wire::Opcode::kOpenRing) FARLEAF_CHECK(false, "it is not run");
    waiting_.push_back({std::move(block), std::move(request), token});
    FARLEAF_CHECK(waiting_.size() <= kLimits.in_flight_max && connection_.failure().ok());
  }
  void Run() {
    while (!steps_.empty() && connection_.failure().ok())
      Take(static_cast<Step>(Number(1) % kSteps));
    Look();
    connection_.InputEnded();
    while (!waiting_.empty()) Answer(3);
    FARLEAF_CHECK(connection_.in_flight() == 0, connection_.in_flight());
    connection_.Abandon();
  }

 private:
  static constexpr NativeConnection::Limits kLimits = {.in_flight_max = 5, .out_bytes_max = 2'048};
  static constexpr size_t kMapped = ring::kControlBytes + 2 * size_t{ring::kAreaBytesMin};
  static constexpr size_t kUnits = ring::kAreaBytesMin / ring::kUnitBytes;

  std::span<std::byte> Requests() {
    return {memory_ + ring::kControlBytes, size_t{ring::kAreaBytesMin}};
  }
  void Deliver(std::string_view bytes) {
    const auto space = connection_.InputSpace();
    FARLEAF_CHECK(space.size() >= bytes.size());
    std::copy_n(AsBytes(bytes).begin(), bytes.size(), space.begin());
    connection_.InputArrived(bytes.size());
  }
  /// Of the steps, little-endian; what is missing is zero.
  uint64_t Number(size_t bytes) {
    uint64_t number = 0;
    for (size_t i = 0; i < bytes && !steps_.empty(); ++i) {
      number |= static_cast<uint64_t>(steps_.front()) << 8 * i;
      steps_ = steps_.subspan(1);
    }
    return number;
  }
  void Take(Step step) {
    switch (step) {
      case Step::kSend: {
        const size_t wanted = Number(2);
        const auto frame = steps_.first(std::min(wanted, steps_.size()));
        steps_ = steps_.subspan(frame.size());
        (void)half_->Send(frame, 1);
        return;
      }
      case Step::kStoreWord: {
        const uint64_t at = Number(2) * 8 % kMapped;
        return ring::WordAt(memory_, at).store(Number(8));
      }
      case Step::kRendezvous: {
        const uint64_t unit = Number(1) % kUnits;
        return ring::WordAt(Requests().data(), unit * ring::kUnitBytes)
            .store(ring::RendezvousWord(ring::kMessageMark, static_cast<uint32_t>(Number(2))));
      }
      case Step::kHeader: {
        std::byte* const at = Requests().data() + Number(1) % kUnits * ring::kUnitBytes + 8;
        ring::RequestHeader header;
        header.reply_unit = static_cast<uint32_t>(Number(1));
        header.reply_units = static_cast<uint32_t>(Number(1));
        header.sequence = Number(1);
        header.kind = Number(1);
        return CopyToShared(at, ring::BytesOf(header).data(), sizeof header);
      }
      case Step::kServerLooks:
        return Look();
      case Step::kAnswer:
        return Answer(Number(2));
      case Step::kReceive: {
        std::string answers;
        (void)half_->Receive(&answers);  // what the client has written there is its own affair
        return;
      }
      case Step::kBothSleep:
        ring::WordAt(memory_, ring::kClientSleepsAt).store(1);
        if (!connection_.RingMaySleep()) FARLEAF_CHECK(connection_.RingReady());
        connection_.RingAwake();
        return;
    }
  }
  void Look() {
    if (connection_.failure().ok()) connection_.TakeRing();
    FARLEAF_CHECK(connection_.output().size() < 100'000);
    connection_.OutputSent(connection_.output().size());
  }
  void Answer(size_t bytes) {
    if (waiting_.empty()) return;
    const auto [block, request, token] = std::move(waiting_.front());
    waiting_.pop_front();
    wire::Response response;
    response.id = request.id;
    response.opcode = request.opcode;
    response.code = StatusCode::kNotFound;
    const std::string message(bytes, 'm');
    response.message = message;
    connection_.Answer(response, token);
    connection_.Continue();
  }

  struct Waiting {
    InputBlockRef block;
    wire::Request request;
    NativeConnection::Token token;
  };
  std::span<const std::byte> steps_;
  std::deque<Waiting> waiting_;
  std::byte* memory_ = nullptr;
  std::optional<ring::ClientHalf<ring::MappedWriter>> half_;
  NativeConnection connection_;
};

}  // namespace
}  // namespace farleaf::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::server;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 2 == 0) {
    TakeAll(bytes);
  } else {
    RingPeer(bytes).Run();
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() { return farleaf::test::ReadCorpus("ring"); }
