#include "client/protocol.h"

#include <gtest/gtest.h>

#include "dsm/base/random.h"

namespace farleaf::client::protocol {
namespace {

std::span<const std::byte> Body(const std::string& frame) { return AsBytes(frame).subspan(4); }

std::vector<Request> EveryRequest() {
  std::vector<Request> all;
  auto add = [&](Opcode opcode) -> Request& {
    Request request;
    request.id = 0x1122334455667788 + all.size();
    request.tree = 9;
    request.deadline_ms = 1500;
    request.opcode = opcode;
    return all.emplace_back(request);
  };
  for (Opcode opcode : {Opcode::kPing, Opcode::kListTrees, Opcode::kServerStats, Opcode::kSlowLog})
    add(opcode);
  add(Opcode::kOpenTree).name = "accounts";
  Request& create = add(Opcode::kCreateTree);
  create.name = "accounts";
  create.layout = TreeLayout::kFixed8;
  create.geometry = {2048, 1024, LeafLayout::kSorted, 8, 9};
  for (Opcode opcode : {Opcode::kGet, Opcode::kDelete}) add(opcode).key = "a key";
  add(Opcode::kMultiGet).keys = {"one", "", "three"};
  for (Opcode opcode : {Opcode::kInsert, Opcode::kPut, Opcode::kUpdate}) {
    Request& write = add(opcode);
    write.key = "k";
    write.value = std::string_view("v\0w", 3);
  }
  Request& delete_if = add(Opcode::kDeleteIf);
  delete_if.key = "k";
  delete_if.expected = "old";
  Request& compare = add(Opcode::kCompareAndSet);
  compare.key = "k";
  compare.expected = "old";
  compare.value = "new";
  Request& scan = add(Opcode::kScan);
  scan.key = "from";
  scan.limit = uint64_t{1} << 40;
  Request& reverse = add(Opcode::kScan);
  reverse.end = "to";
  reverse.reverse = true;
  reverse.limit = 3;
  reverse.keys_only = true;
  add(Opcode::kRangeMap);
  add(Opcode::kOpenRing).ring = {1 << 20, 1 << 16};
  add(Opcode::kAdd).key = "counter";
  Request& count = add(Opcode::kAdd);
  count.key = "counter";
  count.delta = INT64_MIN;
  count.initial = -1;
  Request& stale_get = add(Opcode::kGet);
  stale_get.key = "a key";
  stale_get.max_staleness_ms = 1;
  Request& stale_scan = add(Opcode::kScan);
  stale_scan.end = "to";
  stale_scan.max_staleness_ms = UINT32_MAX;
  Request& stale_multi_get = add(Opcode::kMultiGet);
  stale_multi_get.keys = {"one"};
  stale_multi_get.max_staleness_ms = 60'000;
  for (Opcode opcode : {Opcode::kPut, Opcode::kInsert, Opcode::kUpdate, Opcode::kDelete,
                        Opcode::kDeleteIf, Opcode::kCompareAndSet, Opcode::kAdd}) {
    Request& durable = add(opcode);
    durable.key = "k";
    durable.durability =
        opcode == Opcode::kPut ? WriteDurability::kReplicated : WriteDurability::kSynced;
  }
  return all;
}

std::vector<Response> EveryResponse() {
  std::vector<Response> all;
  auto add = [&](Opcode opcode) -> Response& {
    Response response;
    response.id = 77 + all.size();
    response.opcode = opcode;
    return all.emplace_back(response);
  };
  const TreeInfo tree{5,    TreeLayout::kBytes, 1024, 1 << 24, LeafLayout::kSorted, 2048,
                      1024, "accounts"};
  add(Opcode::kPing);
  add(Opcode::kListTrees).trees = {
      tree, {6, TreeLayout::kFixed8, 8, 8, LeafLayout::kSorted, 2048, 1024, "other"}};
  for (Opcode opcode : {Opcode::kOpenTree, Opcode::kCreateTree}) add(opcode).trees = {tree};
  add(Opcode::kServerStats).text = "get.count 5\n";
  add(Opcode::kSlowLog).text = "[]\n";
  add(Opcode::kGet);
  add(Opcode::kGet).value = "";
  add(Opcode::kMultiGet).values = {"a", std::nullopt, ""};
  for (Opcode opcode : {Opcode::kInsert, Opcode::kPut, Opcode::kUpdate, Opcode::kDelete}) {
    add(opcode).changed = true;
  }
  add(Opcode::kDeleteIf).outcome = ConditionOutcome::kDifferent;
  add(Opcode::kCompareAndSet).outcome = ConditionOutcome::kAbsent;
  Response& different = add(Opcode::kCompareAndSet);
  different.outcome = ConditionOutcome::kDifferent;
  different.current = "another";
  add(Opcode::kAdd).number = INT64_MIN + 1;
  add(Opcode::kOpenRing).ring = {1 << 19, 1 << 15};
  Response& map = add(Opcode::kRangeMap);
  map.view = 8;
  map.ranges = {{"", ""}, {"m", "farleaf://other:7400"}};
  Response& keys = add(Opcode::kScan);
  keys.rows = {{"a", ""}, {"b", ""}};
  keys.keys_only = true;
  add(Opcode::kScan).rows = {{"a", "1"}, {"b", ""}};
  Response& piece = add(Opcode::kScan);
  piece.rows = {{"a", "1"}};
  piece.more = true;
  piece.continuation = "b";
  Response& failed = add(Opcode::kPut);
  failed.code = StatusCode::kUnavailable;
  failed.message = "memory server 1 lost";
  for (Opcode opcode : {Opcode::kGet, Opcode::kScan, Opcode::kMultiGet}) {
    add(opcode).staleness_ms = opcode == Opcode::kGet ? 0 : UINT32_MAX;
  }
  Response refusal;
  refusal.id = 4711;
  refusal.wrong_view = true;
  refusal.refused_from = 3;
  refusal.view = 9;
  all.push_back(refusal);
  all.push_back({.goodbye = true});
  return all;
}

std::string Encode(const Request& request) {
  std::string frame;
  AppendRequest(request, &frame);
  return frame;
}
std::string Encode(const Response& response) {
  std::string frame;
  AppendResponse(response, &frame);
  return frame;
}

// A parsed message encodes to the bytes that it came from: every field made the journey.
TEST(ProtocolTest, EveryRequestMakesTheRoundTrip) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encode(request);
    Request parsed;
    ASSERT_TRUE(ParseRequest(Body(frame), &parsed).ok()) << OpcodeName(request.opcode);
    EXPECT_EQ(Encode(parsed), frame) << OpcodeName(request.opcode);
    EXPECT_EQ(parsed.id, request.id);
    EXPECT_EQ(parsed.opcode, request.opcode);
    EXPECT_EQ(parsed.key, request.key);
    EXPECT_EQ(parsed.value, request.value);
    EXPECT_EQ(parsed.expected, request.expected);
    EXPECT_EQ(parsed.keys, request.keys);
    EXPECT_EQ(parsed.end, request.end);
    EXPECT_EQ(parsed.limit, request.limit);
    EXPECT_EQ(parsed.reverse, request.reverse);
    EXPECT_EQ(parsed.name, request.name);
    EXPECT_EQ(parsed.max_staleness_ms, request.max_staleness_ms);
    EXPECT_EQ(parsed.durability, request.durability);
    EXPECT_EQ(parsed.geometry, request.geometry);
    EXPECT_EQ(parsed.keys_only, request.keys_only);
    EXPECT_EQ(parsed.delta, request.delta);
    EXPECT_EQ(parsed.ring, request.ring);
    EXPECT_EQ(parsed.initial, request.initial);
  }
}

TEST(ProtocolTest, EveryResponseMakesTheRoundTrip) {
  for (const Response& response : EveryResponse()) {
    const std::string frame = Encode(response);
    Response parsed;
    ASSERT_TRUE(ParseResponse(Body(frame), &parsed).ok()) << OpcodeName(response.opcode);
    EXPECT_EQ(Encode(parsed), frame) << OpcodeName(response.opcode);
    EXPECT_EQ(parsed.id, response.id);
    EXPECT_EQ(parsed.code, response.code);
    EXPECT_EQ(parsed.message, response.message);
    EXPECT_EQ(parsed.staleness_ms, response.staleness_ms);
    EXPECT_EQ(parsed.value, response.value);
    EXPECT_EQ(parsed.values, response.values);
    EXPECT_EQ(parsed.rows, response.rows);
    EXPECT_EQ(parsed.trees, response.trees);
    EXPECT_EQ(parsed.outcome, response.outcome);
    EXPECT_EQ(parsed.changed, response.changed);
    EXPECT_EQ(parsed.wrong_view, response.wrong_view);
    EXPECT_EQ(parsed.goodbye, response.goodbye);
    EXPECT_EQ(parsed.refused_from, response.refused_from);
    EXPECT_EQ(parsed.view, response.view);
    EXPECT_EQ(parsed.current, response.current);
    EXPECT_EQ(parsed.number, response.number);
    EXPECT_EQ(parsed.ranges, response.ranges);
    EXPECT_EQ(parsed.ring, response.ring);
    EXPECT_EQ(parsed.keys_only, response.keys_only);
  }
}

TEST(ProtocolTest, TermsAreOfReadsAndWritesAndInRange) {
  constexpr size_t kOpcodeAt = 16, kTermsAt = 17;  // in the body of a request
  constexpr char kTermsBit = static_cast<char>(0x80);
  for (Request request : EveryRequest()) {
    if (IsRead(request.opcode) || IsWrite(request.opcode)) continue;
    std::string frame = Encode(request);
    frame[4 + kOpcodeAt] |= kTermsBit;
    Request parsed;
    EXPECT_FALSE(ParseRequest(Body(frame), &parsed).ok()) << OpcodeName(request.opcode);
  }
  Request request;
  request.opcode = Opcode::kGet;
  request.max_staleness_ms = 1;
  std::string frame = Encode(request);
  frame[4 + kTermsAt] = 0;
  EXPECT_FALSE(ParseRequest(Body(frame), &request).ok()) << "at most 0 ms old";
  Request put;
  put.opcode = Opcode::kPut;
  put.durability = WriteDurability::kSynced;
  for (const char durability : {0, 3, -1}) {
    std::string wrong = Encode(put);
    wrong[4 + kTermsAt] = durability;
    EXPECT_FALSE(ParseRequest(Body(wrong), &request).ok()) << int{durability};
  }

  Response response;
  response.opcode = Opcode::kGet;
  response.code = StatusCode::kUnavailable;
  response.staleness_ms = 7;
  std::string failed = Encode(response);
  ASSERT_TRUE(ParseResponse(Body(failed), &response).ok());
  failed[4 + 8] |= kTermsBit;
  EXPECT_FALSE(ParseResponse(Body(failed), &response).ok());
  Response stored;
  stored.opcode = Opcode::kPut;
  std::string durable = Encode(stored);
  durable[4 + 8] |= kTermsBit;
  EXPECT_FALSE(ParseResponse(Body(durable), &response).ok());
}

TEST(ProtocolTest, TruncatedAtEveryByteIsRefused) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encode(request);
    for (size_t bytes = 0; bytes < frame.size() - 4; ++bytes) {
      Request parsed;
      EXPECT_EQ(ParseRequest(Body(frame).first(bytes), &parsed).code(), StatusCode::kCorruption)
          << OpcodeName(request.opcode) << " cut to " << bytes;
    }
  }
  for (const Response& response : EveryResponse()) {
    const std::string frame = Encode(response);
    for (size_t bytes = 0; bytes < frame.size() - 4; ++bytes) {
      Response parsed;
      EXPECT_EQ(ParseResponse(Body(frame).first(bytes), &parsed).code(), StatusCode::kCorruption)
          << OpcodeName(response.opcode) << " cut to " << bytes;
    }
  }
}

TEST(ProtocolTest, BatchGivesItsRequestsBackInOrder) {
  const auto requests = EveryRequest();
  std::string frame;
  const size_t begin = BeginBatch(17, 3, &frame);
  for (const Request& request : requests) AppendRequest(request, &frame);
  EndBatch(begin, static_cast<uint32_t>(requests.size()), &frame);
  std::span<const std::byte> rest;
  const auto batch = ParseBatch(Body(frame), &rest);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->number, 17u);
  EXPECT_EQ(batch->view, 3u);
  ASSERT_EQ(batch->count, requests.size());
  for (const Request& request : requests) {
    Request parsed;
    ASSERT_TRUE(NextRequest(&rest, &parsed).ok());
    EXPECT_EQ(Encode(parsed), Encode(request));
  }
  EXPECT_TRUE(rest.empty());
  for (size_t bytes = 0; bytes < kBatchHeaderBytes - 4; ++bytes) {
    EXPECT_FALSE(ParseBatch(Body(frame).first(bytes), &rest).ok()) << bytes;
  }
  // One more than a batch may have.
  StoreLittle<uint32_t>(frame.data() + kBatchCountAt, kBatchRequestsMax + 1);
  EXPECT_FALSE(ParseBatch(Body(frame), &rest).ok());
}

TEST(ProtocolTest, TrailingBytesAreRefused) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encode(request) + "x";
    Request parsed;
    EXPECT_FALSE(ParseRequest(Body(frame), &parsed).ok()) << OpcodeName(request.opcode);
  }
}

// Each 32-bit word of each frame in turn becomes a huge number: no length or count is believed.
TEST(ProtocolTest, HostileLengthsAreRefusedWithoutAllocation) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encode(request);
    for (size_t at = 21; at + 4 <= frame.size(); ++at) {
      std::string hostile = frame;
      StoreLittle<uint32_t>(hostile.data() + at, 0xfffffff0);
      Request parsed;
      const Status status = ParseRequest(Body(hostile), &parsed);
      EXPECT_LE(parsed.keys.capacity() * sizeof(std::string_view), 16 * frame.size());
      if (status.ok()) {
        EXPECT_EQ(Encode(parsed), hostile);  // it was a value's bytes
      }
    }
  }
  for (const Response& response : EveryResponse()) {
    const std::string frame = Encode(response);
    for (size_t at = 14; at + 4 <= frame.size(); ++at) {
      std::string hostile = frame;
      StoreLittle<uint32_t>(hostile.data() + at, 0xfffffff0);
      Response parsed;
      const Status status = ParseResponse(Body(hostile), &parsed);
      if (status.ok()) {
        EXPECT_EQ(Encode(parsed), hostile);
      }
    }
  }
}

TEST(ProtocolTest, RandomBytesNeverParseToSomethingElse) {
  constexpr uint64_t kSeed = 20260101;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  const auto requests = EveryRequest();
  const auto responses = EveryResponse();
  for (int round = 0; round < 200'000; ++round) {
    std::string frame = random.OneIn(2) ? Encode(requests[random.Below(requests.size())])
                                        : Encode(responses[random.Below(responses.size())]);
    for (uint64_t flips = random.Below(4); flips > 0; --flips) {
      frame[4 + random.Below(frame.size() - 4)] = static_cast<char>(random.Next());
    }
    Request request;
    if (ParseRequest(Body(frame), &request).ok()) {
      EXPECT_EQ(Encode(request), frame);
    }
    Response response;
    if (ParseResponse(Body(frame), &response).ok()) {
      EXPECT_EQ(Encode(response), frame);
    }
  }
}

TEST(ProtocolTest, FrameIsFoundOnlyWhenComplete) {
  const std::string frame = Encode(EveryRequest().front());
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    const auto found = FindFrame(AsBytes(frame).first(bytes), kFrameBytesMax);
    EXPECT_EQ(found.state, FrameLookup::State::kIncomplete);
    if (bytes >= 4) {
      EXPECT_EQ(found.frame_bytes, frame.size());
    }
  }
  const std::string two = frame + frame;
  const auto found = FindFrame(AsBytes(two), kFrameBytesMax);
  ASSERT_EQ(found.state, FrameLookup::State::kComplete);
  EXPECT_EQ(found.frame_bytes, frame.size());
  EXPECT_EQ(found.body.size(), frame.size() - 4);
}

TEST(ProtocolTest, FrameOverTheLimitIsKnownFromItsFirstBytes) {
  std::string start(4, '\0');
  StoreLittle<uint32_t>(start.data(), kFrameBytesMax + 1);
  EXPECT_EQ(FindFrame(AsBytes(start), kFrameBytesMax).state, FrameLookup::State::kTooLong);
  EXPECT_EQ(FindFrame(AsBytes("GET / HTTP/1.1\r\n"), kFrameBytesMax).state,
            FrameLookup::State::kTooLong);
}

TEST(ProtocolTest, PatchedFieldsStandWhereTheConstantsSay) {
  std::string frame = Encode(EveryRequest().back());
  StoreLittle<uint64_t>(frame.data() + kRequestIdAt, 1);
  StoreLittle<uint32_t>(frame.data() + kRequestTreeAt, 3);
  StoreLittle<uint32_t>(frame.data() + kRequestDeadlineAt, 4);
  Request parsed;
  ASSERT_TRUE(ParseRequest(Body(frame), &parsed).ok());
  EXPECT_EQ(parsed.id, 1u);
  EXPECT_EQ(parsed.tree, 3u);
  EXPECT_EQ(parsed.deadline_ms, 4u);
}

TEST(ProtocolTest, LimitsAreCheckedBeforeSending) {
  const std::string long_key(kKeyBytesMax + 1, 'k'), long_value(kValueBytesMax + 1, 'v');
  Request request;
  request.opcode = Opcode::kPut;
  request.key = long_key;
  EXPECT_EQ(CheckLimits(request).ToString(),
            "invalid argument: a key of 65537 bytes; at most 65536 can be sent");
  request.key = "k";
  request.value = long_value;
  EXPECT_EQ(CheckLimits(request).ToString(),
            "invalid argument: a value of 16777217 bytes; at most 16777216 can be sent");
  request.value = std::string_view(long_value).substr(1);
  request.expected = request.value;
  request.key = std::string_view(long_key).substr(1);
  request.opcode = Opcode::kCompareAndSet;
  ASSERT_TRUE(CheckLimits(request).ok());
  Request parsed;
  const std::string largest = Encode(request);
  EXPECT_TRUE(ParseRequest(Body(largest), &parsed).ok());
}

TEST(ProtocolTest, AHelloCarriesAPasswordWhereThereIsOne) {
  std::string frame;
  AppendClientHello({.view = 12, .password = "secret"}, &frame);
  const auto hello = ParseClientHello(Body(frame));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->view, 12u);
  EXPECT_EQ(hello->password, "secret");
  for (size_t bytes = 0; bytes < Body(frame).size(); ++bytes) {
    EXPECT_FALSE(ParseClientHello(Body(frame).first(bytes)).ok()) << bytes;
  }
  frame.clear();
  AppendClientHello({.password = std::string(kPasswordBytesMax + 1, 'x')}, &frame);
  EXPECT_FALSE(ParseClientHello(Body(frame)).ok());
}

TEST(PasswordTest, SameIsOnlyWhatIsTheSame) {
  EXPECT_TRUE(SamePassword("", ""));
  EXPECT_TRUE(SamePassword("secret", "secret"));
  EXPECT_FALSE(SamePassword("secret", "secreu"));
  EXPECT_FALSE(SamePassword("secret", "secre"));
  EXPECT_FALSE(SamePassword("secret", std::string("secret\0", 7)));
  EXPECT_FALSE(SamePassword(std::string(513, 'x'), std::string(513, 'x')));
}

TEST(ProtocolTest, HelloMakesTheRoundTripAndIsStrict) {
  std::string frame;
  AppendClientHello({.version = kVersion, .view = 12}, &frame);
  auto client = ParseClientHello(Body(frame));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->view, 12u);
  for (size_t bytes = 0; bytes < frame.size() - 4; ++bytes) {
    EXPECT_FALSE(ParseClientHello(Body(frame).first(bytes)).ok()) << bytes;
  }
  frame.clear();
  AppendServerHello({.view = 3, .in_flight_max = 99, .instance = 5, .message = ""}, &frame);
  auto server = ParseServerHello(Body(frame));
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->view, 3u);
  EXPECT_EQ(server->in_flight_max, 99u);
  EXPECT_EQ(server->instance, 5u);
  for (size_t bytes = 0; bytes < frame.size() - 4; ++bytes) {
    EXPECT_FALSE(ParseServerHello(Body(frame).first(bytes)).ok()) << bytes;
  }
  EXPECT_EQ(ParseClientHello(AsBytes("SSH-2.0-OpenSSH_9.2")).status().ToString(),
            "corruption: the peer does not speak Farleaf's native protocol");
}

TEST(ProtocolTest, OtherVersionIsReadOnlyAsFarAsItIsFixed) {
  std::string frame;
  AppendClientHello({.version = 9, .view = 0}, &frame);
  auto client = ParseClientHello(AsBytes(frame + "fields of version 9").subspan(4));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->version, 9);
  frame.clear();
  ServerHello refusal;
  refusal.version = 9;
  refusal.code = StatusCode::kInvalidArgument;
  refusal.message = "speak 9";
  AppendServerHello(refusal, &frame);
  auto server = ParseServerHello(Body(frame).first(8 + 2 + 1 + 4 + 7));
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->version, 9);
  EXPECT_EQ(server->message, "speak 9");
}

}  // namespace
}  // namespace farleaf::client::protocol
