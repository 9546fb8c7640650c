// HostDecorator: another host, whose trees a test sees, or bends, on their way to a front end.
//
// Thread rule: thread-safe, if what is derived is. It outlives the servers that use it; the host behind it outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/frontend/tree_host.h"

namespace farleaf::test {

class HostDecorator : public server::TreeHost {
 public:
  explicit HostDecorator(server::TreeHost* host) : host_(*host) {}

  uint32_t view() const override { return host_.view(); }
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override { return host_.OpenWorker(); }
  dsm::Task<Result<server::HostedTree>> Open(dsm::OpContext& op, std::string_view name) override;
  dsm::Task<Result<server::HostedTree>> Create(dsm::OpContext& op,
                                               const server::NewTree& tree) override;
  dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> List(dsm::OpContext& op) override {
    return host_.List(op);
  }
  server::HostedTree Find(uint32_t id) override { return Decorated(host_.Find(id)); }
  Status CheckDurability(WriteDurability wanted) const override {
    return host_.CheckDurability(wanted);
  }
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override { return host_.Upkeep(op); }
  void AppendStats(std::string* text) const override { host_.AppendStats(text); }
  void AppendMetrics(server::MetricsText* out) const override { host_.AppendMetrics(out); }

 protected:
  /// In front of a tree of the host behind, for as long as this lives.
  virtual std::unique_ptr<index::RangeIndex> Decorate(index::RangeIndex* index) = 0;
  virtual server::HostedTree Decorated(server::HostedTree tree);
  server::TreeHost& host() const { return host_; }

 private:
  server::TreeHost& host_;
  std::mutex mutex_;  // guards decorated_
  std::map<index::RangeIndex*, std::unique_ptr<index::RangeIndex>> decorated_;
};

}  // namespace farleaf::test
