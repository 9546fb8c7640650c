// VerbsLink: one lane's connection to one memory server: resolves the address, connects with the
// handshake in the private data, posts batches, notices when the connection is gone, and reconnects.
//
//   kDown ──► kResolving ──► kRouting ──► kConnecting ──► kUp        kLost: for good
//     ▲         │   ▲            │             │            │
//     │         │   └─ kPausing ◄┼─────────────┤            │  this try failed
//     └─────────┴────────────────┴─────────────┴────────────┘  broken
//
// What becomes of batches when a connection breaks: see dsm/link_recovery.h. The memory server
// destroys the old queue pair before it accepts the new one, and a destroyed queue pair executes
// nothing more: that is the confirmation.
//
// Invariants:
//   - no call blocks on the peer;
//   - completions and events of a connection that was given up are told by their tag or id, and
//     ignored.
// Thread rule: one thread at a time, that of its lane.
#pragma once

#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/handshake.h"
#include "dsm/known_servers.h"
#include "dsm/link_recovery.h"
#include "dsm/socket.h"
#include "dsm/verbs/device.h"
#include "dsm/verbs/queue_pair.h"

namespace farleaf::dsm {

/// What a link needs of its lane.
class VerbsLinkHost {
 public:
  virtual ~VerbsLinkHost() = default;
  virtual rdma_event_channel* event_channel() = 0;
  virtual Result<std::shared_ptr<VerbsDevice>> DeviceFor(ibv_context* context) = 0;
  /// The lane's completion queue on the device, and how many work requests of one queue pair it has
  /// room for.
  struct Completions {
    ibv_cq* queue;
    uint32_t queue_depth;
  };
  virtual Result<Completions> CompletionsOf(const std::shared_ptr<VerbsDevice>& device) = 0;
  /// Of a connection: no other one of the host has it, of whichever link.
  virtual uint32_t NextGeneration() = 0;
  /// The link with this index is gone.
  virtual void Freed(uint16_t index) = 0;
};

class VerbsLink {
 public:
  /// `index` tells its completions from those of the host's other links. `source` fixes device and port.
  /// `hello`: as HelloTo.
  VerbsLink(VerbsLinkHost* host, uint16_t index, KnownServers::Server server,
            std::optional<SocketAddress> source, Hello hello, const VerbsOptions& options,
            const Clock* clock);
  ~VerbsLink();
  VerbsLink(const VerbsLink&) = delete;

  void Connect();
  void Post(Batch& batch);
  /// A completion with this link's index. Returns the batches completed.
  size_t HandleCompletion(const ibv_wc& completion);
  /// The completion queue has failed: no completion can be counted on.
  void HandleQueueFailure();
  /// An event of the connection manager for this link's connection.
  void HandleEvent(const CmEvent& event);
  /// Watches deadlines and retries, and returns the batches completed other than by HandleCompletion.
  size_t Poll();

  // For LinkTable.
  const KnownServer& server() const { return *server_; }
  void Retire();
  bool ended() const { return retired_ && state_ == State::kLost; }
  void HoldBack() { held_back_ = true; }
  bool held_back() const { return held_back_; }
  void Release();

  bool owns(const rdma_cm_id* id) const { return id_.get() == id; }
  bool up() const { return state_ == State::kUp; }
  bool connecting() const {
    return state_ == State::kResolving || state_ == State::kRouting ||
           state_ == State::kConnecting || state_ == State::kPausing;
  }
  /// It is not up, and has something to do.
  bool unsettled() const { return !up() && (connecting() || recovery_.holds_batches()); }
  /// Batches are in flight, or wait for the connection.
  bool busy() const { return up() ? !queue_pair_->idle() : recovery_.holds_batches(); }
  /// Why it is not up; ok: the server confirmed a cut-off, which is what the Hello asked for.
  /// REQUIRES: neither up nor connecting.
  const Status& failure() const { return recovery_.failure(); }
  /// REQUIRES: was up once.
  const RegionInfo& region() const { return region_; }
  /// When Poll has to be called at the latest, on the clock; UINT64_MAX: no need.
  uint64_t due_ns() const;
  /// REQUIRES: up.
  const QueuePairCounts& counts() const { return queue_pair_->counts(); }

  /// The index of the link that a completion belongs to.
  static uint16_t IndexOf(uint64_t tag) { return static_cast<uint16_t>(tag >> 48); }

 private:
  enum class State : uint8_t { kDown, kResolving, kRouting, kConnecting, kPausing, kUp, kLost };
  using Server = LinkRecovery::Server;
  struct IdDeleter {
    void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
  };

  /// Starts one try of an attempt to connect: a message of the connection manager that is lost is sent
  /// again only after seconds, so that a new try is the better remedy.
  void Dial();
  void Resolved();
  void Routed();
  void Established(const CmEvent& event);
  void Rejected(const CmEvent& event);
  void Break(const std::string& reason);
  /// Another try may do better: the attempt goes on until it is overdue.
  void TryFailed(Status why);
  void AttemptFailed(const Status& why, Server server);
  /// Completes a batch that was not posted.
  void Refuse(Batch& batch, Status why);
  void LoseForGood(Status why);
  void Drop();
  void EndIfRetired();
  uint64_t tag() const { return uint64_t{index_} << 48 | generation_; }

  VerbsLinkHost* const host_;
  const uint16_t index_;
  const KnownServers::Server server_;
  const SocketAddress& address_;  ///< the server's
  const std::optional<SocketAddress> source_;
  const Hello hello_;
  const VerbsOptions options_;
  const Clock* clock_;

  State state_ = State::kDown;
  bool held_back_ = false, retired_ = false;
  uint32_t generation_ = 0;       ///< of the connection
  uint64_t try_deadline_ns_ = 0;  ///< then the next try begins
  Status try_failure_;            ///< of the last one
  size_t refused_ = 0;            ///< batches that Refuse completed since the last Poll
  std::unique_ptr<rdma_cm_id, IdDeleter> id_;
  std::unique_ptr<QueuePair> queue_pair_;  // destroyed before id_
  LinkRecovery recovery_;
  RegionInfo region_;
};

}  // namespace farleaf::dsm
