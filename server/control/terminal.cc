#include "server/control/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "dsm/base/clock.h"

namespace farleaf::server {

Result<std::unique_ptr<Terminal>> Terminal::Open() {
  std::unique_ptr<Terminal> terminal(new Terminal);
  auto signals = ShutdownSignal::Install();
  if (!signals.ok()) return signals.status();
  terminal->signals_ = std::move(*signals);
  terminal->screen_ = ::isatty(STDOUT_FILENO) == 1;
  terminal->keys_ =
      ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &terminal->before_) == 0;
  if (terminal->keys_) {
    termios unbuffered = terminal->before_;
    unbuffered.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &unbuffered);
  }
  if (terminal->screen_) fmt::print("\x1b[?25l\x1b[2J");  // without a cursor, and empty
  return terminal;
}

Terminal::~Terminal() {
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  if (screen_) fmt::print("\x1b[?25h");
  std::fflush(stdout);
}

void Terminal::Clear() {
  if (screen_) fmt::print("\x1b[H\x1b[J");
}

bool Terminal::WaitForQuit(uint64_t ms) {
  std::fflush(stdout);
  const MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + ms * kNsPerMs;
  for (uint64_t now_ns = clock.NowNs(); now_ns < end_ns; now_ns = clock.NowNs()) {
    pollfd fds[2] = {{signals_->fd(), POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>((end_ns - now_ns) / kNsPerMs + 1));
    if (fds[0].revents != 0) return true;
    if (fds[1].revents == 0) continue;
    char key = 0;
    const ssize_t read = ::read(STDIN_FILENO, &key, 1);
    if (read <= 0) keys_ = false;  // nobody is there any more
    if (read == 1 && (key == 'q' || key == 'Q')) return true;
  }
  return signals_->requested();
}

}  // namespace farleaf::server
