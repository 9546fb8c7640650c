// KnownServers: which memory servers a process's fabric knows just now, for fabrics whose memory servers come and go
// (Fabric::Add, Fabric::Remove). The fabric writes it, its transports learn from it: `generation` changes with every
// change, so that to have nothing to learn costs one relaxed load.
//
// A KnownServer stands for one life of a memory server: the first Welcome to any link of the process settles which
// incarnation that is, unless Add said so, and every other link accepts that incarnation only. Another life is another
// KnownServer, also under the same id.
//
// Why a relaxed load is enough: a change and its increment of the generation are made under the mutex, and whoever sees
// the increment takes the mutex before it looks. Whoever learned by any other means that Add or Remove has returned (it
// was told through a lock, a queue, a socket) has that increment happen before its load, which so sees it.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/result.h"
#include "dsm/base/status.h"
#include "dsm/directory.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

/// One life of a memory server.
class KnownServer {
 public:
  /// When a transport's link to it connects.
  enum class Connects : uint8_t {
    kAtOpening,    ///< with the transport, which waits for it
    kAtFirstPost,  ///< it was added; it need not be reachable
  };
  /// `address`: of fabrics with sockets.
  KnownServer(const ServerEndpoint& endpoint, SocketAddress address, Connects connects)
      : server_(endpoint.server),
        endpoint_(endpoint.endpoint),
        address_(std::move(address)),
        connects_(connects),
        incarnation_(endpoint.incarnation) {}
  KnownServer(const KnownServer&) = delete;

  ServerId server() const { return server_; }
  const std::string& endpoint() const { return endpoint_; }
  const SocketAddress& address() const { return address_; }
  Connects connects() const { return connects_; }
  /// 0: not settled yet.
  uint64_t incarnation() const { return incarnation_.load(std::memory_order_relaxed); }
  /// Whether `incarnation` is its own, which this settles if nothing has before.
  bool Settle(uint64_t incarnation);

 private:
  const ServerId server_;
  const std::string endpoint_;
  const SocketAddress address_;
  const Connects connects_;
  std::atomic<uint64_t> incarnation_;
};

class KnownServers {
 public:
  using Server = std::shared_ptr<KnownServer>;

  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  /// As Fabric::Add says; the caller has looked at the endpoint's text.
  Status Add(const ServerEndpoint& endpoint, SocketAddress address, KnownServer::Connects connects);
  void Remove(ServerId server);

  /// Null: not known.
  Server Find(ServerId server) const;
  /// Why a batch to it fails. REQUIRES: Find found nothing.
  Status WhyUnknown(ServerId server) const;
  /// "memory server 3 was removed".
  static Status Removed(ServerId server);
  /// Ascending id.
  std::vector<Server> All() const;

 private:
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::map<ServerId, Server> servers_;
  std::set<ServerId> removed_;  // and not added since
};

}  // namespace farleaf::dsm
