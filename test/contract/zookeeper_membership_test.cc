// What is particular to ZooKeeper: its URLs, and peers that are no ZooKeeper.
#include "server/membership/zookeeper_membership.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "dsm/socket.h"
#include "server/membership/zookeeper_url.h"

namespace farleaf::server::membership {
namespace {

TEST(ZookeeperUrlTest, HostsAndChrootAreTakenApart) {
  auto one = ParseZookeeperUrl("zookeeper://127.0.0.1:2181/farleaf");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->hosts + " " + one->chroot, "127.0.0.1:2181 /farleaf");
  auto three = ParseZookeeperUrl("zookeeper://a.example:1,b-2:65535,[::1]:2181/farleaf/rack7");
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->hosts + " " + three->chroot, "a.example:1,b-2:65535,[::1]:2181 /farleaf/rack7");
}

TEST(ZookeeperUrlTest, WrongUrlsAreRefused) {
  const std::string long_name(300, 'x');
  for (const std::string& url : std::vector<std::string>{"",
                                                         "memcached://h:1/c",
                                                         "zookeeper://",
                                                         "zookeeper://h:1",
                                                         "zookeeper://h:1/",
                                                         "zookeeper:///c",
                                                         "zookeeper://h/c",
                                                         "zookeeper://:1/c",
                                                         "zookeeper://h:0/c",
                                                         "zookeeper://h:65536/c",
                                                         "zookeeper://h:1x/c",
                                                         "zookeeper://h:1,/c",
                                                         "zookeeper://h:1,,i:1/c",
                                                         "zookeeper://h:1/c/",
                                                         "zookeeper://h:1/a b",
                                                         "zookeeper://h:1//c",
                                                         "zookeeper://h:1/../c",
                                                         "zookeeper://h;x:1/c",
                                                         "zookeeper://h:1/zookeeper",
                                                         "zookeeper://h:1/zookeeper/c",
                                                         "zookeeper://[x]:1/c",
                                                         "zookeeper://h:1/" + long_name,
                                                         "zookeeper://" + long_name + ":1/c"}) {
    auto parsed = ParseZookeeperUrl(url);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << url;
  }
}

/// A port at which whoever connects is told `answer`, or nothing.
class StrangePeer {
 public:
  explicit StrangePeer(std::string answer) : answer_(std::move(answer)) {
    auto any = dsm::ResolveTcp("127.0.0.1:0");
    FARLEAF_CHECK(any.ok(), any.status());
    auto listening = dsm::Listen(*any);
    FARLEAF_CHECK(listening.ok(), listening.status());
    listening_ = std::move(*listening);
    thread_ = std::thread([this] {
      while (!stopping_) {
        dsm::UniqueFd peer(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer.valid()) {
          ::usleep(1'000);
          continue;
        }
        if (::send(peer.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL) >= 0) ::usleep(10'000);
      }
    });
  }
  ~StrangePeer() {
    stopping_ = true;
    thread_.join();
  }
  std::string address() const { return *dsm::LocalTcpAddress(listening_.get()); }

 private:
  const std::string answer_;
  dsm::UniqueFd listening_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::string ErrorOf(const std::string& hosts) {
  const MonotonicClock clock;
  auto opened = ZookeeperMembership::Open("zookeeper://" + hosts + "/farleaf",
                                          {.connect_timeout_ms = 300}, &clock);
  return opened.status().ToString();
}

TEST(ZookeeperMembershipTest, NobodyThereIsSaidWithTheAddressAndWhatToDo) {
  EXPECT_EQ(ErrorOf("127.0.0.1:1"),
            "unavailable: no ZooKeeper at 127.0.0.1:1 has answered within 300 ms: is one running "
            "there (echo srvr | nc HOST PORT), and can it be reached from here?");
}

TEST(ZookeeperMembershipTest, PeersThatAreNoZookeeperAreSurvived) {
  for (const std::string& answer :
       {std::string(), std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string(64, '\xff'),
        std::string(64, '\0'), std::string("\0\0\0\x28", 4) + std::string(40, '\x7f')}) {
    const StrangePeer peer(answer);
    const std::string error = ErrorOf(peer.address());
    EXPECT_EQ(error.substr(0, 12), "unavailable:") << error;
    EXPECT_NE(error.find(peer.address()), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace farleaf::server::membership
