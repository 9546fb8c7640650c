// Whatever bytes a peer sends over Redis' protocol: what is answered does not depend on how they are cut, nor on how
// the answers are read; the connection ends or goes on within its limits, and every entry that it leaves parses.
//
// The first byte says how the stream is cut and its answers read, and whether a password is asked for. Inputs to start from: corpus/redis.
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "server/frontend/redis/command.h"
#include "server/records/sorted_set.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"
#include "test/fuzz/text_protocol_fuzz.h"
#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

constexpr server::redis::Limits kLimits = {.value_bytes_max = 300,
                                           .request_bytes_max = 700,
                                           .reply_bytes_max = 2'000,
                                           .out_bytes_max = 200};

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
    // Behind an AUTH in one piece, what was read when a password was still to be said: up to 2 KiB.
    FARLEAF_CHECK(record->data.size() <= 3'200, record->data.size());
    const bool string = record->type == server::RecordType::kString;
    FARLEAF_CHECK(string || server::ParseHead(*record).ok());
  }
}

/// Cursors of collections tell their generation, which is drawn; those of keys are the same each time.
bool DrawsCursors(std::string_view stream) {
  std::string lower(stream);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(c | 0x20); });
  return lower.find("hscan") != std::string::npos || lower.find("zscan") != std::string::npos;
}

/// Each command that is served is in one of them, so that mutations start from it.
void CheckSeeds(const std::vector<std::string>& seeds) {
  std::set<std::string> words;
  for (const std::string& seed : seeds) {
    std::string word;
    for (const char c : seed + " ") {
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word += static_cast<char>(c | 0x20);
      } else {
        words.insert(std::exchange(word, {}));
      }
    }
  }
  for (const auto& command : server::redis::Commands()) {
    FARLEAF_CHECK(words.contains(std::string(command.name)), command.name);
  }
}

}  // namespace
}  // namespace farleaf::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  static TextProtocolTarget<RedisPeer, farleaf::server::redis::Limits> target(kLimits, CheckEntries,
                                                                              DrawsCursors);
  target.Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = farleaf::test::ReadCorpus("redis");
  farleaf::test::CheckSeeds(seeds);
  return seeds;
}
