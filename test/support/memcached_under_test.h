// A real memcached on a free loopback port.
//
// Thread rule: one thread.
#pragma once

#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/socket.h"
#include "test/support/child_process.h"

namespace farleaf {

class MemcachedUnderTest {
 public:
  explicit MemcachedUnderTest(std::string output_file) : output_file_(std::move(output_file)) {
    auto any = dsm::ResolveTcp("127.0.0.1:0");
    FARLEAF_CHECK(any.ok(), any.status());
    auto listening = dsm::Listen(*any);
    FARLEAF_CHECK(listening.ok(), listening.status());
    auto address = dsm::LocalTcpAddress(listening->get());
    FARLEAF_CHECK(address.ok(), address.status());
    address_ = *address;
    listening->Reset();  // and let memcached have it
    Start();
  }

  void Start() {
    const passwd* user = ::getpwuid(::geteuid());
    process_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{"memcached", "-l", "127.0.0.1", "-p", port(), "-U", "0", "-u",
                                 user ? user->pw_name : "nobody"},
        output_file_);
    const MonotonicClock clock;
    const uint64_t deadline_ns = clock.NowNs() + 60 * kNsPerSecond;
    auto target = dsm::ResolveTcp(address_);
    FARLEAF_CHECK(target.ok(), target.status());
    while (!Answers(*target)) {
      FARLEAF_CHECK(clock.NowNs() < deadline_ns && process_->running(), process_->Output());
    }
  }
  void Stop() { process_.reset(); }

  const std::string& address() const { return address_; }
  std::string port() const { return address_.substr(address_.rfind(':') + 1); }
  std::string Url(const std::string& cluster) const {
    return "memcached://" + address_ + "/" + cluster;
  }

 private:
  static bool Answers(const dsm::SocketAddress& target) {
    auto fd = dsm::StartConnect(target);
    if (!fd.ok()) return false;
    pollfd waited{fd->get(), POLLOUT, 0};
    return ::poll(&waited, 1, 100) > 0 && dsm::TakeConnectError(fd->get()) == 0;
  }

  std::string output_file_;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace farleaf
