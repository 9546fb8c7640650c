// The transports of the verbs fabric: one that owns its lane, and one of several that share one.
//
// Thread rule: see Transport. A SharedLane is thread-safe.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "dsm/socket.h"
#include "dsm/transport.h"
#include "dsm/verbs/verbs_lane.h"

namespace farleaf::dsm {

class VerbsTransport final : public Transport {
 public:
  /// `owner` is held as long as the lane is.
  VerbsTransport(std::unique_ptr<VerbsLane> lane, std::shared_ptr<const bool> owner,
                 const Clock* clock)
      : owner_(std::move(owner)), lane_(std::move(lane)), clock_(clock) {}

  void Post(Batch& batch) override { lane_->Post(batch); }
  size_t Poll() override { return lane_->Poll(); }
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  const VerbsLane& lane() const { return *lane_; }

 private:
  std::shared_ptr<const bool> owner_;
  std::unique_ptr<VerbsLane> lane_;
  const Clock* clock_;
  std::vector<pollfd> waited_;
};

/// A lane with its lock, and the transports that wait for something on it.
struct SharedLane {
  std::mutex mutex;  // guards all
  std::unique_ptr<VerbsLane> lane;
  std::vector<int> sleepers;  ///< descriptors that wake a transport asleep in Wait
};

/// Whoever polls completes everybody's batches, but a batch's own thread must be the one to see that:
/// each waits behind a relay until its transport polls.
class SharedVerbsTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> Create(std::shared_ptr<SharedLane> shared,
                                                   const Clock* clock);

  /// REQUIRES: none of its batches is in flight; the lane would complete it.
  ~SharedVerbsTransport() override;
  void Post(Batch& batch) override;
  size_t Poll() override;
  void Wait(int wake_fd, uint64_t timeout_ns) override;

 private:
  struct Relay {
    RoundTripState* waiter;  ///< whom the batch's poster gave
    RoundTripState state;    ///< what the lane completes
  };
  SharedVerbsTransport(std::shared_ptr<SharedLane> shared, UniqueFd wake, const Clock* clock)
      : shared_(std::move(shared)), wake_(std::move(wake)), clock_(clock) {}
  // Both REQUIRE: the lane's mutex is held.
  size_t PollLane();
  /// Each looks for itself whether there is something for it, or something new to wait for.
  void WakeSleepers();

  std::shared_ptr<SharedLane> shared_;
  UniqueFd wake_;  ///< readable: another transport completed something
  const Clock* clock_;
  std::list<Relay> relays_;  // in the order of posting
  std::vector<pollfd> waited_;
};

}  // namespace farleaf::dsm
