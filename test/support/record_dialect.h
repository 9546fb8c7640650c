// RecordDialect: how clients of memcached and of Redis say the same, for tests of what holds of both.
//
// Thread rule: value types.
#pragma once

#include <cstdint>
#include <string>

#include "test/support/text_client.h"

namespace farleaf::test {

struct RecordDialect {
  enum class Protocol : uint8_t { kMemcached, kRedis } protocol = Protocol::kMemcached;

  bool redis() const { return protocol == Protocol::kRedis; }
  std::string name() const;

  std::string Set(const std::string& key, const std::string& value) const;
  std::string stored() const;
  std::string Get(const std::string& key) const;
  std::string Found(const std::string& key, const std::string& value) const;
  std::string absent() const;
  /// The beginning of a Set, without its end.
  std::string HalfASet(const std::string& key) const;
  std::string ping() const { return redis() ? "PING\r\n" : "mn\r\n"; }
  std::string pong() const { return redis() ? "+PONG\r\n" : "MN\r\n"; }
  std::string quit() const { return redis() ? "QUIT\r\n" : "quit\r\n"; }
  std::string farewell() const { return redis() ? "+OK\r\n" : ""; }
  std::string too_many() const;
  std::string truncated() const;
  std::string Ask(TextClient& client, const std::string& request) const;
};

}  // namespace farleaf::test
