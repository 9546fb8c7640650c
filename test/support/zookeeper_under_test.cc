#include "test/support/zookeeper_under_test.h"

#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "dsm/socket.h"
#include "test/support/free_address.h"

namespace farleaf {

namespace {
constexpr const char* kJar = "/usr/share/java/zookeeper.jar";
constexpr const char* kJava = "/usr/bin/java";
}  // namespace

bool ZookeeperUnderTest::IsInstalled() {
  return std::filesystem::exists(kJar) && std::filesystem::exists(kJava);
}

ZookeeperUnderTest::ZookeeperUnderTest(std::string folder, int tick_ms, const std::string& host)
    : folder_(std::move(folder)), address_(FreeAddress(host)) {
  std::ofstream(folder_ + "/zoo.cfg")
      << "dataDir=" << folder_ << "/data\nclientPortAddress=" << host
      << "\nclientPort=" << address_.substr(address_.rfind(':') + 1) << "\ntickTime=" << tick_ms
      << "\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands."
         "whitelist=srvr\n";
  Start();
}

void ZookeeperUnderTest::Start() {
  process_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{kJava, "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                               "-Dzookeeper.forceSync=no", "-cp", kJar,
                               "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                               folder_ + "/zoo.cfg"},
      folder_ + "/output");
  const MonotonicClock clock;
  const uint64_t deadline_ns = clock.NowNs() + 60 * kNsPerSecond;
  while (!Answers()) {
    FARLEAF_CHECK(clock.NowNs() < deadline_ns && process_->running(), process_->Output());
  }
}

bool ZookeeperUnderTest::Answers() const {
  auto target = dsm::ResolveTcp(address_);
  FARLEAF_CHECK(target.ok(), target.status());
  auto fd = dsm::StartConnect(*target);
  if (!fd.ok()) return false;
  pollfd waited{fd->get(), POLLOUT, 0};
  if (::poll(&waited, 1, 100) <= 0 || dsm::TakeConnectError(fd->get()) != 0) {
    ::poll(nullptr, 0, 20);
    return false;
  }
  if (::write(fd->get(), "srvr", 4) != 4) return false;
  waited.events = POLLIN;
  char answer[64] = {};
  if (::poll(&waited, 1, 1000) <= 0) return false;
  const ssize_t bytes = ::read(fd->get(), answer, sizeof answer - 1);
  return bytes > 0 && std::string(answer).starts_with("Zookeeper version");
}

}  // namespace farleaf
