// Rack: compute servers in virtual time on a fabric where every round trip takes 2 us and nothing else takes any time, so that
// each figure is exact; and what clients of theirs ask for.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/ycsb/distributions.h"
#include "dsm/pool.h"
#include "dsm/sim/model_world.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {

inline constexpr uint64_t kRoundTripNs = 2'000;

inline dsm::CostModel OnlyTheWire(uint64_t compute_servers, uint64_t memory_servers) {
  dsm::CostModel model;
  model.memory_servers = memory_servers;
  model.compute_servers = compute_servers;
  model.cores = 16;
  model.wire_ns = kRoundTripNs / 2;
  model.request_rate_mps = model.read_rate_mps = model.write_rate_mps = model.atomic_rate_mps = 1e6;
  model.bandwidth_gbps = 1e6;
  return model;
}

class Rack {
 public:
  struct Member {
    std::unique_ptr<dsm::Pool> pool;
    std::unique_ptr<dsm::Worker> worker;
    std::unique_ptr<BlinkTree> tree;
    dsm::FabricCounts counts;
    uint64_t done = 0;
    uint64_t latency_ns_max = 0;
    uint64_t latency_ns_sum = 0;
    uint64_t ended_ns = 0;    ///< the last operation
    uint64_t least_done = 0;  ///< by any other compute server, then
  };

  explicit Rack(uint64_t compute_servers = 1, TreeOptions options = {},
                Geometry geometry = Geometry::Parted(), size_t value_bytes = 8,
                uint64_t memory_servers = 2)
      : geometry_(geometry), value_bytes_(value_bytes) {
    auto world = dsm::ModelWorld::Create({.model = OnlyTheWire(compute_servers, memory_servers),
                                          .region_bytes = uint64_t{256} << 20});
    FARLEAF_CHECK(world.ok(), world.status());
    world_ = std::move(*world);
    for (uint64_t i = 0; i < compute_servers; ++i) Join(i, options);
  }
  ~Rack() {
    world_->RemoveThreads();
    for (Member& member : members_) {
      member.tree.reset();
      member.worker.reset();
      Status left = member.pool->Leave();
      EXPECT_TRUE(left.ok()) << left;
    }
  }

  Member& member(size_t i = 0) { return members_[i]; }
  const TreeStats& stats(size_t i = 0) const { return members_[i].tree->stats(); }
  uint64_t now_ns() const { return world_->clock().NowNs(); }

  void Load(uint64_t keys) {
    Member& first = members_[0];
    for (uint64_t i = 0; i < keys; ++i) {
      OpContext op{*first.worker, first.counts};
      auto put = first.worker->Run(first.tree->Put(op, Key(i), Value(i)));
      FARLEAF_CHECK(put.ok(), put.status());
    }
    for (Member& member : members_) {
      OpContext op{*member.worker, member.counts};
      Status warm = member.worker->Run(member.tree->WarmCache(op));
      FARLEAF_CHECK(warm.ok(), warm);
    }
  }

  enum class Kind : uint8_t { kGet, kUpdate };
  struct Plan {
    Kind kind = Kind::kGet;
    uint64_t clients = 1;     ///< of each compute server
    uint64_t operations = 1;  ///< of each client
    uint64_t keys = 1;        ///< 0..keys-1
    bool zipfian = false;     ///< else client c's are c, c + clients, ... of them
    uint64_t after_ns = 0;    ///< between the first client's beginning and the others'
  };
  /// Runs it on all compute servers from now on; the ns that it took.
  uint64_t Run(const Plan& plan) {
    for (Member& member : members_) {
      member.counts = {};
      member.done = member.latency_ns_max = member.latency_ns_sum = 0;
    }
    std::optional<ycsb::ScrambledZipfian> zipfian;
    if (plan.zipfian) zipfian.emplace(0, plan.keys, ycsb::ZipfianRanks::kRecords);
    popular_ = zipfian ? &*zipfian : nullptr;
    return RunClients(plan.clients, [this, &plan](Member& member, uint64_t client) {
      return Client(member, plan, client);
    });
  }
  /// `client`: what each of so many clients of each compute server does, all from now on; the ns that it took.
  uint64_t RunClients(uint64_t clients,
                      const std::function<dsm::Task<void>(Member&, uint64_t)>& client) {
    world_->StartTiming();
    const uint64_t begun_ns = now_ns();
    for (size_t i = 0; i < members_.size(); ++i) {
      world_->StartThread(static_cast<uint32_t>(i), 0, [this, i, clients, &client] {
        for (uint64_t c = 0; c < clients; ++c) {
          members_[i].worker->Spawn(client(members_[i], c));
        }
      });
    }
    EXPECT_EQ(world_->Run(UINT64_MAX), dsm::ModelWorld::RunEnd::kIdle);
    const uint64_t took_ns = now_ns() - begun_ns;
    world_->StopTiming();
    return took_ns;
  }
  double RoundTripsPerOperation(size_t i = 0) const {
    return PerOperation(members_[i].counts.round_trips, i);
  }
  double ReadsPerOperation() const { return PerOperation(members_[0].counts.reads, 0); }

  /// 8 bytes, or 24; in random order.
  std::string Key(uint64_t number) const {
    std::string key = Fixed(Mix64(number));
    if (geometry_.layout == Layout::kBytes)
      key += Fixed(Mix64(number + 1)) + Fixed(Mix64(number + 2));
    return key;
  }
  std::string Value(uint64_t number) const {
    return Fixed(number) + std::string(value_bytes_ - 8, 'v');
  }

 private:
  void Join(uint64_t number, TreeOptions options) {
    Member member;
    auto pool = dsm::Pool::Join(world_->NewFabric(), {.seed = 1 + number}, &world_->clock());
    FARLEAF_CHECK(pool.ok(), pool.status());
    member.pool = std::move(*pool);
    auto worker = member.pool->OpenWorker();
    FARLEAF_CHECK(worker.ok(), worker.status());
    member.worker = std::move(*worker);
    OpContext op{*member.worker, member.counts};
    auto info = number == 0 ? member.worker->Run(CreateTree(op, *member.pool, "test", geometry_))
                            : member.worker->Run(OpenTree(op, *member.pool, "test"));
    FARLEAF_CHECK(info.ok(), info.status());
    member.tree = std::make_unique<BlinkTree>(member.pool.get(), *info, options);
    world_->AddThread(member.worker.get());
    members_.push_back(std::move(member));
  }

  dsm::Task<void> Client(Member& member, const Plan& plan, uint64_t number) {
    Random random(1 + number);
    if (number > 0 && plan.after_ns > 0) co_await member.worker->Sleep(plan.after_ns);
    for (uint64_t i = 0; i < plan.operations; ++i) {
      const uint64_t chosen =
          popular_ ? popular_->Next(random) : (number + i * plan.clients) % plan.keys;
      const std::string key = Key(chosen);
      OpContext op{*member.worker, member.counts};
      const uint64_t begun_ns = now_ns();
      if (plan.kind == Kind::kGet) {
        std::string value;
        auto found = co_await member.tree->Get(op, key, &value);
        EXPECT_TRUE(found.ok() && *found) << found.status();
        EXPECT_EQ(value, Value(chosen));
      } else {
        const std::string value = Value(chosen);
        auto updated = co_await member.tree->Update(op, key, value);
        EXPECT_TRUE(updated.ok() && *updated) << updated.status();
      }
      const uint64_t latency_ns = now_ns() - begun_ns;
      member.latency_ns_max = std::max(member.latency_ns_max, latency_ns);
      member.latency_ns_sum += latency_ns;
      ++member.done;
      member.ended_ns = now_ns();
      member.least_done = UINT64_MAX;
      for (const Member& other : members_) {
        if (&other != &member) member.least_done = std::min(member.least_done, other.done);
      }
    }
  }

  double PerOperation(uint64_t count, size_t i) const {
    return static_cast<double>(count) / static_cast<double>(members_[i].done);
  }

  const Geometry geometry_;
  const size_t value_bytes_;
  std::unique_ptr<dsm::ModelWorld> world_;
  std::vector<Member> members_;
  const ycsb::ScrambledZipfian* popular_ = nullptr;
};

}  // namespace farleaf::index
