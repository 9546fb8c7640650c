#include "server/cluster/peer_client.h"

namespace farleaf::server::cluster {

namespace {

/// Until then all that wait for the link wait for its connection.
constexpr uint64_t kConnectMs = 1'000;

PeerOptions ForPeers(PeerOptions options) {
  options.session.routed_by_caller = true;
  options.session.connect_timeout_ms = std::min(options.session.connect_timeout_ms, kConnectMs);
  return options;
}

}  // namespace

PeerClient::PeerClient(PeerOptions options, const Clock* clock)
    : options_(ForPeers(std::move(options))), clock_(clock) {}

PeerLink* PeerClient::LinkTo(std::string_view url) {
  std::lock_guard lock(mutex_);
  const auto known = links_.find(url);
  if (known != links_.end()) return known->second.get();
  auto link = std::make_unique<PeerLink>(std::string(url), options_.session, clock_, &counts_);
  return links_.emplace(std::string(url), std::move(link)).first->second.get();
}

}  // namespace farleaf::server::cluster
