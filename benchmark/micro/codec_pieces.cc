#include "benchmark/micro/codec_pieces.h"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "benchmark/micro/pieces.h"
#include "client/protocol.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "index/blink/node.h"
#include "server/frontend/memcached/command.h"
#include "server/frontend/redis/request.h"

namespace farleaf::micro {
namespace {

namespace protocol = client::protocol;

constexpr size_t kRoomBytes = 4096;
const std::string kCodecKey = "user000000000001";
const std::string kCodecValue(100, 'v');

protocol::Request PutRequest() {
  protocol::Request request;
  request.id = 1;
  request.opcode = protocol::Opcode::kPut;
  request.key = kCodecKey;
  request.value = kCodecValue;
  return request;
}

protocol::Response GetResponse() {
  protocol::Response response;
  response.id = 1;
  response.opcode = protocol::Opcode::kGet;
  response.value = kCodecValue;
  return response;
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Appends again and again to a string that is emptied when its room is used up.
template <typename Append>
void RunAppend(benchmark::State& state, const Append& append) {
  std::string out;
  out.reserve(kRoomBytes);
  for (auto _ : state) {
    if (out.size() > kRoomBytes / 2) out.clear();
    append(&out);
    benchmark::DoNotOptimize(out.data());
  }
}

void NativeRequestAppend(benchmark::State& state) {
  const protocol::Request request = PutRequest();
  RunAppend(state, [&](std::string* out) { protocol::AppendRequest(request, out); });
}

void NativeRequestParse(benchmark::State& state) {
  std::string text;
  protocol::AppendRequest(PutRequest(), &text);
  protocol::Request request;
  for (auto _ : state) {
    std::span<const std::byte> rest = BytesOf(text);
    const Status parsed = protocol::NextRequest(&rest, &request);
    FARLEAF_CHECK(parsed.ok() && request.value.size() == kCodecValue.size(), parsed);
    benchmark::ClobberMemory();
  }
  state.counters["bytes"] = static_cast<double>(text.size());
}

void NativeResponseAppend(benchmark::State& state) {
  const protocol::Response response = GetResponse();
  RunAppend(state, [&](std::string* out) { protocol::AppendResponse(response, out); });
}

void NativeResponseParse(benchmark::State& state) {
  std::string text;
  protocol::AppendResponse(GetResponse(), &text);
  for (auto _ : state) {
    const auto frame = protocol::FindFrame(BytesOf(text), protocol::kFrameBytesMax);
    protocol::Response response;
    const Status parsed = protocol::ParseResponse(frame.body, &response);
    FARLEAF_CHECK(parsed.ok() && response.value->size() == kCodecValue.size(), parsed);
    benchmark::ClobberMemory();
  }
  state.counters["bytes"] = static_cast<double>(text.size());
}

void RedisRequestRead(benchmark::State& state) {
  using server::redis::RequestReader;
  const std::string text =
      "*3\r\n$3\r\nSET\r\n$16\r\n" + kCodecKey + "\r\n$100\r\n" + kCodecValue + "\r\n";
  RequestReader reader({});
  for (auto _ : state) {
    FARLEAF_CHECK(reader.Read(text) == RequestReader::Outcome::kRequest, reader.error());
    benchmark::DoNotOptimize(reader.arguments().data());
    benchmark::ClobberMemory();
  }
  state.counters["bytes"] = static_cast<double>(text.size());
}

void MemcachedCommandParse(benchmark::State& state) {
  const std::string line = "set " + kCodecKey + " 0 0 100";
  for (auto _ : state) {
    const auto command = server::memcached::ParseCommand(line, {});
    FARLEAF_CHECK(command.value_bytes == kCodecValue.size());
    benchmark::DoNotOptimize(command);
    benchmark::ClobberMemory();
  }
  state.counters["bytes"] = static_cast<double>(line.size());
}

std::string Key8(uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number);
  return key;
}

/// An internal node of fixed8 that is two thirds full, its separators `step` apart.
std::vector<std::byte> MakeInternalNode(const index::Geometry& geometry, uint64_t step) {
  std::vector<std::byte> image(geometry.node_bytes - 8);
  index::Node node(geometry, image);
  node.Init({.tree = 1, .level = 1});
  const size_t children = geometry.node_bytes / 16 * 2 / 3;
  for (size_t i = 0; i < children; ++i) {
    FARLEAF_CHECK(node.InsertChild(i, Key8(i * step), dsm::GlobalAddress(0, 4096 * (i + 1))), i);
  }
  node.Seal(1);
  return image;
}

// Of 64 MiB of nodes one at random after the other, for random keys.
void NodeSearch(benchmark::State& state) {
  const auto geometry = index::Geometry::Fixed8();
  constexpr uint64_t kStep = uint64_t{1} << 32;
  const std::vector<std::byte> one = MakeInternalNode(geometry, kStep);
  const size_t count = (size_t{64} << 20) / geometry.node_bytes;
  std::vector<std::byte> nodes(count * geometry.node_bytes);
  for (size_t i = 0; i < count; ++i) {
    std::copy(one.begin(), one.end(),
              nodes.begin() + static_cast<ptrdiff_t>(i * geometry.node_bytes));
  }
  Random random(kSeed);
  const size_t children = index::ConstNode(geometry, one).count();
  char key[8];
  size_t found = 0;
  for (auto _ : state) {
    // As in a descent, which node is next hangs on what the search before found.
    const size_t next = random.Below(count) + (found >> 63);
    const index::ConstNode node(geometry,
                                std::span(nodes).subspan(next * geometry.node_bytes, one.size()));
    StoreBig64(key, random.Below(kStep * children));
    found = node.ChildIndexFor({key, sizeof key});
    benchmark::DoNotOptimize(found);
  }
}

}  // namespace

void RegisterCodecPieces() {
  benchmark::RegisterBenchmark("native_request_append", NativeRequestAppend);
  benchmark::RegisterBenchmark("native_request_parse", NativeRequestParse);
  benchmark::RegisterBenchmark("native_response_append", NativeResponseAppend);
  benchmark::RegisterBenchmark("native_response_parse", NativeResponseParse);
  benchmark::RegisterBenchmark("redis_request_read", RedisRequestRead);
  benchmark::RegisterBenchmark("memcached_command_parse", MemcachedCommandParse);
  benchmark::RegisterBenchmark("node_search", NodeSearch);
}

}  // namespace farleaf::micro
