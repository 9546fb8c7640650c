// SocketPoll: whether a server thread with nothing in flight looks at its sockets again at once, or blocks until one
// of them has something.
//
// To be put to sleep and woken takes longer, and more of the processor, than to look for as long as an answer's next
// request takes to come. So a loaded thread looks. It is loaded when its last kShortWaits waits were short, until it
// has looked for `poll_ns` in vain. A wait is short up to kShortWaitTimes as long as that, since to be woken takes its
// part of it. Whether one or many connections keep it busy makes no difference: a client that asks again as soon as it
// is answered finds it looking, and saves it a wake-up each time; one that takes longer finds it asleep.
//
// Invariants:
//   - behind each time that it has looked in vain, something comes kShortWaits times before it looks again;
//   - one that is idle never looks.
// Thread rule: one owner. A function of the times that it is told; it reads no clock.
#pragma once

#include <cstdint>

namespace farleaf::server {

class SocketPoll {
 public:
  static constexpr uint32_t kShortWaits = 8;
  static constexpr uint64_t kShortWaitTimes = 4;

  /// 0: never looks.
  explicit SocketPoll(uint64_t poll_ns) : poll_ns_(poll_ns) {}

  bool on() const { return poll_ns_ > 0; }

  /// The thread has nothing to do. Returns whether it looks without blocking.
  bool Looks(uint64_t now_ns) {
    if (!free_) {
      free_ = true;
      free_since_ns_ = now_ns;
    }
    if (short_waits_ < kShortWaits) return false;
    if (now_ns - free_since_ns_ < poll_ns_) return true;
    short_waits_ = 0;
    return false;
  }

  /// Something has come, be it before the thread had nothing to do.
  void Arrived(uint64_t now_ns) {
    const bool was_short = !free_ || now_ns - free_since_ns_ <= kShortWaitTimes * poll_ns_;
    free_ = false;
    if (!was_short) {
      short_waits_ = 0;
    } else if (short_waits_ < kShortWaits) {
      ++short_waits_;
    }
  }

 private:
  const uint64_t poll_ns_;
  bool free_ = false;
  uint64_t free_since_ns_ = 0;  // while it is
  uint32_t short_waits_ = 0;    // in a row, up to kShortWaits
};

}  // namespace farleaf::server
