// VerbsLane: one queue pair to each memory server, and the completion queue that they share: all that
// one thread needs. Above a limit several threads share a lane (dsm/verbs/verbs_transport.h).
//
// Completions are polled; only Wait, called when there has been nothing for a while, asks the device
// for an event. Events of the connection manager are looked for while a link is not up, and else in
// Wait and once in many Polls: a queue pair that breaks shows by its completions.
//
// Thread rule: one thread at a time.
#pragma once

#include <poll.h>

#include <memory>
#include <span>
#include <vector>

#include "dsm/verbs/verbs_link.h"

namespace farleaf::dsm {

class VerbsLane final : public VerbsLinkHost {
 public:
  struct Server {
    VerbsLink::Target target;
    Hello hello;                        ///< with a nonce of its own
    uint64_t expected_incarnation = 0;  ///< 0: whatever the server says
  };
  /// Starts to connect to every server. `clock` outlives the lane.
  static Result<std::unique_ptr<VerbsLane>> Open(std::vector<Server> servers,
                                                 std::shared_ptr<VerbsDevices> devices,
                                                 const VerbsOptions& options, const Clock* clock);
  ~VerbsLane() override;
  VerbsLane(const VerbsLane&) = delete;

  /// Drives the links until each is up or has failed; bounded by connect_timeout_ms.
  void AwaitLinks();
  std::span<const std::unique_ptr<VerbsLink>> links() const { return links_; }

  void Post(Batch& batch);
  size_t Poll();
  /// Asks for events. Afterwards, if Poll finds nothing, there is something to do only when one of
  /// the descriptors of AddDescriptors is readable or due_ns has come.
  void Arm();
  void AddDescriptors(std::vector<pollfd>* waited) const;
  uint64_t due_ns() const;
  /// A link is not up and has something to do.
  bool unsettled() const { return unsettled_; }
  /// Takes the events that woke the caller. True: a queue was signalled, and is no longer armed.
  bool TakeCompletionEvents();

  rdma_event_channel* event_channel() override { return events_.get(); }
  Result<std::shared_ptr<VerbsDevice>> DeviceFor(ibv_context* context) override {
    return devices_->For(context);
  }
  Result<Completions> CompletionsOf(const std::shared_ptr<VerbsDevice>& device) override;

 private:
  /// A completion queue and its channel.
  struct Queue {
    std::shared_ptr<VerbsDevice> device;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* queue = nullptr;
    uint32_t queue_depth = 0;
    bool armed = false;
  };

  VerbsLane(EventChannel events, std::shared_ptr<VerbsDevices> devices, const VerbsOptions& options,
            const Clock* clock)
      : events_(std::move(events)),
        devices_(std::move(devices)),
        options_(options),
        clock_(clock) {}
  size_t PollQueue(const Queue& queue, bool* failed);
  void DropQueues();
  void HandleEvents();

  EventChannel events_;
  const std::shared_ptr<VerbsDevices> devices_;
  const VerbsOptions options_;
  const Clock* clock_;
  std::vector<Queue> queues_;  // one a device; mostly one
  std::vector<std::unique_ptr<VerbsLink>> links_;
  std::vector<VerbsLink*> by_server_;
  bool unsettled_ = true;
  uint32_t polls_ = 0;
};

}  // namespace farleaf::dsm
