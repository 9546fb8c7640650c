// OtherView: a tree as another compute server has it, with a cache and hints of its own.
//
// Thread rule: as LocalTree's own operations, on whose worker it runs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/tree_fixture.h"

namespace farleaf::index {

class OtherView {
 public:
  OtherView(LocalTree& local, TreeOptions options)
      : local_(local), tree_(&local.pool(), local.tree().info(), options) {}
  std::optional<std::string> Get(std::string_view key) {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    std::string value;
    const auto found = local_.worker().Run(tree_.Get(op, key, &value));
    FARLEAF_CHECK(found.ok(), found.status());
    return *found ? std::optional(value) : std::nullopt;
  }
  std::vector<std::optional<std::string>> MultiGet(std::span<const std::string_view> keys) {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    std::vector<std::optional<std::string>> values;
    const Status status = local_.worker().Run(tree_.MultiGet(op, keys, &values));
    FARLEAF_CHECK(status.ok(), status);
    return values;
  }
  bool Put(std::string_view key, std::string_view value) {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    const auto put = local_.worker().Run(tree_.Put(op, key, value));
    FARLEAF_CHECK(put.ok(), put.status());
    return *put;
  }
  bool Delete(std::string_view key) {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    const auto deleted = local_.worker().Run(tree_.Delete(op, key));
    FARLEAF_CHECK(deleted.ok(), deleted.status());
    return *deleted;
  }
  std::vector<KeyValue> Scan(ScanRange range) {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    std::vector<KeyValue> rows;
    const Status status = local_.worker().Run(tree_.Scan(op, range, &rows));
    FARLEAF_CHECK(status.ok(), status);
    return rows;
  }
  void WarmCache() {
    cost_ = {};
    OpContext op{local_.worker(), cost_};
    const Status status = local_.worker().Run(tree_.WarmCache(op));
    FARLEAF_CHECK(status.ok(), status);
  }
  BlinkTree& tree() { return tree_; }
  uint64_t round_trips() const { return cost_.round_trips; }
  const dsm::FabricCounts& cost() const { return cost_; }

 private:
  LocalTree& local_;
  BlinkTree tree_;
  dsm::FabricCounts cost_;
};

}  // namespace farleaf::index
