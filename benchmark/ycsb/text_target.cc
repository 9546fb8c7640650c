#include "benchmark/ycsb/text_target.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "benchmark/ycsb/text_connection.h"
#include "benchmark/ycsb/text_protocol.h"
#include "benchmark/ycsb/text_session.h"
#include "client/password.h"

namespace farleaf::ycsb {

namespace {

constexpr std::string_view kRedis = "redis", kMemcached = "memcached";
constexpr size_t kWorkloadKeyBytesMax = 4 + 64;  // "user" and as many digits as there may be

/// What is behind `protocol` in a URL of it; nullopt: it is none.
std::optional<std::string_view> AddressOf(std::string_view url, std::string_view protocol) {
  if (!url.starts_with(protocol)) return std::nullopt;
  url.remove_prefix(protocol.size());
  if (!url.starts_with(':') && !url.starts_with("+unix:")) return std::nullopt;
  return url;
}

Result<client::Endpoint> ParseAddress(std::string_view address, const std::string& url) {
  constexpr std::string_view kTcp = "://", kUnix = "+unix:";
  if (address.starts_with(kUnix)) return client::ParseUnixPath(address.substr(kUnix.size()));
  if (!address.starts_with(kTcp)) {
    const std::string protocol = url.substr(0, url.find(':'));
    return Status::InvalidArgument("\"" + url + "\": " + protocol + "://HOST:PORT or " + protocol +
                                   "+unix:PATH is wanted");
  }
  auto endpoint = client::ParseHostPort(address.substr(kTcp.size()));
  if (endpoint.ok() && endpoint->port == 0) {
    return Status::InvalidArgument("\"" + url + "\" names port 0");
  }
  return endpoint;
}

Status CheckOptions(const TargetOptions& options, const TextProtocol& protocol) {
  if (options.scans) {
    return Status::InvalidArgument(
        "scanproportion: the protocol has no scans; take a workload without them (-p "
        "scanproportion=0), or a target with an order of keys");
  }
  if (options.access.tls) {
    return Status::InvalidArgument("--tls: redis: and memcached: targets are spoken to in clear");
  }
  const std::string prefix = options.tree + ":";
  if (prefix.size() + kWorkloadKeyBytesMax > protocol.key_bytes_max()) {
    return Status::InvalidArgument(
        "farleaf.tree: a name of " + std::to_string(options.tree.size()) +
        " bytes, of which the protocol's keys take " +
        std::to_string(protocol.key_bytes_max() - kWorkloadKeyBytesMax - 1) + " at most");
  }
  if (protocol.has_binary_keys()) return Status::Ok();
  if (options.key_layout == KeyLayout::kFixed8) {
    return Status::InvalidArgument(
        "farleaf.keys=fixed8: the protocol's keys are printable text, not any 8 bytes; run with "
        "-p farleaf.keys=bytes");
  }
  const auto prints = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(prefix.begin(), prefix.end(), prints)) {
    return Status::InvalidArgument("farleaf.tree='" + options.tree +
                                   "': the protocol's keys are printable ASCII without spaces");
  }
  return Status::Ok();
}

class TextTarget final : public Target {
 public:
  TextTarget(TextServer server, const TargetOptions& options, const Clock* clock)
      : server_(std::move(server)), tree_(options.tree), clock_(clock) {}

  Result<std::unique_ptr<Session>> OpenSession() override {
    return OpenTextSession(server_, tree_ + ":", clock_);
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override { return Status::Ok(); }

 private:
  const TextServer server_;
  const std::string tree_;
  const Clock* const clock_;
};

}  // namespace

bool NamesTextTarget(std::string_view url) {
  return AddressOf(url, kRedis).has_value() || AddressOf(url, kMemcached).has_value();
}

Result<std::unique_ptr<Target>> OpenTextTarget(const std::string& url, const TargetOptions& options,
                                               const Clock* clock) {
  const bool redis = AddressOf(url, kRedis).has_value();
  auto endpoint = ParseAddress(*AddressOf(url, redis ? kRedis : kMemcached), url);
  if (!endpoint.ok()) return endpoint.status();
  TextServer server{.url = url,
                    .endpoint = std::move(*endpoint),
                    .protocol = redis ? NewRedisProtocol() : NewMemcachedProtocol(),
                    .password = {},
                    .timeout_ms = options.operation_timeout_ms};
  FARLEAF_RETURN_IF_ERROR(CheckOptions(options, *server.protocol));
  if (!options.access.password_file.empty()) {
    auto passwords = client::ReadPasswords(options.access.password_file);
    if (!passwords.ok()) return passwords.status();
    server.password = passwords->front();
  }
  auto target = std::make_unique<TextTarget>(std::move(server), options, clock);
  auto session = target->OpenSession();  // bad news comes early
  if (!session.ok()) return session.status();
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
