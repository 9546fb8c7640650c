// Whatever bytes a peer sends over memcached's text protocol: what is answered does not depend on how they are
// cut, nor on how the answers are read; the connection ends or goes on within its limits, and every record that
// it leaves parses.
//
// The first byte says how the stream is cut and its answers read, and whether a password is asked for. Inputs to start from: corpus/memcached.
#include <set>
#include <sstream>

#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"
#include "test/fuzz/text_protocol_fuzz.h"
#include "test/support/memcached_peer.h"

namespace farleaf::test {
namespace {

constexpr server::memcached::Limits kLimits = {
    .line_bytes_max = 600, .value_bytes_max = 300, .out_bytes_max = 200};

void CheckRecords(const MapIndex& index) {
  for (const auto& [key, value] : index.Content()) {
    const auto record = server::ParseRecord(value);
    FARLEAF_CHECK(record.ok() && !key.empty() && key[0] == server::kUserKeySpace, value.size());
    FARLEAF_CHECK(key.size() <= 1 + server::memcached::kKeyBytesMax, key.size());
    FARLEAF_CHECK(record->data.size() <= kLimits.value_bytes_max, record->data.size());
  }
}

/// Each verb is in one of them, so that mutations start from it.
void CheckSeeds(const std::vector<std::string>& seeds) {
  std::set<std::string> words;
  for (const std::string& seed : seeds) {
    std::istringstream stream(seed.substr(1));
    for (std::string word; stream >> word;) words.insert(word);
  }
  for (size_t verb = 1; verb < server::memcached::kVerbCount; ++verb) {
    const auto name = VerbName(static_cast<server::memcached::Verb>(verb));
    FARLEAF_CHECK(words.contains(std::string(name)), name);
  }
}

}  // namespace
}  // namespace farleaf::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  static TextProtocolTarget<MemcachedPeer, farleaf::server::memcached::Limits> target(kLimits,
                                                                                      CheckRecords);
  target.Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = farleaf::test::ReadCorpus("memcached");
  farleaf::test::CheckSeeds(seeds);
  return seeds;
}
