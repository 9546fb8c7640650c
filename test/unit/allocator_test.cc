#include "dsm/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "dsm/base/clock.h"
#include "dsm/pages/free_bundle.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/pool_member.h"

namespace farleaf::dsm {
namespace {

constexpr PageClass kLeafPages{ChunkKind::kLeaf, 1024, 0};
constexpr PageClass kSearchPages{ChunkKind::kSearch, 512, 7};
constexpr PageClass kSmallBlocks{ChunkKind::kValue, 128, 0};
constexpr uint64_t kAllocatorChunk = kChunkBytesMin;

class AllocatorTest : public ::testing::Test {
 protected:
  /// Servers of 13 chunks of 64 KiB each.
  std::unique_ptr<LocalFabric> NewServers(uint32_t servers, uint64_t region_bytes = 1 << 20) {
    auto fabric = LocalFabric::Create({.servers = servers,
                                       .region_bytes = region_bytes,
                                       .chunk_bytes = kAllocatorChunk,
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

  Task<void> AllocateInto(PoolMember& member, uint64_t deadline_ns,
                          std::vector<PageGrant>* grants) {
    OpContext op{*member.worker, member.counts, deadline_ns};
    auto grant = co_await member.allocator().Allocate(op, kLeafPages, 0);
    if (grant.ok()) {
      member.allocator().NoteWritten(kLeafPages, grant->address);
      grants->push_back(*grant);
    } else {
      failures_.push_back(grant.status().ToString());
    }
  }

  MonotonicClock clock_;
  std::vector<std::string> failures_;
};

TEST_F(AllocatorTest, EveryPageIsGrantedOnceAndThenThePoolIsFull) {
  auto servers = NewServers(2);
  PoolMember member(servers.get(), &clock_);
  const uint64_t chunks = member.allocator().layout(0).chunk_count;
  ASSERT_EQ(chunks, 13u);
  auto grants = member.AllocateAll(kLeafPages);
  EXPECT_EQ(Addresses(grants).size(), 2 * chunks * PagesPerChunk(kLeafPages, kAllocatorChunk));
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
  PoolMember member(servers.get(), &clock_);
  const PageGrant first = member.Allocate(kLeafPages);
  EXPECT_EQ(member.counts.round_trips, 3u);  // list head, chunk table, claim
  for (uint64_t i = 1; i < PagesPerChunk(kLeafPages, kAllocatorChunk); ++i) {
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
  PoolMember member(servers.get(), &clock, {.grace_ms = 5});
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
    PoolMember member(servers.get(), &clock_);
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
  PoolMember first(servers.get(), &clock_), second(servers.get(), &clock_);
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
  PoolMember member(servers.get(), &clock_);
  for (uint64_t i = 0; i < 2 * PagesPerChunk(kLeafPages, kAllocatorChunk); ++i)
    member.Allocate(kLeafPages);
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
      PoolMember member(servers.get(), &clock_, {.grace_ms = 0});
      uint64_t version = 100;
      for (PageGrant grant : member.AllocateAll(page_class)) {
        EXPECT_EQ(grant.version, 0u);
        grant.version = ++version;
        versions[grant.address.word()] = grant.version;
        member.Retire(page_class, grant);
      }
      member.Leave();
    }
    EXPECT_EQ(versions.size(), 26 * PagesPerChunk(page_class, kAllocatorChunk));
    PoolMember next(servers.get(), &clock_);
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
  PoolMember member(servers.get(), &clock, {.grace_ms = 5, .local_free_pages_max = 40});
  PoolMember other(servers.get(), &clock);
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

TEST_F(AllocatorTest, CoroutinesThatNeedPagesAtOnceShareOneChunk) {
  auto servers = NewServers(1);
  ManualClock clock;
  std::atomic<bool> hold{false};
  PoolMember member(servers.get(), &clock, {}, {.defer_seed = 1, .hold = &hold});
  hold = true;
  std::vector<PageGrant> grants;
  for (int i = 0; i < 20; ++i) member.worker->Spawn(AllocateInto(member, UINT64_MAX, &grants));
  member.worker->GoOnline();
  hold = false;
  while (member.worker->spawned() > 0) {
    clock.AdvanceNs(kNsPerUs);
    member.worker->RunOnce(Worker::Idle::kReturn);
  }
  member.worker->GoOffline();
  EXPECT_EQ(Addresses(grants).size(), 20u);
  EXPECT_EQ(member.counts.round_trips, 3u);
}

TEST_F(AllocatorTest, AWaitForAnotherCoroutinesChunkEndsAtItsDeadline) {
  auto servers = NewServers(1);
  ManualClock clock;
  std::atomic<bool> hold{false};
  PoolMember member(servers.get(), &clock, {}, {.defer_seed = 1, .hold = &hold});
  hold = true;
  std::vector<PageGrant> patient, hurried;
  member.worker->Spawn(AllocateInto(member, UINT64_MAX, &patient));
  member.worker->Spawn(AllocateInto(member, clock.NowNs() + kNsPerMs, &hurried));
  member.worker->GoOnline();
  while (member.worker->spawned() == 2) {
    clock.AdvanceNs(10 * kNsPerUs);
    member.worker->RunOnce(Worker::Idle::kReturn);
  }
  EXPECT_TRUE(hurried.empty() && patient.empty());
  EXPECT_EQ(failures_,
            std::vector<std::string>{"deadline exceeded: waiting for pages of memory server 0"});
  hold = false;
  while (member.worker->spawned() > 0) member.worker->RunOnce(Worker::Idle::kReturn);
  member.worker->GoOffline();
  EXPECT_EQ(patient.size(), 1u);
}

TEST_F(AllocatorTest, AGrantWaitsForTheGracePeriodThatAloneKeepsAPage) {
  auto servers = NewServers(1);
  PoolMember member(servers.get(), &clock_, {.grace_ms = 20});
  auto grants = member.AllocateAll(kLeafPages);
  member.Retire(kLeafPages, grants[5]);
  EXPECT_EQ(member.Allocate(kLeafPages).address, grants[5].address);
}

TEST_F(AllocatorTest, AFullServersPagesComeFromAnother) {
  auto servers = NewServers(2);
  PoolMember member(servers.get(), &clock_);
  const uint64_t pages = 13 * PagesPerChunk(kLeafPages, kAllocatorChunk);
  for (uint64_t i = 0; i < pages; ++i)
    EXPECT_EQ(member.Allocate(kLeafPages, 1).address.server(), 1);
  EXPECT_EQ(member.Allocate(kLeafPages, 1).address.server(), 0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(member.allocator().NextServer(1), 0);
}

TEST_F(AllocatorTest, LeavesAreSpreadEvenly) {
  auto servers = NewServers(3, 4 << 20);
  PoolMember member(servers.get(), &clock_);
  Random random(5);
  std::vector<int> leaves(3);
  int beside_left = 0;
  for (int i = 0; i < 6000; ++i) {
    const ServerId left = random.OneIn(4) ? static_cast<ServerId>(random.Below(2)) : 0;
    const ServerId next = member.allocator().NextServer(left);
    beside_left += next == left;
    EXPECT_EQ(member.Allocate(kLeafPages, next).address.server(), next);
    ++leaves[next];
    const auto [least, most] = std::minmax_element(leaves.begin(), leaves.end());
    ASSERT_LE(*most, *least + std::max(3, *least / 10 + 1)) << "after " << i << " leaves";
  }
  EXPECT_GT(beside_left, 2000) << "a right sibling should stay where balance allows";
}

TEST_F(AllocatorTest, ALostServerIsNamed) {
  auto servers = NewServers(2);
  PoolMember member(servers.get(), &clock_);
  member.Allocate(kLeafPages, 1);
  servers->KillServer(1);
  EXPECT_EQ(member.TryAllocate(kSearchPages, 1).status().ToString(),
            "unavailable: memory server 1 lost");
  EXPECT_TRUE(member.TryAllocate(kSearchPages, 0).ok());
  EXPECT_EQ(member.pool->Leave().ToString(), "unavailable: memory server 1 lost");
}

TEST_F(AllocatorTest, ACorruptFreeListIsReportedAndNotFollowed) {
  auto servers = NewServers(1);
  {
    PoolMember member(servers.get(), &clock_, {.grace_ms = 0});
    for (const PageGrant& grant : member.AllocateAll(kLeafPages)) member.Retire(kLeafPages, grant);
    member.Leave();
  }
  std::byte* region = servers->region_bytes(0).data();
  const uint64_t head_offset = kFreeListsOffset + FreeListIndex(kLeafPages) * 8;
  const uint64_t head = LoadLittle<uint64_t>(region + head_offset);
  PoolMember member(servers.get(), &clock_);
  region[FreeListHead::Decode(head).offset + 64 + 40] ^= std::byte{1};
  const Status damaged = member.TryAllocate(kLeafPages).status();
  EXPECT_EQ(damaged.code(), StatusCode::kCorruption) << damaged;
  EXPECT_NE(damaged.message().find("free list 143 of memory server 0"), std::string::npos)
      << damaged;
  EXPECT_EQ(LoadLittle<uint64_t>(region + head_offset), head) << "the evidence stays";
  region[FreeListHead::Decode(head).offset + 64 + 40] ^= std::byte{1};
  EXPECT_TRUE(member.TryAllocate(kLeafPages).ok());
  StoreLittle<uint64_t>(region + head_offset, FreeListHead{64 * 1024, 1}.Encode());
  PoolMember other(servers.get(), &clock_);
  EXPECT_EQ(other.TryAllocate(kLeafPages).status().ToString(),
            "corruption: free list 143 of memory server 0 begins outside the chunks");
}

TEST_F(AllocatorTest, TheLastChunkOfALongTableIsFound) {
  auto servers = NewServers(1, uint64_t{520} << 20);
  PoolMember member(servers.get(), &clock_);
  const RegionLayout& layout = member.allocator().layout(0);
  ASSERT_GT(layout.chunk_count, 8192u) << "the table takes more than one READ";
  const uint64_t taken = ChunkWord{.kind = ChunkKind::kLeaf, .page_units = 4, .owner = 9}.Encode();
  for (uint64_t i = 0; i < layout.chunk_count; ++i) {
    StoreLittle<uint64_t>(servers->region_bytes(0).data() + layout.ChunkWordOffset(i), taken);
  }
  for (const uint64_t free :
       {uint64_t{0}, uint64_t{8191}, uint64_t{8192}, layout.chunk_count - 1}) {
    StoreLittle<uint64_t>(servers->region_bytes(0).data() + layout.ChunkWordOffset(free), 0);
    EXPECT_EQ(layout.ChunkOf(member.Allocate({ChunkKind::kValue, 64 << 10, 0}).address.offset()),
              free);
  }
  EXPECT_EQ(member.TryAllocate(kLeafPages).status().ToString(),
            "resource exhausted: the pool is full: memory server 0: " +
                std::to_string(layout.chunk_count) + " of " + std::to_string(layout.chunk_count) +
                " chunks in use; add a memory server or enlarge the regions");
}

}  // namespace
}  // namespace farleaf::dsm
