// MemcachedPeer: memcached's protocol on one connection without a socket or threads.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/frontend/memcached/connection.h"
#include "test/support/record_peer.h"

namespace farleaf::test {

struct MemcachedPeerParts {
  const server::Authenticator own_authenticator;
  server::memcached::Counters counted;
};

class MemcachedPeer final : private MemcachedPeerParts,
                            public RecordPeer,
                            public server::memcached::Environment {
 public:
  MemcachedPeer(dsm::Worker* worker, server::memcached::Limits limits,
                index::RangeIndex* tree = nullptr, std::vector<std::string> passwords = {});
  ~MemcachedPeer() override;

  // Environment.
  uint64_t DeadlineNs() override;
  bool AppendStats(std::string_view argument, std::string*) override;
  dsm::Task<Status> FlushAll(int64_t) override;

 private:
  server::memcached::Connection protocol_;
};

}  // namespace farleaf::test
