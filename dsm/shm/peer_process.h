// PeerProcess: the process at the other end of a Unix socket, held by a pidfd, so that it and no other
// can be killed, however process ids are used again.
//
// Thread rule: as an int; Kill and WaitForExit by any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "dsm/base/result.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

class PeerProcess {
 public:
  /// Who connected (or who listens) at the other end. Unavailable: it has ended. IoError: this process
  /// does not see it (another process id namespace) or may not kill it (another user).
  static Result<PeerProcess> Of(int socket);

  pid_t pid() const { return pid_; }
  bool is_this_process() const;
  Status Kill() const;
  /// Whether it has ended `timeout_ms` from now: no thread of it runs any more. A stopped process has
  /// not; a killed one ends though it be stopped.
  bool WaitForExit(uint64_t timeout_ms) const;
  PeerProcess Duplicate() const;

 private:
  PeerProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_;
  UniqueFd pidfd_;
};

}  // namespace farleaf::dsm
