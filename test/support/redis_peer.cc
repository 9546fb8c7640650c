#include "test/support/redis_peer.h"

#include <utility>

namespace farleaf::test {

RedisPeer::RedisPeer(dsm::Worker* worker, server::redis::Limits limits, index::RangeIndex* tree,
                     std::vector<std::string> passwords)
    : RedisPeerParts{server::Authenticator(std::move(passwords)), {}},
      RecordPeer(worker, tree),
      Environment({this, &records(), &own_authenticator}, &counted),
      protocol_(this, limits, 1) {
  Open(&protocol_);
}

RedisPeer::~RedisPeer() { Close(); }

uint64_t RedisPeer::DeadlineNs() { return UINT64_MAX; }

void RedisPeer::AppendInfo(std::string_view section, std::string* out) {
  out->append("# ").append(section).append("\r\n");
}

std::vector<std::pair<std::string, std::string>> RedisPeer::Settings() {
  return {{"appendonly", "no"}, {"save", ""}};
}

dsm::Task<Status> RedisPeer::FlushAll() { return DeleteAllKeys(); }

std::string Request(const std::vector<std::string>& arguments) {
  std::string text = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string& argument : arguments) {
    text += "$" + std::to_string(argument.size()) + "\r\n" + argument + "\r\n";
  }
  return text;
}

}  // namespace farleaf::test
