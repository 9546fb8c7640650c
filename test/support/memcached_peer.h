// MemcachedPeer: memcached's protocol on one connection without a socket or threads.
//
// Thread rule: one thread.
#pragma once

#include "server/frontend/memcached/connection.h"
#include "test/support/record_peer.h"

namespace farleaf::test {

class MemcachedPeer final : public RecordPeer, public server::memcached::Environment {
 public:
  MemcachedPeer(dsm::Worker* worker, server::memcached::Limits limits)
      : RecordPeer(worker), protocol_(this, limits) {
    Open(&protocol_);
  }
  ~MemcachedPeer() override { Close(); }

  // Environment.
  server::ServingThread& thread() override { return *this; }
  const server::RecordStore& store() override { return records(); }
  const server::Authenticator& authenticator() const override { return authenticator_; }
  server::memcached::Counters& counters() override { return counters_; }
  uint64_t DeadlineNs() override { return UINT64_MAX; }
  bool AppendStats(std::string_view argument, std::string*) override {
    return argument.empty() || argument == "items";
  }
  dsm::Task<Status> FlushAll(int64_t) override { return DeleteAllKeys(); }

 private:
  const server::Authenticator authenticator_;
  server::memcached::Counters counters_;
  server::memcached::Connection protocol_;
};

}  // namespace farleaf::test
