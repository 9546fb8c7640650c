#include "dsm/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "dsm/base/clock.h"
#include "dsm/pages/free_bundle.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/shared_fabric.h"

namespace farleaf::dsm {
namespace {

constexpr PageClass kLeafPages{ChunkKind::kLeaf, 1024, 0};
constexpr PageClass kSearchPages{ChunkKind::kSearch, 512, 7};
constexpr PageClass kSmallBlocks{ChunkKind::kValue, 128, 0};
constexpr uint64_t kChunk = kChunkBytesMin;

/// One compute server with one thread.
struct Member {
  Member(Fabric* servers, const Clock* clock, AllocatorOptions options = {},
         SharedFabric::Options fabric = {}) {
    auto joined =
        Pool::Join(std::make_unique<SharedFabric>(servers, fabric), {.allocator = options}, clock);
    EXPECT_TRUE(joined.ok()) << joined.status();
    pool = std::move(*joined);
    worker = std::move(*pool->OpenWorker());
  }

  Allocator& allocator() { return pool->allocator(); }
  OpContext op() { return {*worker, counts}; }
  Result<PageGrant> TryAllocate(PageClass page_class, ServerId preferred = 0) {
    OpContext context = op();
    return worker->Run(allocator().Allocate(context, page_class, preferred));
  }
  PageGrant Allocate(PageClass page_class, ServerId preferred = 0) {
    auto grant = TryAllocate(page_class, preferred);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.ok() ? *grant : PageGrant{};
  }
  /// Every page of the class that the pool still has.
  std::vector<PageGrant> AllocateAll(PageClass page_class) {
    std::vector<PageGrant> grants;
    for (;;) {
      auto grant = TryAllocate(page_class);
      if (!grant.ok()) {
        EXPECT_EQ(grant.status().code(), StatusCode::kResourceExhausted) << grant.status();
        return grants;
      }
      grants.push_back(*grant);
    }
  }
  void Retire(PageClass page_class, PageGrant grant) {
    const uint64_t word = LockWord{.state = LockWord::State::kFreePage,
                                   .owner = pool->self().id,
                                   .incarnation = pool->self().short_incarnation()}
                              .Encode();
    WriteWord(grant.address + LockWordOffset(page_class), word);
    allocator().Retire(pool->clock(), page_class, grant);
  }
  void WriteWord(GlobalAddress address, uint64_t word) {
    OpContext context = op();
    auto write = [](OpContext& o, GlobalAddress a, uint64_t w) -> Task<Status> {
      Batch batch(a.server());
      batch.WriteWord(a.offset(), &w);
      Status status = co_await o.worker.RoundTrip(batch, o.counts);
      co_return status;
    };
    Status status = worker->Run(write(context, address, word));
    EXPECT_TRUE(status.ok()) << status;
  }
  Status Trim() {
    OpContext context = op();
    return worker->Run(allocator().Trim(context));
  }
  Result<GlobalAddress> AllocateExtent(uint64_t bytes, ServerId preferred = 0) {
    OpContext context = op();
    return worker->Run(allocator().AllocateExtent(context, bytes, preferred));
  }
  Status FreeExtent(GlobalAddress address, uint64_t bytes) {
    OpContext context = op();
    return worker->Run(allocator().FreeExtent(context, address, bytes));
  }
  void Leave() {
    Status status = pool->Leave();
    EXPECT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<Pool> pool;
  FabricCounts counts;
  std::unique_ptr<Worker> worker;  // destroyed before the pool
};

class AllocatorTest : public ::testing::Test {
 protected:
  /// Servers of 13 chunks of 64 KiB each.
  std::unique_ptr<LocalFabric> NewServers(uint32_t servers, uint64_t region_bytes = 1 << 20) {
    auto fabric = LocalFabric::Create({.servers = servers,
                                       .region_bytes = region_bytes,
                                       .chunk_bytes = kChunk,
                                       .hugepages = Hugepages::kNever});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return std::move(*fabric);
  }
  static std::set<uint64_t> Addresses(const std::vector<PageGrant>& grants) {
    std::set<uint64_t> addresses;
    for (const PageGrant& grant : grants) addresses.insert(grant.address.word());
    EXPECT_EQ(addresses.size(), grants.size()) << "a page was granted twice";
    return addresses;
  }
  std::vector<ChunkWord> Chunks(LocalFabric& fabric, const RegionLayout& layout) {
    std::vector<ChunkWord> words;
    for (uint64_t i = 0; i < layout.chunk_count; ++i) {
      words.push_back(ChunkWord::Decode(LoadLittle<uint64_t>(
          fabric.region_bytes(layout.server).data() + layout.ChunkWordOffset(i))));
    }
    return words;
  }

  MonotonicClock clock_;
};

TEST_F(AllocatorTest, EveryPageIsGrantedOnceAndThenThePoolIsFull) {
  auto servers = NewServers(2);
  Member member(servers.get(), &clock_);
  const uint64_t chunks = member.allocator().layout(0).chunk_count;
  ASSERT_EQ(chunks, 13u);
  auto grants = member.AllocateAll(kLeafPages);
  EXPECT_EQ(Addresses(grants).size(), 2 * chunks * PagesPerChunk(kLeafPages, kChunk));
  EXPECT_EQ(member.TryAllocate(kSmallBlocks).status().ToString(),
            "resource exhausted: the pool is full: memory server 0: 13 of 13 chunks in use, memory "
            "server 1: 13 of 13 chunks in use; add a memory server or enlarge the regions");
  PageGrant freed = grants.front();
  freed.version = 9;
  member.Retire(kLeafPages, freed);
  auto again = member.TryAllocate(kLeafPages, 1);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->address, freed.address);
  EXPECT_EQ(again->version, 9u);
}

TEST_F(AllocatorTest, AGrantCostsNoRoundTripWhilePagesAreAtHand) {
  auto servers = NewServers(1);
  Member member(servers.get(), &clock_);
  const PageGrant first = member.Allocate(kLeafPages);
  EXPECT_EQ(member.counts.round_trips, 3u);  // list head, chunk table, claim
  for (uint64_t i = 1; i < PagesPerChunk(kLeafPages, kChunk); ++i) {
    const PageGrant next = member.Allocate(kLeafPages);
    ASSERT_EQ(next.address, first.address + i * 1024);
    ASSERT_EQ(next.version, 0u);
  }
  EXPECT_EQ(member.counts.round_trips, 3u);
  member.Allocate(kLeafPages);
  EXPECT_EQ(member.counts.round_trips, 7u);  // and the word that says the first chunk is carved
}

TEST_F(AllocatorTest, ARetiredPageWaitsForItsGracePeriod) {
  auto servers = NewServers(1);
  ManualClock clock;
  Member member(servers.get(), &clock, {.grace_ms = 5});
  const PageGrant page = member.Allocate(kLeafPages);
  member.Retire(kLeafPages, page);
  clock.AdvanceNs(5 * kNsPerMs - 1);
  EXPECT_NE(member.Allocate(kLeafPages).address, page.address);
  clock.AdvanceNs(1);
  EXPECT_EQ(member.Allocate(kLeafPages).address, page.address);
}

TEST_F(AllocatorTest, AnotherMemberAdoptsThePartlyCarvedChunk) {
  auto servers = NewServers(1);
  std::set<uint64_t> granted;
  for (int round = 0; round < 6; ++round) {
    Member member(servers.get(), &clock_);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(granted.insert(member.Allocate(kLeafPages).address.word()).second);
    }
    member.Leave();
    const auto chunks = Chunks(*servers, member.allocator().layout(0));
    EXPECT_EQ(std::count(chunks.begin(), chunks.end(), ChunkWord{}), 12) << "round " << round;
  }
  EXPECT_EQ(granted.size(), 60u);
}

TEST_F(AllocatorTest, AChunkOfAnotherClassOrOwnerIsNotAdopted) {
  auto servers = NewServers(1);
  Member first(servers.get(), &clock_), second(servers.get(), &clock_);
  const RegionLayout& layout = first.allocator().layout(0);
  std::set<uint64_t> chunks;
  const auto chunk_of = [&](PageGrant grant) { return layout.ChunkOf(grant.address.offset()); };
  for (const PageClass page_class :
       {kLeafPages, kSearchPages, kSmallBlocks, PageClass{ChunkKind::kSearch, 512, 8},
        PageClass{ChunkKind::kLeaf, 512, 0}}) {
    EXPECT_TRUE(chunks.insert(chunk_of(first.Allocate(page_class))).second);
  }
  EXPECT_TRUE(chunks.insert(chunk_of(second.Allocate(kLeafPages))).second);
}

TEST_F(AllocatorTest, CarvedUpChunksLoseTheirOwner) {
  auto servers = NewServers(1);
  Member member(servers.get(), &clock_);
  for (uint64_t i = 0; i < 2 * PagesPerChunk(kLeafPages, kChunk); ++i) member.Allocate(kLeafPages);
  member.Leave();
  for (const ChunkWord& chunk : Chunks(*servers, member.allocator().layout(0))) {
    if (chunk == ChunkWord{}) continue;
    EXPECT_TRUE(chunk.carved);
    EXPECT_EQ(chunk.owner, 0);
    EXPECT_EQ(chunk.kind, ChunkKind::kLeaf);
  }
}

TEST_F(AllocatorTest, PagesThatAMemberReturnedAreGrantedToTheNextWithTheirVersions) {
  for (const PageClass page_class : {kLeafPages, kSearchPages, kSmallBlocks}) {
    auto servers = NewServers(2);
    std::map<uint64_t, uint64_t> versions;
    {
      Member member(servers.get(), &clock_, {.grace_ms = 0});
      uint64_t version = 100;
      for (PageGrant grant : member.AllocateAll(page_class)) {
        EXPECT_EQ(grant.version, 0u);
        grant.version = ++version;
        versions[grant.address.word()] = grant.version;
        member.Retire(page_class, grant);
      }
      member.Leave();
    }
    EXPECT_EQ(versions.size(), 26 * PagesPerChunk(page_class, kChunk));
    Member next(servers.get(), &clock_);
    for (const PageGrant& grant : next.AllocateAll(page_class)) {
      auto it = versions.find(grant.address.word());
      ASSERT_NE(it, versions.end()) << grant.address << " was granted twice or is no page";
      EXPECT_EQ(it->second, grant.version);
      versions.erase(it);
    }
    EXPECT_TRUE(versions.empty()) << versions.size() << " pages were lost";
  }
}

TEST_F(AllocatorTest, TrimMovesThePagesAboveTheWatermarkToAnotherMember) {
  auto servers = NewServers(1);
  ManualClock clock;
  Member member(servers.get(), &clock, {.grace_ms = 5, .local_free_pages_max = 40});
  Member other(servers.get(), &clock);
  auto grants = member.AllocateAll(kLeafPages);
  for (int i = 0; i < 40; ++i) member.Retire(kLeafPages, grants[i]);
  clock.AdvanceNs(5 * kNsPerMs);
  const FabricCounts before = member.counts;
  EXPECT_TRUE(member.Trim().ok());
  EXPECT_EQ(member.counts, before) << "nothing is above the watermark";
  for (int i = 40; i < 200; ++i) member.Retire(kLeafPages, grants[i]);
  const FabricCounts retired = member.counts;
  EXPECT_TRUE(member.Trim().ok());
  EXPECT_EQ(member.counts, retired) << "the grace period is not over";
  clock.AdvanceNs(5 * kNsPerMs);
  EXPECT_TRUE(member.Trim().ok());
  EXPECT_EQ(other.AllocateAll(kLeafPages).size(), 170u);  // a quarter of the watermark went along
}

}  // namespace
}  // namespace farleaf::dsm
