// VerbsAgent: opens a memory server's region to RDMA clients. Its thread accepts and ends connections;
// the verbs are executed by the NIC, and the CPU has no part in them.
//
// Invariants:
//   - every accepted connection is in connections_ until its queue pair is destroyed;
//   - before a connect request is answered, an older connection with the same nonce is destroyed. A
//     destroyed queue pair executes no request any more, and its packets are dropped: when
//     rdma_destroy_qp has returned, nothing of it can land;
//   - connections come and go on the agent's thread alone, cuts included (dsm/fenced_members.h).
// Thread rule: see RegionAgent.
#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dsm/agent.h"
#include "dsm/fenced_members.h"
#include "dsm/handshake.h"
#include "dsm/socket.h"
#include "dsm/verbs/device.h"
#include "dsm/verbs/private_data.h"

namespace farleaf::dsm {

class VerbsAgent final : public RegionAgent {
 public:
  struct Options {
    /// HOST:PORT, an address of an RDMA device, or 0.0.0.0 or [::] for that of `device`, or of all
    /// devices if none is chosen. Port 0: any that is free.
    std::string listen;
    std::string advertise;  ///< HOST:PORT that the endpoint names; empty: as listening
    VerbsDeviceChoice device;
    uint32_t connections_max = 4096;
  };
  /// `region`'s bytes outlive the agent; they are pinned and registered with the device that clients
  /// come by: with one, since atomics of two devices are not atomic with each other (unless both say
  /// that they are). The failure says what is missing: a device, an address of one, the right to pin memory.
  static Result<std::unique_ptr<VerbsAgent>> Start(const Options& options,
                                                   const ServerIdentity& identity,
                                                   std::span<std::byte> region);
  ~VerbsAgent() override;

  const std::string& endpoint() const override { return endpoint_; }
  size_t connections() const override { return connections_count_.load(); }
  Status CutOff(const MemberIdentity& member) override;

 private:
  /// The region as one device knows it.
  struct Registration {
    std::shared_ptr<VerbsDevice> device;
    ibv_mr* region;
    ibv_cq* completions;  ///< never used, but a queue pair has to have one
  };
  struct IdDeleter {
    void operator()(rdma_cm_id* id) const {
      if (id->qp != nullptr) rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
  };
  using Id = std::unique_ptr<rdma_cm_id, IdDeleter>;
  struct Connection {
    uint64_t nonce;
    MemberIdentity member;
    Id id;
  };

  VerbsAgent(const Options& options, const ServerIdentity& identity, std::span<std::byte> region)
      : options_(options),
        identity_(identity),
        region_(region),
        fenced_(identity.region.server, region) {}
  /// Where to listen, as address and choice of device say together.
  Result<SocketAddress> ListenAddress() const;
  Status Bind(const SocketAddress& address);
  Result<const Registration*> RegistrationFor(ibv_context* context);
  void Wake();
  // On the agent's thread.
  void Run();
  void Handle(const CmEvent& event);
  /// Decides on a connect request; takes the id over.
  void Decide(Id id, const CmEvent& request);
  Status Accept(Id& id, const Hello& hello, const CmEvent& request);
  void Cut(const MemberIdentity& member);
  void TakeCuts();
  /// Destroys the connections that `condition` holds for.
  template <typename Condition>
  void Remove(Condition condition);

  const Options options_;
  const ServerIdentity identity_;
  const std::span<std::byte> region_;
  std::string endpoint_;
  VerbsDevices devices_;
  FencedMembers fenced_;

  EventChannel events_;
  Id listening_;
  std::deque<Registration> registrations_;  // of the agent's thread, after Start

  std::unordered_map<rdma_cm_id*, Connection> connections_;  // of the agent's thread
  std::atomic<size_t> connections_count_{0};

  struct CutRequest {
    MemberIdentity member;
    std::promise<void> done;
  };
  std::mutex mutex_;  // guards cuts_, stop_
  std::vector<CutRequest> cuts_;
  bool stop_ = false;
  UniqueFd wake_fd_;
  std::thread thread_;
};

}  // namespace farleaf::dsm
