#include "test/support/memcached_under_test.h"

#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "test/support/free_address.h"

namespace farleaf {

MemcachedUnderTest::MemcachedUnderTest(std::string output_file)
    : output_file_(std::move(output_file)), address_(FreeAddress()) {
  Start();
}

void MemcachedUnderTest::Start() {
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

std::string MemcachedUnderTest::Url(const std::string& cluster) const {
  return "memcached://" + address_ + "/" + cluster;
}

bool MemcachedUnderTest::Answers(const dsm::SocketAddress& target) {
  auto fd = dsm::StartConnect(target);
  if (!fd.ok()) return false;
  pollfd waited{fd->get(), POLLOUT, 0};
  return ::poll(&waited, 1, 100) > 0 && dsm::TakeConnectError(fd->get()) == 0;
}

}  // namespace farleaf
