// InProcessDirectory: memory servers and their users in one process, as in tests.
//
// Thread rule: see Directory.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "dsm/directory.h"

namespace farleaf::dsm {

class InProcessDirectory final : public Directory {
 public:
  explicit InProcessDirectory(std::string cluster) : cluster_(std::move(cluster)) {}
  const std::string& cluster() const override { return cluster_; }
  Result<std::vector<ServerEndpoint>> List() override;
  Status Publish(const ServerEndpoint& endpoint) override;
  Status Withdraw(const ServerEndpoint& endpoint) override;
  uint64_t renew_interval_ms() const override { return 0; }

 private:
  const std::string cluster_;
  std::mutex mutex_;  // guards servers_
  std::map<ServerId, ServerEndpoint> servers_;
};

}  // namespace farleaf::dsm
