// Whatever bytes a peer sends over the native protocol: what parses encodes to the same bytes again,
// and a server's connection ends or goes on within its limits.
//
// The first byte chooses the parser, the second how the stream is cut into pieces.
#include <algorithm>
#include <deque>
#include <utility>

#include "client/protocol.h"
#include "dsm/base/random.h"
#include "server/frontend/native_connection.h"
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

/// Answers requests in an order of its own, some at once, each exactly once; reads every byte that a
/// request names when it answers it.
class FuzzedPeer final : public NativeConnection::Runner {
 public:
  explicit FuzzedPeer(uint64_t seed) : random_(seed), connection_(this, kLimits) {}

  wire::ServerHello Hello() override { return {}; }
  uint32_t view() override {
    if (random_.OneIn(20)) ++view_;
    return view_;
  }
  void StartRequest(NativeConnection&, InputBlockRef block, wire::Request request,
                    NativeConnection::Token token) override {
    waiting_.push_back({std::move(block), std::move(request), token});
    FARLEAF_CHECK(waiting_.size() <= kLimits.in_flight_max && connection_.failure().ok());
    if (random_.OneIn(3)) AnswerOne();
  }
  void Run(std::span<const std::byte> stream) {
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
    connection_.InputEnded();
    // Each turn answers a request or sends some output, of which there is an end.
    while (!connection_.finished()) MakeRoom();
    while (!waiting_.empty()) AnswerOne();
    FARLEAF_CHECK(connection_.in_flight() == 0, connection_.in_flight());
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
      (void)wire::ParseClientHello(bytes);
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
  using namespace farleaf::server;
  using wire::Opcode;
  std::vector<std::string> seeds;
  std::string hello;
  wire::AppendClientHello({}, &hello);
  seeds.push_back(
      "\x02"
      "a" +
      hello.substr(4));
  std::string greeting;
  wire::AppendServerHello({}, &greeting);
  seeds.push_back(
      "\x03"
      "a" +
      greeting.substr(4));
  std::string stream = hello, requests;
  for (Opcode opcode :
       {Opcode::kPing, Opcode::kListTrees, Opcode::kOpenTree, Opcode::kServerStats, Opcode::kGet,
        Opcode::kMultiGet, Opcode::kScan, Opcode::kInsert, Opcode::kPut, Opcode::kUpdate,
        Opcode::kDelete, Opcode::kDeleteIf, Opcode::kCompareAndSet, Opcode::kCreateTree,
        Opcode::kAdd, Opcode::kRangeMap, Opcode::kOpenRing}) {
    wire::Request request;
    request.id = seeds.size();
    request.opcode = opcode;
    request.key = "key";
    request.value = "a value";
    request.expected = "another";
    request.end = "z";
    request.keys = {"one", "two"};
    request.name = "tree";
    request.keys_only = true;
    request.delta = -5;
    request.initial = 6;
    std::string frame;
    AppendRequest(request, &frame);
    requests += frame;
    AppendBatch(static_cast<uint32_t>(request.id), 7, request, &stream);
    seeds.push_back(std::string("\0b", 2) + frame.substr(4));
    wire::Response response;
    response.id = request.id;
    response.opcode = opcode;
    response.value = "a value";
    response.values = {"a", std::nullopt};
    response.rows = {{"key", "value"}, {"other", ""}};
    response.more = true;
    response.continuation = "p";
    response.trees = {{.id = 1,
                       .layout = wire::TreeLayout::kBytes,
                       .key_bytes_max = 1024,
                       .value_bytes_max = 1 << 20,
                       .leaf_layout = wire::LeafLayout::kSorted,
                       .leaf_bytes = 4096,
                       .node_bytes = 4096,
                       .name = "tree"}};
    response.text = "get.count 1\n";
    response.outcome = wire::ConditionOutcome::kDifferent;
    response.current = "another";
    response.number = -7;
    response.view = 7;
    response.ranges = {{"", ""}, {"m", "farleaf://other:7400"}};
    std::string answer;
    AppendResponse(response, &answer);
    seeds.push_back(
        "\x01"
        "c" +
        answer.substr(4));
  }
  const size_t batch = wire::BeginBatch(99, 7, &stream);
  stream += requests;
  wire::EndBatch(batch, 17, &stream);
  for (char cut : {'d', 'e', 'f'}) seeds.push_back(std::string("\x04") + cut + stream);
  return seeds;
}
