// UnsettledMemory: memory servers to which something was WRITTEN whose end is not known: it may land yet. As long as the process remembers one, that memory is
// not filled again, and nobody else is told that this process writes there no more.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "dsm/address.h"

namespace farleaf::server::replication {

class UnsettledMemory {
 public:
  /// By one worker; Settle follows, or Forget.
  void Add(dsm::ServerId server) {
    std::lock_guard lock(mutex_);
    servers_.insert(server);
  }
  /// What one worker has WRITTEN there has landed, or never will.
  void Settle(dsm::ServerId server) {
    std::lock_guard lock(mutex_);
    const auto at = servers_.find(server);
    if (at != servers_.end()) servers_.erase(at);
  }
  /// That memory is gone.
  void Forget(dsm::ServerId server) {
    std::lock_guard lock(mutex_);
    servers_.erase(server);
  }
  bool Contains(dsm::ServerId server) const {
    std::lock_guard lock(mutex_);
    return servers_.contains(server);
  }
  bool empty() const {
    std::lock_guard lock(mutex_);
    return servers_.empty();
  }
  /// Nobody waits any more, of all that write here: the process, or its part, ends.
  void Stop() { stopped_.store(true); }
  bool stopped() const { return stopped_.load(); }

 private:
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;              // guards servers_
  std::multiset<dsm::ServerId> servers_;  // once for each call that failed so
};

}  // namespace farleaf::server::replication
