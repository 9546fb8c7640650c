// Members, threads and coroutines that allocate and retire at random in a tiny pool. A ledger knows
// what is granted: no page twice at once, every page with the version last written to it, and in
// the end every page of the pool comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "dsm/base/clock.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/pool_member.h"
#include "test/support/test_scale.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kChunk = kChunkBytesMin;
constexpr PageClass kClasses[] = {{ChunkKind::kLeaf, 1024, 0},
                                  {ChunkKind::kSearch, 512, 7},
                                  {ChunkKind::kValue, 2048, 0},
                                  {ChunkKind::kLeaf, 4096, 0}};

/// Thread-safe.
class Ledger {
 public:
  void Granted(const PageGrant& grant) {
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(live_.insert(grant.address.word()).second) << grant.address << " is granted twice";
    const auto it = versions_.find(grant.address.word());
    EXPECT_EQ(grant.version, it == versions_.end() ? 0 : it->second) << grant.address;
    ++grants_;
  }
  /// The version that the page is given before it is retired.
  uint64_t Retiring(const PageGrant& grant) {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(live_.erase(grant.address.word()), 1u) << grant.address;
    return versions_[grant.address.word()] = grant.version + 1;
  }
  /// Every chunk of the extent.
  void ExtentGranted(GlobalAddress address, uint64_t chunks) {
    std::lock_guard lock(mutex_);
    for (uint64_t i = 0; i < chunks; ++i) {
      EXPECT_TRUE(extents_.insert(address.word() + i * kChunk).second) << address;
    }
    ++grants_;
  }
  void ExtentFreeing(GlobalAddress address, uint64_t chunks) {
    std::lock_guard lock(mutex_);
    for (uint64_t i = 0; i < chunks; ++i) {
      EXPECT_EQ(extents_.erase(address.word() + i * kChunk), 1u) << address;
    }
  }
  uint64_t version(GlobalAddress address) const {
    const auto it = versions_.find(address.word());
    return it == versions_.end() ? 0 : it->second;
  }
  uint64_t grants() const { return grants_; }
  size_t live() const { return live_.size() + extents_.size(); }

 private:
  mutable std::mutex mutex_;  // guards all
  std::unordered_set<uint64_t> live_;
  std::unordered_set<uint64_t> extents_;
  std::unordered_map<uint64_t, uint64_t> versions_;
  uint64_t grants_ = 0;
};

struct Churn {
  PoolMember& member;
  Worker& worker;
  Ledger& ledger;
  uint64_t seed;
  int steps;
};

/// Fills a granted page with bytes that are no bundle and no zeros; the lock word says unlocked.
Task<void> FillPage(Churn& churn, FabricCounts& counts, PageClass page_class, GlobalAddress page) {
  std::vector<std::byte> image(page_class.page_bytes, std::byte{0xa5});
  StoreLittle<uint64_t>(image.data() + LockWordOffset(page_class), kUnlockedWord);
  Batch batch(page.server());
  batch.Write(page.offset(), image);
  Status written = co_await churn.worker.RoundTrip(batch, counts);
  EXPECT_TRUE(written.ok()) << written;
  churn.member.allocator().NoteWritten(page_class, page);
}

Task<void> RetirePage(Churn& churn, OpContext& op, PageClass page_class, PageGrant page) {
  page.version = churn.ledger.Retiring(page);
  Status freed = co_await WriteOneWord(op, page.address + LockWordOffset(page_class),
                                       churn.member.free_word());
  EXPECT_TRUE(freed.ok()) << freed;
  churn.member.allocator().Retire(churn.worker.clock(), page_class, page);
}

Task<void> AllocateOrGiveUp(Churn& churn, OpContext& op, PageClass page_class, ServerId server,
                            std::vector<std::pair<PageClass, PageGrant>>* held) {
  auto grant = co_await churn.member.allocator().Allocate(op, page_class, server);
  if (!grant.ok()) {
    EXPECT_EQ(grant.status().code(), StatusCode::kResourceExhausted) << grant.status();
    co_return;
  }
  churn.ledger.Granted(*grant);
  co_await FillPage(churn, op.counts, page_class, grant->address);
  held->push_back({page_class, *grant});
}

Task<void> UseAnExtent(Churn& churn, OpContext& op, uint64_t chunks, ServerId server) {
  auto extent = co_await churn.member.allocator().AllocateExtent(op, chunks * kChunk, server);
  if (!extent.ok()) {
    EXPECT_EQ(extent.status().code(), StatusCode::kResourceExhausted) << extent.status();
    co_return;
  }
  churn.ledger.ExtentGranted(*extent, chunks);
  const std::vector<std::byte> garbage(chunks * kChunk, std::byte{0x5a});
  Batch batch(extent->server());
  batch.Write(extent->offset(), garbage);
  Status written = co_await churn.worker.RoundTrip(batch, op.counts);
  EXPECT_TRUE(written.ok()) << written;
  churn.ledger.ExtentFreeing(*extent, chunks);
  Status freed = co_await churn.member.allocator().FreeExtent(op, *extent, chunks * kChunk);
  EXPECT_TRUE(freed.ok()) << freed;
}

Task<void> RunChurn(Churn churn) {
  Random random(churn.seed);
  FabricCounts counts;
  OpContext op{churn.worker, counts};
  std::vector<std::pair<PageClass, PageGrant>> held;
  for (int step = 0; step < churn.steps; ++step) {
    const PageClass page_class = kClasses[random.Below(std::size(kClasses))];
    const auto server = static_cast<ServerId>(random.Below(2));
    const uint64_t dice = random.Below(100);
    if (dice < 55) {
      co_await AllocateOrGiveUp(churn, op, page_class, server, &held);
    } else if (dice < 95 && !held.empty()) {
      std::swap(held[random.Below(held.size())], held.back());
      const auto [held_class, page] = held.back();
      held.pop_back();
      co_await RetirePage(churn, op, held_class, page);
    } else if (dice < 97) {
      co_await UseAnExtent(churn, op, 1 + random.Below(3), server);
    } else {
      Status trimmed = co_await churn.member.allocator().Trim(op);
      EXPECT_TRUE(trimmed.ok()) << trimmed;
    }
  }
  for (const auto& [held_class, page] : held) {
    co_await RetirePage(churn, op, held_class, page);
  }
}

class AllocatorChurnTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  std::unique_ptr<LocalFabric> NewServers(uint64_t region_bytes) {
    auto fabric = LocalFabric::Create({.servers = 2,
                                       .region_bytes = region_bytes,
                                       .chunk_bytes = kChunk,
                                       .hugepages = Hugepages::kNever});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return std::move(*fabric);
  }
  void RunThreads(std::vector<PoolMember*> members, Ledger* ledger, int threads, int steps) {
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      for (PoolMember* member : members) {
        running.emplace_back([=, this, seed = GetParam() * 1000 + running.size() * 10] {
          auto worker = std::move(*member->pool->OpenWorker());
          for (uint64_t c = 0; c < 6; ++c) {
            worker->Spawn(RunChurn({*member, *worker, *ledger, seed + c, steps}));
          }
          worker->RunUntilIdle();
        });
      }
    }
    for (std::thread& thread : running) thread.join();
  }
  /// Allocates all that the pool holds and checks it against the chunk table.
  void ExpectEveryPageIsBack(LocalFabric& servers, const Ledger& ledger) {
    PoolMember last(&servers, &clock_);
    std::map<PageClass, uint64_t> pages;
    for (const PageClass& page_class : kClasses) {
      std::set<uint64_t> seen;
      for (const PageGrant& grant : last.AllocateAll(page_class)) {
        EXPECT_TRUE(seen.insert(grant.address.word()).second) << grant.address;
        EXPECT_EQ(grant.version, ledger.version(grant.address)) << grant.address;
      }
      pages[page_class] = seen.size();
    }
    std::map<PageClass, uint64_t> room;
    for (const RegionLayout& layout : last.allocator().layouts()) {
      for (uint64_t i = 0; i < layout.chunk_count; ++i) {
        const auto page_class = PageClassOf(ChunkWord::Decode(LoadLittle<uint64_t>(
            servers.region_bytes(layout.server).data() + layout.ChunkWordOffset(i))));
        ASSERT_TRUE(page_class) << "chunk " << i << " of server " << layout.server << " was lost";
        room[*page_class] += PagesPerChunk(*page_class, kChunk);
      }
    }
    EXPECT_EQ(pages, room);
  }

  MonotonicClock clock_;
};

TEST_P(AllocatorChurnTest, NoPageIsGrantedTwiceAndAllComeBack) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  auto servers = NewServers(2 << 20);
  Ledger ledger;
  for (int generation = 0; generation < 2; ++generation) {
    const SharedFabric::Options deferring{.defer_seed = GetParam()};
    const AllocatorOptions options{.grace_ms = GetParam() % 2, .local_free_pages_max = 20};
    PoolMember first(servers.get(), &clock_, options, deferring);
    PoolMember second(servers.get(), &clock_, options, deferring);
    RunThreads({&first, &second}, &ledger, 2, test::Amount{200, 400});
    EXPECT_EQ(ledger.live(), 0u);
    first.Leave();
    second.Leave();
  }
  EXPECT_GT(ledger.grants(), 500u);
  ExpectEveryPageIsBack(*servers, ledger);
}

TEST_P(AllocatorChurnTest, ThreadsOfOneMemberShareItsPages) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  auto servers = NewServers(1 << 20);
  Ledger ledger;
  {
    PoolMember member(servers.get(), &clock_, {.grace_ms = 0, .local_free_pages_max = 10});
    RunThreads({&member}, &ledger, 4, test::Amount{400, 1000});
    member.Leave();
  }
  EXPECT_EQ(ledger.live(), 0u);
  ExpectEveryPageIsBack(*servers, ledger);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AllocatorChurnTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace farleaf::dsm
