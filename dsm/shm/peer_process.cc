#include "dsm/shm/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

namespace farleaf::dsm {

namespace {

int SendSignal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

/// A pidfd of process `pid`, which is at the other end of `socket`. Not valid: it has ended.
UniqueFd OpenPidfd(int socket, pid_t pid) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // The id can be another's only once the process has ended, which closes its socket: if that is still
  // open now, the id was its own when the pidfd was opened. (A child that keeps the socket open for
  // its dead parent does not speak for it: it has no mapping, see MemoryRegion::Attach.) The kernel's
  // own answer, SO_PEERPIDFD, is newer than the systems that this is for.
  pollfd state{socket, POLLRDHUP, 0};
  if (::poll(&state, 1, 0) != 0) return UniqueFd();
  return pidfd;
}

}  // namespace

Result<PeerProcess> PeerProcess::Of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return OsError("cannot tell which process is at the other end of a Unix socket");
  }
  if (peer.pid <= 0) {
    return Status::IoError(
        "its process is not to be seen from here: run both in one process id namespace");
  }
  const std::string name = "process " + std::to_string(peer.pid);
  UniqueFd pidfd = OpenPidfd(socket, peer.pid);
  if (!pidfd.valid()) return Status::Unavailable(name + " has ended");
  if (SendSignal(pidfd.get(), 0) != 0) {
    return Status::IoError(name + " may not be killed from here (" + std::strerror(errno) +
                           "): run both as one user");
  }
  return PeerProcess(peer.pid, std::move(pidfd));
}

bool PeerProcess::is_this_process() const { return pid_ == ::getpid(); }

Status PeerProcess::Kill() const {
  if (SendSignal(pidfd_.get(), SIGKILL) == 0 || errno == ESRCH) return Status::Ok();
  return OsError("cannot kill process " + std::to_string(pid_));
}

bool PeerProcess::WaitForExit(uint64_t timeout_ms) const {
  constexpr uint64_t kPollMsMax = std::numeric_limits<int>::max();
  pollfd state{pidfd_.get(), POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&state, 1, static_cast<int>(std::min(timeout_ms, kPollMsMax)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

PeerProcess PeerProcess::Duplicate() const {
  UniqueFd copy(::fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 0));
  FARLEAF_CHECK(copy.valid(), errno);
  return PeerProcess(pid_, std::move(copy));
}

}  // namespace farleaf::dsm
