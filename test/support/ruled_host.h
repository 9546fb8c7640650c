// RuledHost: another host's trees as the test rules: under views and ids of its own, their operations held up or failed,
// their upkeep counted or left undone.
//
// Thread rule: thread-safe, but for set_before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "test/support/host_decorator.h"

namespace farleaf::test {

class RuledHost final : public HostDecorator {
 public:
  /// Awaited in front of each operation, which fails as it does.
  using Before = std::function<index::Task<Status>(index::OpContext&)>;

  using HostDecorator::HostDecorator;

  void set_view(uint32_t view) { view_ = view; }
  /// REQUIRES: no operation is running.
  void set_before(Before before) { before_ = std::move(before); }
  /// As behind a restart, ids mean other trees, or nothing, to a client that knows those before.
  void RenumberTrees() { ++id_shift_; }
  /// How often upkeep was asked for, whoever asked.
  uint64_t upkeeps() const { return upkeeps_; }
  /// So often it leaves something to be done from here on.
  void set_upkeeps_left(uint64_t upkeeps) { upkeeps_left_ = upkeeps; }

  uint32_t view() const override { return view_; }
  server::HostedTree Find(uint32_t id) override { return HostDecorator::Find(id - id_shift_); }
  dsm::Task<Result<std::vector<server::protocol::TreeInfo>>> List(dsm::OpContext& op) override;
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override;

 protected:
  std::unique_ptr<index::RangeIndex> Decorate(index::RangeIndex* index) override;
  server::HostedTree Decorated(server::HostedTree tree) override;

 private:
  std::atomic<uint32_t> view_{1}, id_shift_{0};
  std::atomic<uint64_t> upkeeps_{0}, upkeeps_left_{0};
  Before before_;
};

}  // namespace farleaf::test
