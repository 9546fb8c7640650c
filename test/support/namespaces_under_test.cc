#include "test/support/namespaces_under_test.h"

#include <unistd.h>

#include <cstdlib>

#include "dsm/base/check.h"

namespace farleaf {

namespace {

bool Succeeds(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}
void Do(const std::string& command) { FARLEAF_CHECK(Succeeds(command), command); }

}  // namespace

bool NamespacesUnderTest::IsPossible() {
  if (::geteuid() != 0) return false;
  const std::string pid = std::to_string(::getpid() % 100'000), probe = "farleaf-probe-" + pid;
  if (!Succeeds("ip netns add " + probe)) return false;
  const std::string link = "flp" + pid;
  const bool links =
      Succeeds("ip link add " + link + " type bridge && ip link del " + link) &&
      Succeeds("ip link add " + link + " type veth peer name " + link + "p && ip link del " + link);
  return Succeeds("ip netns del " + probe) && links;
}

NamespacesUnderTest::NamespacesUnderTest(size_t count)
    : count_(count),
      id_(std::to_string(::getpid() % 100'000)),
      net_("10." + std::to_string(100 + ::getpid() / 250 % 100) + "." +
           std::to_string(1 + ::getpid() % 250) + ".") {
  const std::string bridge = "flb" + id_;
  Do("ip link add " + bridge + " type bridge");
  Do("ip link set " + bridge + " up");
  for (const size_t own : {kHost, kService}) {
    Do("ip addr add " + AddressOf(own) + "/24 dev " + bridge);
  }
  for (size_t number = 1; number <= count_; ++number) {
    const std::string outside = "flv" + id_ + "-" + std::to_string(number);
    Do("ip netns add " + NameOf(number));
    Do("ip link add " + outside + " type veth peer name eth0 netns " + NameOf(number));
    Do("ip link set " + outside + " master " + bridge + " up");
    Do(In(number, "ip addr add " + AddressOf(number) + "/24 dev eth0"));
    Do(In(number, "ip link set eth0 up"));
    Do(In(number, "ip link set lo up"));
  }
}

NamespacesUnderTest::~NamespacesUnderTest() {
  for (size_t number = 1; number <= count_; ++number) {
    (void)Succeeds("ip netns del " + NameOf(number));
    (void)Succeeds("ip link del flv" + id_ + "-" + std::to_string(number));
  }
  (void)Succeeds("ip link del flb" + id_);
}

std::string NamespacesUnderTest::NameOf(size_t number) const {
  return "farleaf-" + id_ + "-" + std::to_string(number);
}
std::string NamespacesUnderTest::In(size_t number, const std::string& command) const {
  return "ip netns exec " + NameOf(number) + " " + command;
}
std::vector<std::string> NamespacesUnderTest::Prefix(size_t number) const {
  return {"/usr/sbin/ip", "netns", "exec", NameOf(number)};
}
std::string NamespacesUnderTest::AddressOf(size_t number) const {
  return net_ + std::to_string(number);
}

// To a hardware address that nobody has: the bridge drops it.
void NamespacesUnderTest::Part(size_t from, size_t to) {
  Do(In(from,
        "ip neigh replace " + AddressOf(to) + " lladdr 02:00:00:00:00:01 nud permanent dev eth0"));
}
void NamespacesUnderTest::Heal(size_t from, size_t to) {
  Do(In(from, "ip neigh del " + AddressOf(to) + " dev eth0"));
}

}  // namespace farleaf
