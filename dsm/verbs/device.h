// RDMA devices: which one an address or a choice leads to, and what of it is shared by a process's
// connections.
//
// Thread rule: free functions, any thread; VerbsDevice is immutable and shared.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/socket.h"
#include "dsm/verbs/options.h"

namespace farleaf::dsm {

/// The events of the connection manager; never blocks. IoError if this machine has no RDMA device,
/// with the remedy: no time mends that.
struct EventChannelDeleter {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
using EventChannel = std::unique_ptr<rdma_event_channel, EventChannelDeleter>;
Result<EventChannel> OpenEventChannel();

/// A copy of one event, already acknowledged, so that no handler can deadlock with the destruction of
/// the id that it names. `id` may have been destroyed since: look it up before use.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  int status;
  rdma_conn_param parameters;  ///< private_data points nowhere
  std::string private_data;

  std::string ToString() const;
};
/// nullopt: none is there.
std::optional<CmEvent> TakeEvent(rdma_event_channel* channel);

/// The local address that makes librdmacm use the chosen device, port and GID; nullopt where the
/// choice leaves it open. NotFound names what is missing and lists what there is.
Result<std::optional<SocketAddress>> SourceAddress(const VerbsDeviceChoice& choice, int family);

/// What SourceAddress says for servers of either family. Immutable.
class VerbsSources {
 public:
  explicit VerbsSources(const VerbsDeviceChoice& choice)
      : ipv4_(SourceAddress(choice, AF_INET)), ipv6_(SourceAddress(choice, AF_INET6)) {}
  /// Not Ok: no address leads from the choice to servers of this family.
  Status Check(const SocketAddress& server) const { return Of(server).status(); }
  /// REQUIRES: Check is Ok.
  std::optional<SocketAddress> For(const SocketAddress& server) const { return *Of(server); }

 private:
  const Result<std::optional<SocketAddress>>& Of(const SocketAddress& server) const {
    return server.storage.ss_family == AF_INET6 ? ipv6_ : ipv4_;
  }
  Result<std::optional<SocketAddress>> ipv4_, ipv6_;
};

/// A device in use: its limits and a protection domain. As long as it lives librdmacm keeps the device
/// open, even one that was removed from the machine.
class VerbsDevice {
 public:
  /// Unimplemented: the device has no 8-byte atomics.
  static Result<std::shared_ptr<VerbsDevice>> Open(ibv_context* context);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;

  ibv_context* context() const { return context_; }
  ibv_pd* protection_domain() const { return pd_; }
  const ibv_device_attr& limits() const { return limits_; }
  /// Whether an 8-byte WRITE is atomic with others' CAS of the same word, which RDMA's specification does not
  /// promise. What is said of a device that is not known is no.
  bool writes_words_atomically() const;
  std::string name() const { return ibv_get_device_name(context_->device); }

 private:
  VerbsDevice(ibv_context** all, ibv_context* context, const ibv_device_attr& limits, ibv_pd* pd)
      : all_(all), context_(context), limits_(limits), pd_(pd) {}
  ibv_context** all_;  ///< librdmacm's list, which holds the devices open
  ibv_context* context_;
  ibv_device_attr limits_;
  ibv_pd* pd_;
};

/// A process's devices, opened as connections come to need them. Thread-safe.
class VerbsDevices {
 public:
  Result<std::shared_ptr<VerbsDevice>> For(ibv_context* context);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<VerbsDevice>> devices_;
};

/// "what: reason of errno", with what to do about the usual reasons.
Status VerbsError(const std::string& what);

}  // namespace farleaf::dsm
