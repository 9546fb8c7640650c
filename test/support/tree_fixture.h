// A tree on a pool inside the test process, and a small language to drive it:
//
//   LocalTree tree({.geometry = Geometry::Fixed8(256)});
//   tree.Put("k", "v"); EXPECT_EQ(tree.Get("k"), "v");
//
// Thread rule: LocalTree's own operations run on one thread; NewWorker serves others.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// An integer as a fixed8 key or value.
inline std::string Fixed(uint64_t number) {
  std::string bytes(8, '\0');
  StoreBig64(bytes.data(), number);
  return bytes;
}

class LocalTree {
 public:
  struct Options {
    Geometry geometry = Geometry::Fixed8();
    TreeOptions tree;
    dsm::LocalFabric::Options fabric{.servers = 2, .region_bytes = uint64_t{64} << 20};
    dsm::PoolOptions pool;
  };

  LocalTree() : LocalTree(Options()) {}
  explicit LocalTree(Options options) {
    auto fabric = dsm::LocalFabric::Create(options.fabric);
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    fabric_ = fabric->get();
    auto joined = dsm::Pool::Join(std::move(*fabric), options.pool, &clock_);
    FARLEAF_CHECK(joined.ok(), joined.status());
    pool_ = std::move(*joined);
    worker_ = NewWorker();
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    auto info = worker_->Run(CreateTree(op, *pool_, "test", options.geometry));
    FARLEAF_CHECK(info.ok(), info.status());
    tree_ = std::make_unique<BlinkTree>(pool_.get(), *info, options.tree);
  }

  BlinkTree& tree() { return *tree_; }
  dsm::Pool& pool() { return *pool_; }
  dsm::LocalFabric& fabric() { return *fabric_; }
  dsm::Worker& worker() { return *worker_; }
  const Clock& clock() const { return clock_; }
  std::unique_ptr<dsm::Worker> NewWorker() {
    auto worker = pool_->OpenWorker();
    FARLEAF_CHECK(worker.ok(), worker.status());
    return std::move(*worker);
  }
  /// What the last operation cost.
  const dsm::FabricCounts& cost() const { return cost_; }

  std::optional<std::string> Get(std::string_view key) {
    std::string value;
    OpContext op = Start();
    auto found = worker_->Run(tree_->Get(op, key, &value));
    FARLEAF_CHECK(found.ok(), found.status());
    return *found ? std::optional(value) : std::nullopt;
  }
  bool Insert(std::string_view key, std::string_view value) {
    OpContext op = Start();
    return Checked(worker_->Run(tree_->Insert(op, key, value)));
  }
  bool Put(std::string_view key, std::string_view value) {
    OpContext op = Start();
    return Checked(worker_->Run(tree_->Put(op, key, value)));
  }
  bool Update(std::string_view key, std::string_view value) {
    OpContext op = Start();
    return Checked(worker_->Run(tree_->Update(op, key, value)));
  }
  bool Delete(std::string_view key) {
    OpContext op = Start();
    return Checked(worker_->Run(tree_->Delete(op, key)));
  }
  std::vector<KeyValue> Scan(ScanRange range) {
    std::vector<KeyValue> rows;
    OpContext op = Start();
    Status status = worker_->Run(tree_->Scan(op, range, &rows));
    FARLEAF_CHECK(status.ok(), status);
    return rows;
  }

 private:
  OpContext Start() {
    cost_ = {};
    return OpContext{*worker_, cost_};
  }
  static bool Checked(Result<bool> result) {
    FARLEAF_CHECK(result.ok(), result.status());
    return *result;
  }

  MonotonicClock clock_;
  dsm::LocalFabric* fabric_ = nullptr;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::unique_ptr<BlinkTree> tree_;
  dsm::FabricCounts cost_;
};

}  // namespace farleaf::index
