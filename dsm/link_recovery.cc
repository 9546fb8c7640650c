#include "dsm/link_recovery.h"

#include <algorithm>

namespace farleaf::dsm {

LinkRecovery::LinkRecovery(std::string name, const LinkRecoveryOptions& options, const Clock* clock)
    : name_(std::move(name)),
      options_(options),
      clock_(clock),
      failure_(Status::Unavailable(name_ + " was never connected")),
      backoff_ms_(options.backoff_ms_min) {}

void LinkRecovery::AttemptStarted() {
  attempt_deadline_ns_ = clock_->NowNs() + options_.connect_timeout_ms * kNsPerMs;
}

void LinkRecovery::AttemptFailed(Status why, Server server) {
  const uint64_t now_ns = clock_->NowNs();
  retry_at_ns_ = now_ns + backoff_ms_ * kNsPerMs;
  backoff_ms_ = std::min(backoff_ms_ * 2, options_.backoff_ms_max);
  const std::string reason = doomed_.empty() ? std::string(why.message())
                                             : doomed_reason_ + "; " + std::string(why.message());
  failure_ = Status(why.code() == StatusCode::kNotFound ? StatusCode::kUnavailable : why.code(),
                    name_ + " lost: " + reason);
  if (server == Server::kGone) {
    FailAll(doomed_, failure_);
  } else if (!doomed_.empty()) {
    if (now_ns < doomed_deadline_ns_) return;  // retry_due comes
    FailAll(doomed_, Status::Unknown(name_ + " lost: " + reason +
                                     "; it does not answer, so the outcome is unknown"));
  }
  FailAll(waiting_, failure_);
}

void LinkRecovery::LoseForGood(Status why) {
  lost_for_good_ = true;
  failure_ = std::move(why);
  FailAll(doomed_, failure_);
  FailAll(waiting_, failure_);
}

std::deque<Batch*> LinkRecovery::Restored() {
  backoff_ms_ = options_.backoff_ms_min;
  FailAll(doomed_, Status::Unavailable(name_ + ": the connection broke (" + doomed_reason_ +
                                       ") and was restored; the effect of this batch is unknown"));
  return std::exchange(waiting_, {});
}

void LinkRecovery::Broke(const std::string& reason) {
  doomed_reason_ = reason;
  failure_ = Status::Unavailable(name_ + " lost: " + reason);
  doomed_deadline_ns_ = clock_->NowNs() + options_.connect_timeout_ms * kNsPerMs;
}

bool LinkRecovery::Wait(Batch& batch, bool connecting) {
  const bool may_try =
      !lost_for_good_ && (connecting || !doomed_.empty() || clock_->NowNs() >= retry_at_ns_);
  if (!may_try) {
    batch.CompleteWith(failure_);
    return false;
  }
  waiting_.push_back(&batch);
  return doomed_.empty();
}

void LinkRecovery::FailAll(std::deque<Batch*>& batches, const Status& status) {
  for (Batch* batch : std::exchange(batches, {})) {
    ++completed_;
    batch->CompleteWith(status);
  }
}

}  // namespace farleaf::dsm
