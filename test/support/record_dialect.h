// RecordDialect: how clients of memcached and of Redis say the same, for tests of what holds of both.
//
// Thread rule: value types.
#pragma once

#include <string>

#include "test/support/text_client.h"

namespace farleaf::test {

struct RecordDialect {
  enum class Protocol : uint8_t { kMemcached, kRedis } protocol = Protocol::kMemcached;

  bool redis() const { return protocol == Protocol::kRedis; }
  std::string name() const { return redis() ? "Redis" : "Memcached"; }

  std::string Set(const std::string& key, const std::string& value) const {
    const std::string bytes = std::to_string(value.size()), end = "\r\n";
    return redis() ? "*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + end + key + "\r\n$" +
                         bytes + end + value + end
                   : "set " + key + " 0 0 " + bytes + end + value + end;
  }
  std::string stored() const { return redis() ? "+OK\r\n" : "STORED\r\n"; }
  std::string Get(const std::string& key) const {
    return (redis() ? "GET " : "get ") + key + "\r\n";
  }
  std::string Found(const std::string& key, const std::string& value) const {
    const std::string bytes = std::to_string(value.size()), end = "\r\n";
    return redis() ? "$" + bytes + end + value + end
                   : "VALUE " + key + " 0 " + bytes + end + value + "\r\nEND\r\n";
  }
  std::string absent() const { return redis() ? "$-1\r\n" : "END\r\n"; }
  /// The beginning of a Set, without its end.
  std::string HalfASet(const std::string& key) const {
    const std::string whole = Set(key, std::string(100, 'h'));
    return whole.substr(0, whole.size() - 50);
  }
  std::string ping() const { return redis() ? "PING\r\n" : "mn\r\n"; }
  std::string pong() const { return redis() ? "+PONG\r\n" : "MN\r\n"; }
  std::string quit() const { return redis() ? "QUIT\r\n" : "quit\r\n"; }
  std::string farewell() const { return redis() ? "+OK\r\n" : ""; }
  std::string too_many() const {
    return redis() ? "-ERR max number of clients reached\r\n"
                   : "ERROR Too many open connections\r\n";
  }
  std::string truncated() const {
    return redis() ? "-ERR Protocol error: the stream ended in the middle of a request\r\n"
                   : "CLIENT_ERROR the stream ended in the middle of a request\r\n";
  }
  std::string Ask(TextClient& client, const std::string& request) const {
    return redis() ? client.AskRedis(request) : client.Ask(request);
  }
};

}  // namespace farleaf::test
