// Whatever bytes a peer sends over the native protocol: what parses encodes to the same bytes again,
// and a server's connection ends or goes on within its limits.
//
// The first byte chooses the parser, the second how the stream is cut into pieces, and with its highest bit whether the
// server wants a password. Inputs to start from: corpus/native.
#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "client/protocol.h"
#include "dsm/base/random.h"
#include "server/frontend/native_connection.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::server {
namespace {

namespace wire = client::protocol;

void ParseAsRequest(std::span<const std::byte> body) {
  wire::Request request;
  if (!ParseRequest(body, &request).ok()) return;
  FARLEAF_CHECK(CheckLimits(request).ok() || request.opcode == wire::Opcode::kMultiGet);
  std::string again;
  AppendRequest(request, &again);
  FARLEAF_CHECK(AsChars(AsBytes(again).subspan(4)) == AsChars(body));
}

void ParseAsResponse(std::span<const std::byte> body) {
  wire::Response response;
  if (!ParseResponse(body, &response).ok()) return;
  std::string again;
  AppendResponse(response, &again);
  FARLEAF_CHECK(AsChars(AsBytes(again).subspan(4)) == AsChars(body));
}

void ParseAsClientHello(std::span<const std::byte> body) {
  const auto hello = wire::ParseClientHello(body);
  if (!hello.ok() || hello->version != wire::kVersion || hello->password.empty()) return;
  std::string again;
  AppendClientHello(*hello, &again);
  FARLEAF_CHECK(AsChars(AsBytes(again).subspan(4)) == AsChars(body));
}

constexpr std::string_view kFuzzPassword = "secret";

/// Answers requests in an order of its own, some at once, each exactly once; reads every byte that a
/// request names when it answers it.
class FuzzedPeer final : public NativeConnection::Runner {
 public:
  /// With the highest bit of `seed` clients have to know a password.
  explicit FuzzedPeer(uint8_t seed)
      : wants_password_((seed & 0x80) != 0), random_(seed), connection_(this, kLimits) {}

  uint64_t started() const { return started_; }

  wire::ServerHello Hello() override { return {}; }
  bool Admits(std::string_view password) const override {
    return !wants_password_ || password == kFuzzPassword;
  }
  uint32_t view() override {
    if (random_.OneIn(20)) ++view_;
    return view_;
  }
  void StartRequest(NativeConnection&, InputBlockRef block, wire::Request request,
                    NativeConnection::Token token) override {
    ++started_;
    waiting_.push_back({std::move(block), std::move(request), token});
    FARLEAF_CHECK(waiting_.size() <= kLimits.in_flight_max && connection_.failure().ok());
    if (random_.OneIn(3)) AnswerOne();
  }
  void Run(std::span<const std::byte> stream) {
    const bool says_it = AsChars(stream).find(kFuzzPassword) != std::string_view::npos;
    while (!stream.empty() && connection_.failure().ok()) {
      if (connection_.wants_input()) {
        const auto space = connection_.InputSpace();
        FARLEAF_CHECK(!space.empty());
        const size_t piece =
            std::min<size_t>({stream.size(), space.size(), 1 + random_.Below(300)});
        std::copy_n(stream.begin(), piece, space.begin());
        stream = stream.subspan(piece);
        connection_.InputArrived(piece);
      } else {
        MakeRoom();
      }
      if (random_.OneIn(4)) MakeRoom();
    }
    connection_.PeerEnded();
    // Each turn answers a request or sends some output, of which there is an end.
    while (!connection_.finished()) MakeRoom();
    while (!waiting_.empty()) AnswerOne();
    FARLEAF_CHECK(connection_.in_flight() == 0, connection_.in_flight());
    FARLEAF_CHECK(!wants_password_ || says_it || started_ == 0, started_);
  }

 private:
  static constexpr NativeConnection::Limits kLimits = {.in_flight_max = 5, .out_bytes_max = 256};

  void MakeRoom() {
    AnswerOne();
    connection_.OutputSent(random_.Below(connection_.output().size() + 1));
    if (waiting_.empty()) connection_.OutputSent(connection_.output().size());
    connection_.Continue();
  }
  void AnswerOne() {
    if (waiting_.empty()) return;
    std::swap(waiting_[random_.Below(waiting_.size())], waiting_.front());
    const auto [block, request, token] = std::move(waiting_.front());
    waiting_.pop_front();
    wire::Response response;
    response.id = request.id;
    response.opcode = request.opcode;
    response.code = StatusCode::kNotFound;
    std::string seen(request.key);  // touches the bytes
    seen += request.value;
    seen += request.expected;
    seen += request.name;
    for (std::string_view key : request.keys) seen += key;
    response.message = seen;
    connection_.Answer(response, token);
  }

  const bool wants_password_;
  uint64_t started_ = 0;
  Random random_;
  struct Waiting {
    InputBlockRef block;
    wire::Request request;
    NativeConnection::Token token;
  };
  std::deque<Waiting> waiting_;
  uint32_t view_ = 7;
  NativeConnection connection_;
};

/// The corpus has each request and each response of the protocol, whole, and who knows the server's password and who does
/// not: where the protocol has changed, so has it to.
void CheckSeeds(const std::vector<std::string>& seeds) {
  std::set<wire::Opcode> requests, responses;
  bool stream = false, password = false, admitted = false, turned_away = false;
  for (const std::string& seed : seeds) {
    FARLEAF_CHECK(seed.size() >= 2);
    const auto body = AsBytes(seed).subspan(2);
    wire::Request request;
    wire::Response response;
    if (seed[0] == 0 && ParseRequest(body, &request).ok()) requests.insert(request.opcode);
    if (seed[0] == 1 && ParseResponse(body, &response).ok()) responses.insert(response.opcode);
    if (seed[0] == 2) {
      const auto hello = wire::ParseClientHello(body);
      password |= hello.ok() && !hello->password.empty();
    }
    if (seed[0] != 4) continue;
    stream = true;
    FuzzedPeer peer(static_cast<uint8_t>(seed[1]));
    peer.Run(body);
    const bool wants_password = (seed[1] & 0x80) != 0;
    admitted |= wants_password && peer.started() > 0;
    turned_away |= wants_password && peer.started() == 0;
  }
  for (unsigned raw = 0; raw < 256; ++raw) {
    const auto opcode = static_cast<wire::Opcode>(raw);
    if (!wire::IsOpcode(static_cast<uint8_t>(raw))) continue;
    FARLEAF_CHECK(requests.contains(opcode) && responses.contains(opcode), raw);
  }
  FARLEAF_CHECK(stream && password && admitted && turned_away, password, admitted, turned_away);
}

}  // namespace
}  // namespace farleaf::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::server;
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  switch (data[0] % 5) {
    case 0:
      ParseAsRequest(bytes);
      break;
    case 1:
      ParseAsResponse(bytes);
      break;
    case 2:
      ParseAsClientHello(bytes);
      break;
    case 3:
      (void)wire::ParseServerHello(bytes);
      break;
    default:
      FuzzedPeer(data[1]).Run(bytes);
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = farleaf::test::ReadCorpus("native");
  farleaf::server::CheckSeeds(seeds);
  return seeds;
}
