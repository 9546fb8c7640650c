// Where a compute server listens: farleaf://HOST:PORT, farleaf://[V6]:PORT or farleaf+unix:PATH; with farleaf+ring:PATH
// a ring is opened through that Unix socket. Several servers: farleaf://HOST:PORT,HOST:PORT, or whole URLs with commas
// between them.
//
// Thread rule: value types and pure functions.
#pragma once

#include <sys/un.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"

namespace farleaf::client {

struct Endpoint {
  std::string host;  ///< empty: a Unix socket
  uint16_t port = 0;
  std::string unix_path;  ///< empty: TCP
  bool ring = false;

  bool is_unix() const { return !unix_path.empty(); }
  std::string ToString() const {
    if (is_unix()) return (ring ? "farleaf+ring:" : "farleaf+unix:") + unix_path;
    const bool v6 = host.find(':') != std::string::npos;
    return "farleaf://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  }
  bool operator==(const Endpoint&) const = default;
};

/// "HOST:PORT" or "[V6]:PORT". Port 0 is allowed (a listener's free choice).
inline Result<Endpoint> ParseHostPort(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return Status::InvalidArgument("address \"" + std::string(text) + "\": " + std::string(why) +
                                   "; HOST:PORT or [V6ADDRESS]:PORT is wanted");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("no port");
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("an IPv6 address needs brackets");
  }
  if (host.empty()) return refuse("no host");
  Endpoint endpoint;
  endpoint.host = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) return refuse("no valid port");
  return endpoint;
}

inline Result<Endpoint> ParseUnixPath(std::string_view path) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Status::InvalidArgument(
        "Unix socket path \"" + std::string(path) + "\" has " + std::to_string(path.size()) +
        " bytes; 1 to " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " are allowed");
  }
  Endpoint endpoint;
  endpoint.unix_path = path;
  return endpoint;
}

inline Result<Endpoint> ParseEndpoint(std::string_view url) {
  constexpr std::string_view kTcp = "farleaf://", kUnix = "farleaf+unix:", kRing = "farleaf+ring:";
  if (url.starts_with(kUnix)) return ParseUnixPath(url.substr(kUnix.size()));
  if (url.starts_with(kRing)) {
    auto endpoint = ParseUnixPath(url.substr(kRing.size()));
    if (endpoint.ok()) endpoint->ring = true;
    return endpoint;
  }
  if (!url.starts_with(kTcp)) {
    return Status::InvalidArgument("\"" + std::string(url) +
                                   "\" is no compute server: farleaf://HOST:PORT, "
                                   "farleaf+unix:PATH or farleaf+ring:PATH is wanted");
  }
  auto endpoint = ParseHostPort(url.substr(kTcp.size()));
  if (endpoint.ok() && endpoint->port == 0) {
    return Status::InvalidArgument("\"" + std::string(url) + "\" names port 0");
  }
  return endpoint;
}

/// Of one or more servers. What has no scheme of its own goes on with the one before: as another HOST:PORT, or as the
/// same path, which may have commas in it.
inline Result<std::vector<Endpoint>> ParseEndpoints(std::string_view urls) {
  constexpr std::string_view kTcp = "farleaf://";
  std::vector<std::string> each;
  while (true) {
    const size_t comma = urls.find(',');
    const std::string_view next = urls.substr(0, comma);
    if (each.empty() || next.starts_with("farleaf:") || next.starts_with("farleaf+")) {
      each.emplace_back(next);
    } else if (each.back().starts_with(kTcp)) {
      each.push_back(std::string(kTcp) + std::string(next));
    } else {
      each.back().append(",").append(next);
    }
    if (comma == std::string_view::npos) break;
    urls.remove_prefix(comma + 1);
  }
  std::vector<Endpoint> endpoints;
  for (const std::string& url : each) {
    auto endpoint = ParseEndpoint(url);
    if (!endpoint.ok()) return endpoint.status();
    endpoints.push_back(std::move(*endpoint));
  }
  return endpoints;
}

}  // namespace farleaf::client
