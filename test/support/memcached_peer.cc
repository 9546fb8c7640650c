#include "test/support/memcached_peer.h"

#include <utility>

namespace farleaf::test {

MemcachedPeer::MemcachedPeer(dsm::Worker* worker, server::memcached::Limits limits,
                             index::RangeIndex* tree, std::vector<std::string> passwords)
    : MemcachedPeerParts{server::Authenticator(std::move(passwords)), {}},
      RecordPeer(worker, tree),
      Environment({this, &records(), &own_authenticator}, &counted),
      protocol_(this, limits) {
  Open(&protocol_);
}

MemcachedPeer::~MemcachedPeer() { Close(); }

uint64_t MemcachedPeer::DeadlineNs() { return UINT64_MAX; }

bool MemcachedPeer::AppendStats(std::string_view argument, std::string*) {
  return argument.empty() || argument == "items";
}

dsm::Task<Status> MemcachedPeer::FlushAll(int64_t) { return DeleteAllKeys(); }

}  // namespace farleaf::test
