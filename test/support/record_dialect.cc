#include "test/support/record_dialect.h"

namespace farleaf::test {

std::string RecordDialect::name() const { return redis() ? "Redis" : "Memcached"; }

std::string RecordDialect::Set(const std::string& key, const std::string& value) const {
  const std::string bytes = std::to_string(value.size()), end = "\r\n";
  return redis() ? "*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + end + key + "\r\n$" +
                       bytes + end + value + end
                 : "set " + key + " 0 0 " + bytes + end + value + end;
}

std::string RecordDialect::stored() const { return redis() ? "+OK\r\n" : "STORED\r\n"; }

std::string RecordDialect::Get(const std::string& key) const {
  return (redis() ? "GET " : "get ") + key + "\r\n";
}

std::string RecordDialect::Found(const std::string& key, const std::string& value) const {
  const std::string bytes = std::to_string(value.size()), end = "\r\n";
  return redis() ? "$" + bytes + end + value + end
                 : "VALUE " + key + " 0 " + bytes + end + value + "\r\nEND\r\n";
}

std::string RecordDialect::absent() const { return redis() ? "$-1\r\n" : "END\r\n"; }

std::string RecordDialect::HalfASet(const std::string& key) const {
  const std::string whole = Set(key, std::string(100, 'h'));
  return whole.substr(0, whole.size() - 50);
}

std::string RecordDialect::too_many() const {
  return redis() ? "-ERR max number of clients reached\r\n" : "ERROR Too many open connections\r\n";
}

std::string RecordDialect::truncated() const {
  return redis() ? "-ERR Protocol error: the stream ended in the middle of a request\r\n"
                 : "CLIENT_ERROR the stream ended in the middle of a request\r\n";
}

std::string RecordDialect::Ask(TextClient& client, const std::string& request) const {
  return redis() ? client.AskRedis(request) : client.Ask(request);
}

}  // namespace farleaf::test
