// ViewedHost: another host's trees under views of its own.
//
// Thread rule: as the other's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/frontend/tree_host.h"

namespace farleaf::test {

class ViewedHost final : public server::TreeHost {
 public:
  explicit ViewedHost(server::TreeHost* host) : host_(host) {}
  void set_view(uint32_t view) { view_ = view; }

  uint32_t view() const override { return view_; }
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override { return host_->OpenWorker(); }
  dsm::Task<Result<server::HostedTree>> Open(dsm::OpContext& op, std::string_view name) override {
    return host_->Open(op, name);
  }
  dsm::Task<Result<server::HostedTree>> Create(dsm::OpContext& op,
                                               const server::NewTree& tree) override {
    return host_->Create(op, tree);
  }
  dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> List(dsm::OpContext& op) override {
    return host_->List(op);
  }
  server::HostedTree Find(uint32_t id) override { return host_->Find(id); }
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override { return host_->Upkeep(op); }
  void AppendStats(std::string* text) const override { host_->AppendStats(text); }

 private:
  server::TreeHost* const host_;
  std::atomic<uint32_t> view_{1};
};

}  // namespace farleaf::test
