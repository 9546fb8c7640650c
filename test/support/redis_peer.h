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
            std::vector<std::string> passwords = {});
  ~RedisPeer() override;

  // Environment.
  uint64_t DeadlineNs() override;
  void AppendInfo(std::string_view section, std::string* out) override;
  std::vector<std::pair<std::string, std::string>> Settings() override;
  dsm::Task<Status> FlushAll() override;

 private:
  server::redis::Connection protocol_;
};

/// A request as clients send it.
std::string Request(const std::vector<std::string>& arguments);

}  // namespace farleaf::test
