// Whatever bytes a peer sends over Redis' protocol: what is answered does not depend on how they are cut, nor on how
// the answers are read; the connection ends or goes on within its limits, and every entry that it leaves parses.
//
// The first byte says how the stream is cut and its answers read. Inputs to start from: corpus/redis.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dsm/base/random.h"
#include "server/records/sorted_set.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

constexpr server::redis::Limits kLimits = {.value_bytes_max = 300,
                                           .request_bytes_max = 700,
                                           .reply_bytes_max = 2'000,
                                           .out_bytes_max = 200};

struct Place {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
};

void CheckEntries(const MapIndex& index) {
  for (const auto& [key, value] : index.Content()) {
    FARLEAF_CHECK(!key.empty());
    if (key[0] == server::kMemberSpace) {
      const auto member = server::ParseMemberKey(key);
      FARLEAF_CHECK(member.has_value(), key.size());
      const bool score = member->kind == server::EntryKind::kScore;
      FARLEAF_CHECK(!score || server::ParseScoreClaims(value).has_value(), value.size());
      continue;
    }
    const auto record = server::ParseRecord(value);
    FARLEAF_CHECK(record.ok(), value.size());
    FARLEAF_CHECK(key[0] == server::kUserKeySpace || key[0] == server::kCursorSpace);
    FARLEAF_CHECK(record->data.size() <= 1'100, record->data.size());
    const bool string = record->type == server::RecordType::kString;
    FARLEAF_CHECK(string || server::ParseHead(*record).ok());
  }
}

std::string InPieces(Place& place, std::string_view stream, uint64_t seed) {
  Random random(seed);
  RedisPeer peer(place.worker.get(), kLimits);
  for (;;) {
    const size_t bytes = 1 + random.Below(random.OneIn(4) ? 300 : 4);
    if (!peer.Send(&stream, bytes)) break;
    FARLEAF_CHECK(peer.connection().output().size() < 100'000);
    peer.Receive(random.Below(300));
  }
  peer.End();
  CheckEntries(peer.index());
  return peer.received();
}

/// Cursors are drawn at random: streams that ask for one are not compared.
bool DrawsCursors(std::string_view stream) {
  std::string lower(stream);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(c | 0x20); });
  return lower.find("scan") != std::string::npos;
}

}  // namespace
}  // namespace farleaf::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  if (size == 0) return 0;
  static Place place;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  RedisPeer whole(place.worker.get(), kLimits);
  const std::string expected = whole.Exchange(stream, SIZE_MAX);
  CheckEntries(whole.index());
  const std::string answers = InPieces(place, stream, data[0]);
  FARLEAF_CHECK(DrawsCursors(stream) || answers == expected, answers, expected);
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(FARLEAF_CORPUS "/redis")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}
