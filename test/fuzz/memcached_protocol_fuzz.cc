// Whatever bytes a peer sends over memcached's text protocol: what is answered does not depend on how they are
// cut, nor on how the answers are read; the connection ends or goes on within its limits, and every record that
// it leaves parses.
//
// The first byte says how the stream is cut and its answers read. Inputs to start from: corpus/memcached.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dsm/base/random.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/memcached_peer.h"

namespace farleaf::test {
namespace {

constexpr server::memcached::Limits kLimits = {
    .line_bytes_max = 600, .value_bytes_max = 300, .out_bytes_max = 200};

struct Place {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
};

void CheckRecords(const MapIndex& index) {
  for (const auto& [key, value] : index.Content()) {
    const auto record = server::ParseRecord(value);
    FARLEAF_CHECK(record.ok() && !key.empty() && key[0] == server::kUserKeySpace, value.size());
    FARLEAF_CHECK(key.size() <= 1 + server::memcached::kKeyBytesMax, key.size());
    FARLEAF_CHECK(record->data.size() <= kLimits.value_bytes_max, record->data.size());
  }
}

std::string InPieces(Place& place, std::string_view stream, uint64_t seed) {
  Random random(seed);
  MemcachedPeer peer(place.worker.get(), kLimits);
  for (;;) {
    const size_t bytes = 1 + random.Below(random.OneIn(4) ? 300 : 4);
    if (!peer.Send(&stream, bytes)) break;
    FARLEAF_CHECK(peer.connection().output().size() < 100'000);
    peer.Receive(random.Below(300));
  }
  peer.End();
  CheckRecords(peer.index());
  return peer.received();
}

}  // namespace
}  // namespace farleaf::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  if (size == 0) return 0;
  static Place place;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  MemcachedPeer whole(place.worker.get(), kLimits);
  const std::string expected = whole.Exchange(stream, SIZE_MAX);
  CheckRecords(whole.index());
  const std::string answers = InPieces(place, stream, data[0]);
  FARLEAF_CHECK(answers == expected, answers, expected);
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(FARLEAF_CORPUS "/memcached")) {
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
