#include "server/listen_check.h"

#include <netinet/in.h>

#include "client/endpoint.h"
#include "client/internal/socket.h"

namespace farleaf::server {

namespace {

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

}  // namespace

Status CheckLoopback(const std::vector<std::string>& listen, std::string_view otherwise) {
  for (const std::string& address : listen) {
    const auto endpoint = client::ParseHostPort(address);
    if (!endpoint.ok()) return endpoint.status();
    const auto resolved = client::internal::Resolve(*endpoint);
    if (!resolved.ok()) return Status::InvalidArgument(std::string(resolved.status().message()));
    for (const auto& each : *resolved) {
      if (IsLoopback(each.storage)) continue;
      return Status::InvalidArgument("listen address \"" + address +
                                     "\" is not a loopback address; " + std::string(otherwise));
    }
  }
  return Status::Ok();
}

}  // namespace farleaf::server
