// A tree on a pool inside the test process, and a small language to drive it:
//
//   LocalTree tree({.geometry = Geometry::Fixed8(256)});
//   tree.Put("k", "v"); EXPECT_EQ(tree.Get("k"), "v");
//
// Thread rule: LocalTree's own operations run on one thread; NewWorker serves others.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// An integer as a fixed8 key or value.
std::string Fixed(uint64_t number);

class LocalTree {
 public:
  struct Options {
    Geometry geometry = Geometry::Fixed8();
    TreeOptions tree;
    dsm::LocalFabric::Options fabric{.servers = 2, .region_bytes = uint64_t{64} << 20};
    dsm::PoolOptions pool;
  };

  LocalTree() : LocalTree(Options()) {}
  explicit LocalTree(Options options);
  ~LocalTree();

  BlinkTree& tree() { return *tree_; }
  dsm::Pool& pool() { return *pool_; }
  dsm::LocalFabric& fabric() { return *fabric_; }
  dsm::Worker& worker() { return *worker_; }
  const Clock& clock() const { return clock_; }
  std::unique_ptr<dsm::Worker> NewWorker();
  /// What the last operation cost.
  const dsm::FabricCounts& cost() const { return cost_; }

  std::optional<std::string> Get(std::string_view key);
  bool Insert(std::string_view key, std::string_view value);
  bool Put(std::string_view key, std::string_view value);
  bool Update(std::string_view key, std::string_view value);
  bool Delete(std::string_view key);
  std::vector<KeyValue> Scan(ScanRange range);

 private:
  OpContext Start();
  static bool Checked(Result<bool> result);

  MonotonicClock clock_;
  dsm::LocalFabric* fabric_ = nullptr;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::unique_ptr<BlinkTree> tree_;
  dsm::FabricCounts cost_;
};

}  // namespace farleaf::index
