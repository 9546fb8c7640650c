// A pool whose compute servers do what a test rules, batch by batch (test/support/scripted_fabric.h):
//
//   ScriptedPool servers(1);
//   ScriptedMember a(servers), b(servers);
//   a.Create("tree", Geometry::Parted(4)); b.Open("tree");
//   a.Put(1, 1);                                   // to its end
//   auto put = a.Begin(a.tree().Put(...)); a.Turn(); // beside others
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/check.h"
#include "index/blink/leaf_codec.h"
#include "index/blink/tree.h"
#include "test/support/crashing_fabric.h"
#include "test/support/scripted_fabric.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {

class ScriptedPool {
 public:
  explicit ScriptedPool(uint32_t servers) {
    auto created = dsm::LocalFabric::Create({.servers = servers,
                                             .region_bytes = uint64_t{4} << 20,
                                             .chunk_bytes = dsm::kChunkBytesMin,
                                             .hugepages = dsm::Hugepages::kNever});
    FARLEAF_CHECK(created.ok(), created.status());
    servers_ = std::move(*created);
  }
  dsm::LocalFabric* servers() { return servers_.get(); }
  ManualClock* clock() { return &clock_; }
  uint64_t Word(GlobalAddress at) {
    return LoadLittle<uint64_t>(&servers_->region_bytes(at.server())[at.offset()]);
  }
  /// The compute server that has locked a page, by its lock word; 0: none.
  dsm::MemberId HolderOf(GlobalAddress lock) {
    const auto word = dsm::LockWord::Decode(Word(lock));
    return word.state == dsm::LockWord::State::kLocked ? word.owner : dsm::MemberId{0};
  }
  std::span<std::byte> Bytes(GlobalAddress at, size_t length) {
    return servers_->region_bytes(at.server()).subspan(at.offset(), length);
  }

 private:
  std::unique_ptr<dsm::LocalFabric> servers_;
  ManualClock clock_;
};

/// One compute server with one thread.
class ScriptedMember {
 public:
  explicit ScriptedMember(ScriptedPool& servers)
      : ScriptedMember(servers, std::make_unique<dsm::ScriptedFabric>(servers.servers(),
                                                                      servers.clock(), &script_)) {}
  ScriptedMember(ScriptedPool& servers, std::unique_ptr<dsm::Fabric> fabric) : servers_(servers) {
    auto joined =
        dsm::Pool::Join(std::move(fabric), {.allocator = {.grace_ms = 0}}, servers.clock());
    FARLEAF_CHECK(joined.ok(), joined.status());
    pool_ = std::move(*joined);
    worker_ = std::move(*pool_->OpenWorker());
  }

  void Create(const std::string& name, Geometry geometry, TreeOptions options = {}) {
    OpContext op = Op();
    Add(Run(CreateTree(op, *pool_, name, geometry)), options);
  }
  /// And reads its search layer.
  void Open(const std::string& name, TreeOptions options = {}) {
    OpContext op = Op();
    Add(Run(OpenTree(op, *pool_, name)), options);
    Status warmed = Run(tree(trees_.size() - 1).WarmCache(op));
    FARLEAF_CHECK(warmed.ok(), warmed);
  }
  BlinkTree& tree(size_t i = 0) { return *trees_[i]; }
  dsm::Pool& pool() { return *pool_; }
  dsm::Worker& worker() { return *worker_; }
  dsm::MemberId id() const { return pool_->self().id; }
  dsm::BatchScript& script() { return script_; }
  OpContext Op() { return OpContext{*worker_, counts_}; }
  template <typename T>
  T Run(Task<T> task) {
    return worker_->Run(std::move(task));
  }

  // To its end; keys and values are numbers.
  void Put(uint64_t key, uint64_t value, size_t i = 0) {
    OpContext op = Op();
    auto put = Run(tree(i).Put(op, Fixed(key), Fixed(value)));
    EXPECT_TRUE(put.ok()) << put.status();
  }
  Status Delete(uint64_t key, size_t i = 0) {
    OpContext op = Op();
    auto deleted = Run(tree(i).Delete(op, Fixed(key)));
    EXPECT_TRUE(!deleted.ok() || *deleted) << key << " was not there";
    return deleted.status();
  }
  /// Nullopt: absent, or not to be learned.
  std::optional<uint64_t> Get(uint64_t key, size_t i = 0) {
    OpContext op = Op();
    std::string value;
    auto found = Run(tree(i).Get(op, Fixed(key), &value));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && *found ? std::optional(LoadBig64(value.data())) : std::nullopt;
  }

  // Beside others.
  struct Begun {
    std::optional<Status> ended;
  };
  std::shared_ptr<Begun> BeginPut(uint64_t key, uint64_t value, size_t i = 0) {
    auto begun = std::make_shared<Begun>();
    worker_->Spawn(PutAndTell(this, i, key, value, begun));
    return begun;
  }
  std::shared_ptr<Begun> BeginDelete(uint64_t key, size_t i = 0) {
    auto begun = std::make_shared<Begun>();
    worker_->Spawn(DeleteAndTell(this, i, key, begun));
    return begun;
  }
  void Turn(int turns = 1) {
    worker_->GoOnline();
    for (int turn = 0; turn < turns; ++turn) {
      worker_->RunOnce(dsm::Worker::Idle::kReturn);
      servers_.clock()->AdvanceNs(1'000);
    }
    worker_->GoOffline();
  }
  void RunUntilIdle() { worker_->RunUntilIdle(); }

  /// The leaves in the order of keys, as this member's cache names them.
  CachedLeaves Leaves(size_t i = 0) {
    CachedLeaves leaves;
    worker_->GoOnline();
    tree(i).cache().LeavesFrom(Fixed(0), std::nullopt, 10'000, &leaves);
    worker_->GoOffline();
    return leaves;
  }
  GlobalAddress LockOf(GlobalAddress page, Level level = 0, size_t i = 0) {
    return page + tree(i).info().geometry.image_bytes(level);
  }
  /// The keys that stand in a leaf of the pool.
  std::vector<uint64_t> KeysIn(GlobalAddress leaf, size_t i = 0) {
    const Geometry& geometry = tree(i).info().geometry;
    PageBuffer raw;
    const auto bytes = servers_.Bytes(leaf, geometry.image_bytes(0));
    std::copy(bytes.begin(), bytes.end(), raw.bytes);
    FARLEAF_CHECK(OpenPage(geometry, 0, raw.image(geometry, 0)) == OpenOutcome::kValid, leaf);
    const ConstNode node(geometry, raw.image(geometry, 0));
    std::vector<uint64_t> keys;
    for (size_t k = 0; k < node.count(); ++k) keys.push_back(LoadBig64(node.Key(k).data()));
    return keys;
  }
  /// No finding, and pages as many as there are are where they belong.
  void ExpectWholePool() {
    OpContext op = Op();
    auto report = Run(CheckPool(op, *pool_, {.looks_max = 3}));
    ASSERT_TRUE(report.ok()) << report.status();
    for (const Finding& finding : report->findings.described()) ADD_FAILURE() << finding.text;
  }
  void ExpectLeavesInGoodOrder() {
    trees_.clear();
    worker_.reset();
    Status left = pool_->Leave();
    EXPECT_TRUE(left.ok()) << left;
  }
  /// It is no more, and all memory servers know.
  void Die() {
    dsm::CrashingFabric::Fence(*servers_.servers(), pool_->self());
    pool_->Abandon();
  }

 private:
  void Add(Result<TreeInfo> info, TreeOptions options) {
    FARLEAF_CHECK(info.ok(), info.status());
    trees_.push_back(std::make_unique<BlinkTree>(pool_.get(), *info, options));
  }
  static Task<void> PutAndTell(ScriptedMember* self, size_t i, uint64_t key, uint64_t value,
                               std::shared_ptr<Begun> begun) {
    OpContext op = self->Op();
    const std::string key_bytes = Fixed(key), value_bytes = Fixed(value);
    auto put = co_await self->tree(i).Put(op, key_bytes, value_bytes);
    begun->ended = put.status();
  }
  static Task<void> DeleteAndTell(ScriptedMember* self, size_t i, uint64_t key,
                                  std::shared_ptr<Begun> begun) {
    OpContext op = self->Op();
    const std::string key_bytes = Fixed(key);
    auto deleted = co_await self->tree(i).Delete(op, key_bytes);
    begun->ended = deleted.status();
  }

  ScriptedPool& servers_;
  dsm::BatchScript script_;
  dsm::FabricCounts counts_;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::vector<std::unique_ptr<BlinkTree>> trees_;  // destroyed first
};

}  // namespace farleaf::index
