// LinkRecovery: what happens to batches while a transport's connection to a memory server is not up:
// one policy for every fabric that has connections.
//
// Batches in flight when a connection breaks are *doomed*. They are reported only when nothing of
// them can land any more: when a new handshake (same nonce) has confirmed that the memory server
// destroyed the old connection, or when nobody listens on its address, since then the process and
// its memory are gone. If neither is known within connect_timeout_ms, they end as Unknown. Batches
// posted meanwhile *wait* for the new connection, with the same bound. A refusal that time cannot
// mend loses the link for good: every batch fails with it from then on.
//
// Invariants: a batch given to Doom or Wait is completed exactly once, or handed back by Restored.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

struct LinkRecoveryOptions {
  uint64_t connect_timeout_ms = 1'000;  ///< for connecting and the handshake together
  uint64_t backoff_ms_min = 10;         ///< between attempts to reconnect, doubling
  uint64_t backoff_ms_max = 1'000;
};

class LinkRecovery {
 public:
  /// `name`: "memory server 3".
  LinkRecovery(std::string name, const LinkRecoveryOptions& options, const Clock* clock);
  LinkRecovery(const LinkRecovery&) = delete;

  /// Why the link is not up. REQUIRES: it is neither up nor connecting.
  const Status& failure() const { return failure_; }
  bool lost_for_good() const { return lost_for_good_; }

  // ---- Attempts to connect
  void AttemptStarted();
  /// The attempt that runs has taken longer than connect_timeout_ms.
  bool attempt_overdue() const { return clock_->NowNs() >= attempt_deadline_ns_; }
  uint64_t attempt_deadline_ns() const { return attempt_deadline_ns_; }
  enum class Server : uint8_t { kGone, kMaybeThere };
  void AttemptFailed(Status why, Server server);
  void LoseForGood(Status why);
  /// What waits fails with `why`; what is doomed goes on, and has the attempts that it needs.
  void FailWaiting(const Status& why) { FailAll(waiting_, why); }
  /// The handshake succeeded: doomed batches fail, the waiting ones are the caller's to send.
  std::deque<Batch*> Restored();

  // ---- The connection breaks
  void Doom(Batch* batch) { doomed_.push_back(batch); }
  /// After the last Doom; the caller then starts an attempt.
  void Broke(const std::string& reason);

  // ---- Batches posted while the link is not up
  /// Takes the batch, or fails it at once if the last attempt failed only just now. True: the caller
  /// starts an attempt, unless one runs.
  bool Wait(Batch& batch, bool connecting);
  /// An attempt should be started by itself: batches are doomed, and the backoff is over.
  bool retry_due() const { return !doomed_.empty() && clock_->NowNs() >= retry_at_ns_; }
  bool holds_batches() const { return !doomed_.empty() || !waiting_.empty(); }
  /// When retry_due comes true, on the clock; UINT64_MAX: never.
  uint64_t retry_due_ns() const { return doomed_.empty() ? UINT64_MAX : retry_at_ns_; }

  /// Batches completed here since the last call.
  size_t TakeCompleted() { return std::exchange(completed_, 0); }
  bool has_completed() const { return completed_ > 0; }

 private:
  void FailAll(std::deque<Batch*>& batches, const Status& status);

  const std::string name_;
  const LinkRecoveryOptions options_;
  const Clock* clock_;
  Status failure_;
  bool lost_for_good_ = false;
  uint64_t attempt_deadline_ns_ = 0;
  uint64_t retry_at_ns_ = 0;
  uint64_t backoff_ms_;
  std::deque<Batch*> waiting_;  ///< nothing of them was sent
  std::deque<Batch*> doomed_;
  std::string doomed_reason_;
  uint64_t doomed_deadline_ns_ = 0;
  size_t completed_ = 0;
};

}  // namespace farleaf::dsm
