#include "server/shutdown.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace farleaf::server {

Result<std::unique_ptr<ReloadSignal>> ReloadSignal::Install() {
  std::unique_ptr<ReloadSignal> reload(new ReloadSignal);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  reload->signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (reload->signal_fd_ >= 0) return reload;
  return Status::IoError(std::string("cannot watch for SIGHUP: ") + std::strerror(errno));
}

ReloadSignal::~ReloadSignal() {
  if (signal_fd_ >= 0) ::close(signal_fd_);
}

bool ReloadSignal::Take() {
  signalfd_siginfo taken;
  bool came = false;
  while (::read(signal_fd_, &taken, sizeof taken) > 0) came = true;
  return came;
}

Result<std::unique_ptr<ShutdownSignal>> ShutdownSignal::Install() {
  std::unique_ptr<ShutdownSignal> shutdown(new ShutdownSignal);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, &shutdown->previous_mask_);
  shutdown->signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  shutdown->event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  shutdown->epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  for (int fd : {shutdown->signal_fd_, shutdown->event_fd_}) {
    epoll_event event{EPOLLIN, {.fd = fd}};
    if (::epoll_ctl(shutdown->epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return Status::IoError(std::string("cannot watch for SIGTERM: ") + std::strerror(errno));
    }
  }
  return shutdown;
}

void ShutdownSignal::TakeSignals() {
  signalfd_siginfo taken;
  while (signal_fd_ >= 0 && ::read(signal_fd_, &taken, sizeof taken) > 0) {
  }
}

void ShutdownSignal::AwaitAnother() {
  Request();  // fd() stays readable
  TakeSignals();
}

bool ShutdownSignal::another() const {
  pollfd waited{signal_fd_, POLLIN, 0};
  return ::poll(&waited, 1, 0) > 0;
}

ShutdownSignal::~ShutdownSignal() {
  TakeSignals();  // what has been acted on must not end the process when the mask is lifted
  for (int fd : {epoll_fd_, event_fd_, signal_fd_}) {
    if (fd >= 0) ::close(fd);
  }
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

bool ShutdownSignal::WaitForMs(uint32_t timeout_ms) const {
  pollfd waited{epoll_fd_, POLLIN, 0};
  return ::poll(&waited, 1, static_cast<int>(timeout_ms)) > 0;
}

void ShutdownSignal::Request() {
  const uint64_t one = 1;
  // A full counter means that it was asked for already.
  [[maybe_unused]] const ssize_t written = ::write(event_fd_, &one, sizeof one);
}

}  // namespace farleaf::server
