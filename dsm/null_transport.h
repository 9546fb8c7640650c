// NullTransport: for a worker of a process without memory servers, whose engine keeps everything on its own disk.
//
// Thread rule: that of Transport.
#pragma once

#include <poll.h>

#include "dsm/base/clock.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class NullTransport final : public Transport {
 public:
  void Post(Batch& batch) override {
    batch.CompleteWith(Status::Unavailable("this process is attached to no memory servers"));
  }
  size_t Poll() override { return 0; }
  void Wait(int wake_fd, uint64_t timeout_ns) override {
    pollfd waited{wake_fd, POLLIN, 0};
    const timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond),
                           static_cast<long>(timeout_ns % kNsPerSecond)};
    ::ppoll(&waited, 1, &timeout, nullptr);
  }
  uint32_t idle_turns_before_wait() const override { return 0; }
  bool completes_at_once() const override { return true; }
};

}  // namespace farleaf::dsm
