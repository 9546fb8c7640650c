#include "dsm/bootstrap/open_directory.h"

#include <charconv>

#include "dsm/bootstrap/file_directory.h"
#include "dsm/bootstrap/memcached_directory.h"
#include "dsm/handshake.h"

namespace farleaf::dsm {

namespace {

Result<std::unique_ptr<Directory>> OpenMemcached(std::string_view url, std::string_view rest) {
  const Status bad = Status::InvalidArgument("bootstrap URL '" + std::string(url) +
                                             "' is not memcached://HOST:PORT/CLUSTER");
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return bad;
  const std::string_view host_port = rest.substr(0, slash);
  const std::string_view cluster = rest.substr(slash + 1);
  const size_t colon = host_port.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  std::string_view host = host_port.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string_view port_text = host_port.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port == 0) return bad;
  if (Status status = CheckClusterName(cluster); !status.ok()) {
    return status.WithContext("bootstrap URL '" + std::string(url) + "'");
  }
  return std::unique_ptr<Directory>(std::make_unique<MemcachedDirectory>(
      std::string(host), port, std::string(cluster), MemcachedDirectoryOptions{}));
}

}  // namespace

Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view url) {
  constexpr std::string_view kMemcached = "memcached://", kFile = "file:";
  if (url.starts_with(kMemcached)) return OpenMemcached(url, url.substr(kMemcached.size()));
  if (url.starts_with(kFile)) {
    auto directory = FileDirectory::Open(std::string(url.substr(kFile.size())));
    if (!directory.ok()) return directory.status();
    return std::unique_ptr<Directory>(std::move(*directory));
  }
  return Status::InvalidArgument("bootstrap URL '" + std::string(url) +
                                 "' is neither memcached://HOST:PORT/CLUSTER nor file:PATH");
}

}  // namespace farleaf::dsm
