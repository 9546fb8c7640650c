// MemcachedDirectory: memory servers announce themselves in a memcached, with an expiry that they
// renew, so that a restarted memcached heals and a dead server vanishes.
//
//   key farleaf:CLUSTER:servers      ids of all servers ever announced, "0 1 2"; never expires
//   key farleaf:CLUSTER:server:ID    "ENDPOINT REGION_BYTES INCARNATION"; expires
//
// Both change by `add` and `cas` only, so that two servers that claim one id do not overwrite each
// other: the later one is refused while the earlier one's announcement lives.
//
// Thread rule: see Directory; one call at a time talks to memcached.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "dsm/directory.h"

struct memcached_st;

namespace farleaf::dsm {

struct MemcachedDirectoryOptions {
  uint32_t expiry_s = 15;  ///< of an announcement; renewed three times as often
  uint64_t timeout_ms = 1'000;
};

/// The value of a server's key. Corruption: it is none.
std::string EncodeAnnouncement(const ServerEndpoint& endpoint);
Result<ServerEndpoint> ParseAnnouncement(ServerId server, std::string_view value);

class MemcachedDirectory final : public Directory {
 public:
  /// Does not connect yet.
  MemcachedDirectory(std::string host, uint16_t port, std::string cluster,
                     const MemcachedDirectoryOptions& options);
  ~MemcachedDirectory() override;

  const std::string& cluster() const override { return cluster_; }
  /// Unavailable, naming memcached's address, if it does not answer.
  Result<std::vector<ServerEndpoint>> List() override;
  Status Publish(const ServerEndpoint& endpoint) override;
  Status Withdraw(const ServerEndpoint& endpoint) override;
  uint64_t renew_interval_ms() const override { return options_.expiry_s * uint64_t{1000} / 3; }

 private:
  struct Value {
    std::string text;
    uint64_t cas = 0;
  };
  enum class Stored : uint8_t { kDone, kRaced };

  /// All REQUIRE mutex_.
  Status Connect();
  Result<std::optional<Value>> Get(const std::string& key);
  /// Adds if `old` is empty, else replaces exactly that value.
  Result<Stored> Store(const std::string& key, const std::string& text,
                       const std::optional<Value>& old, uint32_t expiry_s);
  Status Failure(int code);
  Status PublishServer(const ServerEndpoint& endpoint);
  Status PublishId(ServerId server);
  Result<std::vector<ServerId>> ListIds();

  std::string IndexKey() const { return "farleaf:" + cluster_ + ":servers"; }
  std::string ServerKey(ServerId server) const {
    return "farleaf:" + cluster_ + ":server:" + std::to_string(server);
  }

  const std::string host_;
  const uint16_t port_;
  const std::string cluster_;
  const MemcachedDirectoryOptions options_;
  std::mutex mutex_;  // guards connection_
  memcached_st* connection_ = nullptr;
};

}  // namespace farleaf::dsm
