// RedisPeer: Redis' protocol on one connection without a socket or threads.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/redis/connection.h"
#include "test/support/record_peer.h"

namespace farleaf::test {

struct RedisPeerParts {
  const server::Authenticator own_authenticator;
  server::redis::Counters counted;
};

class RedisPeer final : private RedisPeerParts,
                        public RecordPeer,
                        public server::redis::Environment {
 public:
  RedisPeer(dsm::Worker* worker, server::redis::Limits limits, index::RangeIndex* tree = nullptr,
            std::vector<std::string> passwords = {})
      : RedisPeerParts{server::Authenticator(std::move(passwords)), {}},
        RecordPeer(worker, tree),
        Environment({this, &records(), &own_authenticator}, &counted),
        protocol_(this, limits, 1) {
    Open(&protocol_);
  }
  ~RedisPeer() override { Close(); }

  // Environment.
  uint64_t DeadlineNs() override { return UINT64_MAX; }
  void AppendInfo(std::string_view section, std::string* out) override {
    out->append("# ").append(section).append("\r\n");
  }
  std::vector<std::pair<std::string, std::string>> Settings() override {
    return {{"appendonly", "no"}, {"save", ""}};
  }
  dsm::Task<Status> FlushAll() override { return DeleteAllKeys(); }

 private:
  server::redis::Connection protocol_;
};

/// A request as clients send it.
inline std::string Request(const std::vector<std::string>& arguments) {
  std::string text = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string& argument : arguments) {
    text += "$" + std::to_string(argument.size()) + "\r\n" + argument + "\r\n";
  }
  return text;
}

}  // namespace farleaf::test
