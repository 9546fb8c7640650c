// PseudoTerminal: a terminal that a program under test draws on, and whose keys a test presses.
//
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "client/internal/socket.h"
#include "dsm/base/check.h"
#include "dsm/base/clock.h"

namespace farleaf::test {

class PseudoTerminal {
 public:
  PseudoTerminal() : ours_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
    char path[64];
    FARLEAF_CHECK(ours_.get() >= 0 && ::grantpt(ours_.get()) == 0 && ::unlockpt(ours_.get()) == 0 &&
                      ::ptsname_r(ours_.get(), path, sizeof path) == 0,
                  errno);
    path_ = path;
    // Open as long as this lives, so that it stays the same one whoever else comes and goes.
    programs_ = client::internal::Fd(::open(path, O_RDWR | O_NOCTTY | O_CLOEXEC));
    FARLEAF_CHECK(programs_.get() >= 0, errno);
  }

  /// What the program opens as its standard streams.
  const std::string& path() const { return path_; }
  termios modes() const {
    termios modes{};
    FARLEAF_CHECK(::tcgetattr(programs_.get(), &modes) == 0, errno);
    return modes;
  }
  void Press(char key) { FARLEAF_CHECK(::write(ours_.get(), &key, 1) == 1, errno); }
  /// Whether all that has been drawn is such within a minute.
  bool WaitForDrawn(const std::function<bool(const std::string&)>& is_such) {
    const MonotonicClock clock;
    const uint64_t end_ns = clock.NowNs() + 60 * kNsPerSecond;
    while (!is_such(drawn_) && clock.NowNs() < end_ns) {
      pollfd waited{ours_.get(), POLLIN, 0};
      ::poll(&waited, 1, 100);
      Read();
    }
    return is_such(drawn_);
  }
  /// As far as it was waited for.
  const std::string& drawn() const { return drawn_; }

 private:
  void Read() {
    char buffer[4096];
    for (ssize_t bytes; (bytes = ::read(ours_.get(), buffer, sizeof buffer)) > 0;) {
      drawn_.append(buffer, static_cast<size_t>(bytes));
    }
  }

  client::internal::Fd ours_, programs_;
  std::string path_, drawn_;
};

/// Whether both treat keys and lines alike.
inline bool SameModes(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

}  // namespace farleaf::test
