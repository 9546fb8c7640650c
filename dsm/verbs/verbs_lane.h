// VerbsLane: one queue pair to each memory server that its fabric knows, and the completion queue that they share: all
// that one thread needs. Above a limit several threads share a lane (dsm/verbs/verbs_transport.h). Memory servers come
// and go meanwhile (dsm/link_table.h).
//
// Completions are polled; only Wait, called when there has been nothing for a while, asks the device
// for an event. Events of the connection manager are looked for while a link is not up, and else in
// Wait and once in many Polls: a queue pair that breaks shows by its completions.
//
// Thread rule: one thread at a time.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <vector>

#include "dsm/link_table.h"
#include "dsm/verbs/verbs_link.h"

namespace farleaf::dsm {

class VerbsLane final : public VerbsLinkHost {
 public:
  /// `sources` has an answer for each server that comes to be known. `hello`: of its links, but for server and
  /// nonce (HelloTo). `clock` outlives the lane.
  static Result<std::unique_ptr<VerbsLane>> Open(std::shared_ptr<const KnownServers> known,
                                                 VerbsSources sources, Hello hello,
                                                 std::shared_ptr<VerbsDevices> devices,
                                                 const VerbsOptions& options, const Clock* clock);
  VerbsLane(const VerbsLane&) = delete;

  /// Drives the links that connect when the lane opens until each is up or has failed; bounded by connect_timeout_ms.
  void AwaitFirst();
  /// Null: not known.
  const VerbsLink* Find(ServerId server) const { return links_.Find(server); }

  void Post(Batch& batch);
  size_t Poll();
  /// Servers have come or gone since the last Post or Poll.
  bool stale() const { return links_.stale(); }
  /// Asks for events. Afterwards, if Poll finds nothing, there is something to do only when one of
  /// the descriptors of AddDescriptors is readable or due_ns has come.
  void Arm();
  void AddDescriptors(std::vector<pollfd>* waited) const;
  uint64_t due_ns() const;
  /// Completion queues so far. One that was made behind Arm, by Poll, is not armed, nor one of the descriptors.
  uint64_t queues_made() const { return queues_made_; }
  /// A link is not up and has something to do.
  bool unsettled() const { return unsettled_; }
  /// Takes the events that woke the caller. True: a queue was signalled, and is no longer armed.
  bool TakeCompletionEvents();

  rdma_event_channel* event_channel() override { return events_.get(); }
  Result<std::shared_ptr<VerbsDevice>> DeviceFor(ibv_context* context) override {
    return devices_->For(context);
  }
  Result<Completions> CompletionsOf(const std::shared_ptr<VerbsDevice>& device) override;
  uint32_t NextGeneration() override { return ++generation_; }
  void Freed(uint16_t index) override { by_index_[index] = nullptr; }

 private:
  struct ChannelDeleter {
    void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  };
  struct QueueDeleter {
    void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
  };
  /// A completion queue and its channel.
  struct Queue {
    std::shared_ptr<VerbsDevice> device;
    std::unique_ptr<ibv_comp_channel, ChannelDeleter> channel;
    std::unique_ptr<ibv_cq, QueueDeleter> queue;  // destroyed before the channel
    uint32_t queue_depth = 0;                     ///< of each queue pair
    uint64_t shares = 0;                          ///< how many times queue_depth it has room for
    bool armed = false;
  };

  VerbsLane(EventChannel events, std::shared_ptr<const KnownServers> known, VerbsSources sources,
            Hello hello, std::shared_ptr<VerbsDevices> devices, const VerbsOptions& options,
            const Clock* clock)
      : events_(std::move(events)),
        devices_(std::move(devices)),
        sources_(std::move(sources)),
        options_(options),
        clock_(clock),
        hello_(std::move(hello)),
        links_(std::move(known)) {}
  void Learn();
  std::unique_ptr<VerbsLink> NewLink(KnownServers::Server server);
  uint16_t FreeIndex();
  uint64_t SharesNeeded() const;
  Result<Queue> MakeQueue(const std::shared_ptr<VerbsDevice>& device) const;
  Status MakeRoom(Queue* queue) const;
  size_t PollQueue(const Queue& queue, bool* failed);
  void HandleEvents();

  EventChannel events_;
  const std::shared_ptr<VerbsDevices> devices_;
  const VerbsSources sources_;
  const VerbsOptions options_;
  const Clock* clock_;
  const Hello hello_;
  uint32_t generation_ = 0;
  std::vector<Queue> queues_;                    // one a device; mostly one
  std::vector<VerbsLink*> by_index_;             // null: free
  LinkTable<std::unique_ptr<VerbsLink>> links_;  // destroyed before what they use
  uint64_t queues_made_ = 0;
  bool unsettled_ = true;
  uint32_t polls_ = 0;
};

}  // namespace farleaf::dsm
