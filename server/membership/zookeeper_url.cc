#include "server/membership/zookeeper_url.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {

constexpr std::string_view kScheme = "zookeeper://";
constexpr size_t kHostsMax = 32;
constexpr size_t kChrootBytesMax = 256;

bool IsHost(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    return std::all_of(host.begin(), host.end(),
                       [](unsigned char c) { return std::isxdigit(c) || c == ':' || c == '.'; });
  }
  return !host.empty() && host.size() <= 255 &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '.' || c == '-' || c == '_';
         });
}

bool IsHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !IsHost(text.substr(0, colon))) return false;
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port != 0;
}

}  // namespace

Result<ZookeeperUrl> ParseZookeeperUrl(std::string_view url) {
  const auto refuse = [url](std::string_view why) {
    return Status::InvalidArgument(
        "membership URL '" + std::string(url.substr(0, 400)) +
        "' is not zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT: " + std::string(why));
  };
  if (!url.starts_with(kScheme)) return refuse("it begins otherwise");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return refuse("no /CHROOT stands behind the hosts");
  const std::string_view hosts = rest.substr(0, slash), chroot = rest.substr(slash);
  size_t count = 0;
  for (std::string_view left = hosts;; ++count) {
    const size_t comma = left.find(',');
    const std::string_view host = left.substr(0, comma);
    if (!IsHostAndPort(host)) return refuse("'" + std::string(host) + "' is no HOST:PORT");
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (count >= kHostsMax) return refuse("at most " + std::to_string(kHostsMax) + " hosts");
  if (chroot == "/" || chroot.size() > kChrootBytesMax || !CheckPath(chroot).ok()) {
    return refuse("'" + std::string(chroot.substr(0, 100)) +
                  "' is no CHROOT (/NAME or /NAME/NAME, of printable ASCII)");
  }
  if (chroot == "/zookeeper" || chroot.starts_with("/zookeeper/")) {
    return refuse("/zookeeper is ZooKeeper's own");
  }
  return ZookeeperUrl{std::string(hosts), std::string(chroot)};
}

}  // namespace farleaf::server::membership
