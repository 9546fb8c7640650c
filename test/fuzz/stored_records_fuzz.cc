// Whatever bytes lie in the pool or on the disk where records belong: parsers take them or say what is wrong, and what
// they take encodes to the same bytes again; commands of both protocols on such rows are answered, one by one, and sweeps
// come to their end.
//
// The first byte chooses: a record, a member's key, a score or its claims, or rows: { bytes of the key(1) key bytes of the
// value(2, little-endian) value }. Inputs to start from: corpus/stored_records.
#include <set>
#include <string>
#include <utility>

#include "dsm/base/bytes.h"
#include "server/records/member_sweep.h"
#include "server/records/sorted_set.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/memcached_peer.h"
#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

using Rows = std::vector<std::pair<std::string_view, std::string_view>>;
enum class Parser : uint8_t { kRecord, kMemberKey, kScore, kRows };
constexpr uint8_t kParsers = 4;

void ParseAsRecord(std::string_view bytes) {
  const auto record = server::ParseRecord(bytes);
  if (!record.ok()) {
    FARLEAF_CHECK(record.status().code() == StatusCode::kCorruption, record.status());
    return;
  }
  std::string again;
  AppendRecord(*record, {}, &again);
  FARLEAF_CHECK(again == bytes, again.size(), bytes.size());
  const auto head = server::ParseHead(*record);
  FARLEAF_CHECK(!head.ok() || record->type != server::RecordType::kString);
}

void ParseAsMemberKey(std::string_view bytes) {
  const auto key = server::ParseMemberKey(bytes);
  if (!key) return;
  const std::string prefix = server::MemberPrefix(key->collection, key->generation, key->kind);
  FARLEAF_CHECK(prefix + std::string(key->rest) == bytes, prefix.size(), bytes.size());
  FARLEAF_CHECK(key->prefix_bytes < bytes.size(), key->prefix_bytes);
}

void ParseAsScore(std::string_view bytes) {
  (void)server::ParseScoreClaims(bytes);
  const auto score = server::ParseScore(bytes);
  FARLEAF_CHECK(!score.ok() || server::ScoreBytes(*score) == bytes, bytes.size());
}

Rows ParseRows(std::string_view bytes) {
  Rows rows;
  while (!bytes.empty()) {
    const auto key_bytes = static_cast<uint8_t>(bytes[0]);
    const std::string_view key = bytes.substr(1, key_bytes);
    bytes.remove_prefix(1 + key.size());
    if (bytes.size() < 2) break;
    const auto value_bytes = LoadLittle<uint16_t>(bytes.data());
    const std::string_view value = bytes.substr(2, value_bytes);
    bytes.remove_prefix(2 + value.size());
    if (!key.empty()) rows.emplace_back(key, value);
  }
  return rows;
}

/// Reads, then changes, then deletes; '?' is the key.
constexpr const char* kRedisCommands[] = {"GET ?",
                                          "STRLEN ?",
                                          "TYPE ?",
                                          "PTTL ?",
                                          "PEXPIRETIME ?",
                                          "EXISTS ?",
                                          "MGET ? ? k",
                                          "GETRANGE ? 0 -1",
                                          "HGET ? f",
                                          "HMGET ? f g",
                                          "HGETALL ?",
                                          "HLEN ?",
                                          "HSCAN ? 0 COUNT 1",
                                          "ZSCORE ? m",
                                          "ZCARD ?",
                                          "ZRANGE ? 0 -1 WITHSCORES",
                                          "ZREVRANGE ? 0 1",
                                          "ZSCAN ? 0",
                                          "ZRANGEBYSCORE ? -inf +inf WITHSCORES LIMIT 0 5",
                                          "ZRANGEBYLEX ? - +",
                                          "ZCOUNT ? 0 5",
                                          "SETRANGE ? 3 x",
                                          "APPEND ? 1",
                                          "INCR ?",
                                          "INCRBYFLOAT ? 1.5",
                                          "GETEX ? PERSIST",
                                          "HSET ? f 1 g 2",
                                          "HINCRBY ? f 1",
                                          "HSETNX ? h 1",
                                          "HDEL ? f none",
                                          "ZADD ? 3 m 4 n",
                                          "ZADD ? XX GT INCR 1 m",
                                          "ZINCRBY ? 1 m",
                                          "ZREM ? m none",
                                          "HGETALL ?",
                                          "ZRANGE ? 0 -1",
                                          "EXPIRE ? 100",
                                          "GETSET ? x",
                                          "GETDEL ?",
                                          "HSET ? f 1",
                                          "DEL ?",
                                          "ZADD ? 1 m",
                                          "SET ? x GET"};
constexpr const char* kRedisServerCommands[] = {
    "DBSIZE",           "SCAN 0 COUNT 2",    "SCAN 1",
    "SCAN 0 TYPE hash", "RANGE - + LIMIT 9", "RANGE - + REV KEYS"};
constexpr const char* kMemcachedCommands[] = {"get ? k\r\n",
                                              "gets ?\r\n",
                                              "mg ? t f c s v k\r\n",
                                              "me ?\r\n",
                                              "gat 0 ?\r\n",
                                              "mg ? N30 R30 v\r\n",
                                              "touch ? 100\r\n",
                                              "append ? 0 0 1\r\n1\r\n",
                                              "prepend ? 0 0 1\r\n1\r\n",
                                              "incr ? 1\r\n",
                                              "ma ? v MD\r\n",
                                              "cas ? 0 0 1 5\r\nx\r\n",
                                              "ms ? 1 I C5\r\nx\r\n",
                                              "replace ? 0 0 1\r\nx\r\n",
                                              "md ? I T30\r\n",
                                              "mg ? v\r\n",
                                              "add ? 0 0 1\r\nx\r\n",
                                              "set ? 0 0 1\r\nx\r\n",
                                              "delete ?\r\n"};

/// Rows in a map, both protocols on it, and its sweeps.
class StoredRows {
 public:
  StoredRows(dsm::Worker* worker, const Rows& rows)
      : worker_(*worker),
        redis_(worker, server::redis::Limits{.value_bytes_max = 1'000, .reply_bytes_max = 20'000}),
        memcached_(worker, server::memcached::Limits{.value_bytes_max = 1'000}, &redis_.index()) {
    dsm::FabricCounts counts;
    dsm::OpContext op{worker_, counts};
    for (const auto& [key, value] : rows) {
      FARLEAF_CHECK(worker_.Run(redis_.index().Put(op, key, value)).ok());
    }
  }
  std::string AskRedis(std::string_view command, std::string_view key) {
    std::vector<std::string> words;
    for (std::string_view rest = command; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      words.emplace_back(word == "?" ? key : word);
    }
    return Behind(redis_.Ask(Request(words) + Request({"ECHO", "last"})), "$4\r\nlast\r\n",
                  command);
  }
  std::string AskMemcached(std::string_view command, std::string_view key) {
    const size_t at = command.find('?');
    std::string text(command.substr(0, at));
    text.append(key).append(command.substr(at + 1)).append("mn\r\n");
    return Behind(memcached_.Ask(text), "MN\r\n", command);
  }
  void Sweep() {
    constexpr uint64_t kAbandonedMs = 600'000;
    const server::RecordStore store(&redis_.index(), &redis_.wall());
    redis_.wall().AdvanceNs(2 * kAbandonedMs * kNsPerMs);
    dsm::FabricCounts counts;
    const server::WalkContext walk{worker_, counts, 1'000'000, [] { return false; }};
    const server::PacedWalk::Options options{.turn_s = 1};
    server::ExpirySweep records(&store, std::string(1, server::kUserKeySpace),
                                server::EndOfPrefix(std::string(1, server::kCursorSpace)), options,
                                kAbandonedMs);
    server::MemberSweep members(&store, options, kAbandonedMs);
    // What is corrupt it may tell of, once or more; the turn comes to its end.
    (void)worker_.Run(records.Step(walk, kNsPerSecond));
    (void)worker_.Run(members.Step(walk, kNsPerSecond));
    FARLEAF_CHECK(records.counts().turns == 1 && members.counts().turns == 1);
  }

 private:
  /// The answer in front of `last`, which is there.
  static std::string Behind(std::string answer, std::string_view last, std::string_view command) {
    FARLEAF_CHECK(answer.ends_with(last) && answer.size() > last.size(), command, answer);
    answer.resize(answer.size() - last.size());
    return answer;
  }

  dsm::Worker& worker_;
  RedisPeer redis_;
  MemcachedPeer memcached_;
};

/// The keys that users name in `rows`, and one that is not there.
std::set<std::string> UserKeys(const Rows& rows) {
  std::set<std::string> keys = {"absent"};
  for (const auto& [key, value] : rows) {
    if (key[0] == server::kUserKeySpace) keys.emplace(key.substr(1));
    const auto member = server::ParseMemberKey(key);
    if (member && keys.size() < 8) keys.insert(member->collection);
  }
  return keys;
}

void AskAll(dsm::Worker* worker, const Rows& rows) {
  const std::set<std::string> keys = UserKeys(rows);
  StoredRows swept(worker, rows), unswept(worker, rows);
  swept.Sweep();
  for (const char* const command : kRedisServerCommands) unswept.AskRedis(command, {});
  for (const std::string& key : keys) {
    if (server::memcached::IsKey(key)) {
      for (const char* const command : kMemcachedCommands) swept.AskMemcached(command, key);
    }
    for (const char* const command : kRedisCommands) unswept.AskRedis(command, key);
  }
  swept.Sweep();
  unswept.Sweep();
  unswept.AskRedis("FLUSHALL", {});
}

dsm::Worker* OneWorker() {
  static MonotonicClock clock;
  static MapTreeHost host(&clock);
  static const std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
  return worker.get();
}

/// The corpus has a record of each type, each mark and each kind of entry, well-formed, so that mutations start from them;
/// and rows in which collections are found to have members.
void CheckSeeds(const std::vector<std::string>& seeds) {
  std::set<server::RecordType> types;
  std::set<server::EntryKind> kinds;
  bool stale = false, won = false, head = false, claims = false, score = false;
  std::string answers;
  for (const std::string& seed : seeds) {
    FARLEAF_CHECK(!seed.empty() && static_cast<uint8_t>(seed[0]) < kParsers);
    const std::string_view bytes = std::string_view(seed).substr(1);
    const auto parser = static_cast<Parser>(seed[0]);
    const auto record = server::ParseRecord(bytes);
    if (parser == Parser::kRecord && record.ok()) {
      types.insert(record->type);
      stale |= record->stale;
      won |= record->won;
      head |= server::ParseHead(*record).ok();
    }
    const auto member = server::ParseMemberKey(bytes);
    if (parser == Parser::kMemberKey && member) kinds.insert(member->kind);
    if (parser == Parser::kScore) {
      claims |= server::ParseScoreClaims(bytes).has_value();
      score |= server::ParseScore(bytes).ok();
    }
    if (parser != Parser::kRows) continue;
    StoredRows stored(OneWorker(), ParseRows(bytes));
    for (const char* const command : {"HGETALL h", "ZRANGE z 0 -1 WITHSCORES", "GET n", "SCAN 7"}) {
      answers += stored.AskRedis(command, {});
    }
  }
  FARLEAF_CHECK(types.size() == 3 && kinds.size() == 3, types.size(), kinds.size());
  FARLEAF_CHECK(stale && won && head && claims && score);
  for (const std::string_view answer :
       {"*4\r\n$1\r\nf\r\n$1\r\nv\r\n$1\r\ng\r\n$1\r\nw\r\n",
        "*4\r\n$1\r\nm\r\n$4\r\n-1.5\r\n$1\r\no\r\n$1\r\n2\r\n", "$2\r\n41\r\n",
        "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nn\r\n$1\r\nz\r\n"}) {
    FARLEAF_CHECK(answers.find(answer) != std::string::npos, answer, answers);
  }
}

}  // namespace
}  // namespace farleaf::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (static_cast<Parser>(data[0] % kParsers)) {
    case Parser::kRecord:
      ParseAsRecord(bytes);
      break;
    case Parser::kMemberKey:
      ParseAsMemberKey(bytes);
      break;
    case Parser::kScore:
      ParseAsScore(bytes);
      break;
    case Parser::kRows:
      AskAll(OneWorker(), ParseRows(bytes));
      break;
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = farleaf::test::ReadCorpus("stored_records");
  farleaf::test::CheckSeeds(seeds);
  return seeds;
}
