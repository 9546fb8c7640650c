// Election: at most one of several nodes is the master.
//
// Each candidate has an ephemeral entry PATH/n-NUMBER below the election's path, with its name as bytes; NUMBER, of ten
// digits, grows with each that is created. The one with the smallest number is the master. Each other one watches the one before its
// own, so that the end of one wakes one.
//
// The master acts while IsMaster() holds: its entry was the first when it last looked, and the lease runs, so that its entry is
// there and nobody else has become master (README.md). What it writes it writes by compare-and-set, so that what is late does no harm.
//
// Thread rule: one coroutine at a time, on one worker, except IsMaster. The Membership outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "server/membership/membership.h"

namespace farleaf::server::membership {

class Election {
 public:
  /// `name` differs from those of all other candidates, the same node's earlier incarnation included. `clock` is the session's.
  Election(Membership* session, const Clock* clock, std::string path, std::string name)
      : session_(session), clock_(clock), path_(std::move(path)), name_(std::move(name)) {}

  /// Stands, and waits until it is the master. DeadlineExceeded: it is not yet, and still stands. Another failure of the Membership:
  /// it may still stand; call again, unless it is Fenced.
  dsm::Task<Status> BecomeMaster(dsm::Worker& worker, uint64_t timeout_ns);
  /// REQUIRES: it became master. Returns when it may be no longer: Fenced (the session is over) or NotFound (its entry was removed);
  /// or DeadlineExceeded: it still is.
  dsm::Task<Status> AwaitLoss(dsm::Worker& worker, uint64_t timeout_ns);
  /// At this moment.
  bool IsMaster() const {
    return is_master_.load() && clock_->NowNs() < session_->lease_until_ns();
  }
  /// The master's name, as this session sees it, whether it stands or not; nullopt: there is none.
  dsm::Task<Result<std::optional<std::string>>> Master(dsm::Worker& worker);
  /// Stands no longer.
  dsm::Task<Status> Resign(dsm::Worker& worker);

 private:
  dsm::Task<Status> Stand(dsm::Worker& worker);
  /// Names of the candidates' entries, in order.
  dsm::Task<Result<std::vector<std::string>>> Candidates(dsm::Worker& worker);
  /// The entry of this candidate, if a Create whose end is unknown has made one.
  dsm::Task<Result<std::optional<std::string>>> FindOwn(dsm::Worker& worker);

  Membership* const session_;
  const Clock* const clock_;
  const std::string path_, name_;
  std::string own_;  ///< name of its entry; empty: it does not stand, or does not know
  std::atomic<bool> is_master_{false};
};

}  // namespace farleaf::server::membership
