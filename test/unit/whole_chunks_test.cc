#include <gtest/gtest.h>

#include <algorithm>

#include "dsm/base/clock.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/pool_member.h"

namespace farleaf::dsm {
namespace {

constexpr PageClass kWholeLeaves{ChunkKind::kLeaf, 1024, 0};
constexpr uint64_t kWholeChunk = kChunkBytesMin;

class WholeChunksTest : public ::testing::Test {
 protected:
  WholeChunksTest() {
    auto fabric = LocalFabric::Create({.servers = 2,
                                       .region_bytes = 1 << 20,
                                       .chunk_bytes = kWholeChunk,
                                       .hugepages = Hugepages::kNever});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    servers_ = std::move(*fabric);
  }
  std::span<std::byte> At(GlobalAddress address, uint64_t bytes) {
    return servers_->region_bytes(address.server()).subspan(address.offset(), bytes);
  }
  bool IsZero(GlobalAddress address, uint64_t bytes) {
    const auto span = At(address, bytes);
    return std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  MonotonicClock clock_;
  std::unique_ptr<LocalFabric> servers_;
};

TEST_F(WholeChunksTest, ExtentsDoNotOverlapAndComeBackWhenFreed) {
  PoolMember member(servers_.get(), &clock_);
  std::vector<uint64_t> starts;
  for (int round = 0; round < 3; ++round) {
    std::vector<GlobalAddress> extents;
    for (int i = 0; i < 8; ++i) {
      auto extent = member.AllocateExtent(3 * kWholeChunk - 8);
      ASSERT_TRUE(extent.ok()) << extent.status();
      extents.push_back(*extent);
    }
    EXPECT_EQ(
        member.AllocateExtent(2 * kWholeChunk).status().ToString(),
        "resource exhausted: no memory server has 131072 bytes of free chunks in a row; add a "
        "memory server or enlarge the regions");
    EXPECT_TRUE(member.TryAllocate(kWholeLeaves).ok()) << "one chunk a server is left";
    std::sort(extents.begin(), extents.end());
    for (size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].server() != extents[i - 1].server()) continue;
      EXPECT_GE(extents[i].offset() - extents[i - 1].offset(), 3 * kWholeChunk);
    }
    for (const GlobalAddress extent : extents) {
      Status freed = member.FreeExtent(extent, 3 * kWholeChunk - 8);
      EXPECT_TRUE(freed.ok()) << freed;
    }
  }
}

TEST_F(WholeChunksTest, AnotherMemberFreesAnExtent) {
  PoolMember reader(servers_.get(), &clock_);
  GlobalAddress extent;
  {
    PoolMember writer(servers_.get(), &clock_);
    extent = *writer.AllocateExtent(13 * kWholeChunk);
    writer.Leave();
  }
  Status freed = reader.FreeExtent(extent, 13 * kWholeChunk);
  EXPECT_TRUE(freed.ok()) << freed;
  EXPECT_EQ(*reader.AllocateExtent(13 * kWholeChunk), extent);
}

TEST_F(WholeChunksTest, FreeingWhatIsNoExtentChangesNothing) {
  PoolMember member(servers_.get(), &clock_);
  const PageGrant page = member.Allocate(kWholeLeaves);
  const GlobalAddress extent = *member.AllocateExtent(3 * kWholeChunk);
  for (const auto& [address, bytes] : std::vector<std::pair<GlobalAddress, uint64_t>>{
           {page.address, 1024},
           {page.address, kWholeChunk},
           {extent, 2 * kWholeChunk},
           {extent, 4 * kWholeChunk},
           {extent, 0},
           {extent + kWholeChunk, 2 * kWholeChunk},
           {extent + 64, 3 * kWholeChunk},
           {GlobalAddress(0, 64), kWholeChunk},
           {GlobalAddress(1, (1 << 20) - kWholeChunk), 2 * kWholeChunk}}) {
    Status freed = member.FreeExtent(address, bytes);
    EXPECT_EQ(freed.code(), StatusCode::kCorruption) << address << ' ' << bytes << ' ' << freed;
  }
  EXPECT_TRUE(member.FreeExtent(extent, 3 * kWholeChunk).ok());
  EXPECT_EQ(member.FreeExtent(extent, 3 * kWholeChunk).code(), StatusCode::kCorruption);
}

TEST_F(WholeChunksTest, PagesOfAChunkThatHeldAnExtentAreZero) {
  PoolMember member(servers_.get(), &clock_);
  for (ServerId server : {0, 1}) {
    const GlobalAddress extent = *member.AllocateExtent(13 * kWholeChunk, server);
    const auto bytes = At(extent, 13 * kWholeChunk);
    std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
    ASSERT_TRUE(member.FreeExtent(extent, 13 * kWholeChunk).ok());
  }
  auto grants = member.AllocateAll(kWholeLeaves);
  EXPECT_EQ(grants.size(), 26 * PagesPerChunk(kWholeLeaves, kWholeChunk));
  for (const PageGrant& grant : grants) ASSERT_TRUE(IsZero(grant.address, 1024)) << grant.address;
}

TEST_F(WholeChunksTest, ARedoAreaIsClaimedOnceAndCleared) {
  const GlobalAddress extent = [&] {
    PoolMember member(servers_.get(), &clock_);
    const GlobalAddress address = *member.AllocateExtent(13 * kWholeChunk, 1);
    const auto bytes = At(address, 13 * kWholeChunk);
    std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
    EXPECT_TRUE(member.FreeExtent(address, 13 * kWholeChunk).ok());
    return address;
  }();
  ASSERT_EQ(extent.server(), 1);
  for (int round = 0; round < 3; ++round) {
    PoolMember member(servers_.get(), &clock_);
    const RegionLayout& layout = member.allocator().layout(1);
    EXPECT_EQ(RedoAreaChunks(layout), 8u);
    EXPECT_EQ(RedoAreaSlots(layout), 64u);
    auto area = member.RedoArea(1);
    ASSERT_TRUE(area.ok()) << area.status();
    EXPECT_EQ(area->server(), 1);
    EXPECT_EQ(*member.RedoArea(1), *area);
    EXPECT_TRUE(IsZero(*area, 64 * kRedoSlotBytes));
    std::fill_n(At(*area, 8).begin(), 8, std::byte{0x66});
    PoolMember other(servers_.get(), &clock_);
    EXPECT_EQ(other.RedoArea(1).status().ToString(),
              "resource exhausted: memory server 1 is full: none of its 13 chunks is left for this "
              "compute server's redo records; enlarge the region");
    EXPECT_EQ(other.RedoArea(0)->server(), 0);
  }  // both leave
  PoolMember member(servers_.get(), &clock_);
  EXPECT_TRUE(member.AllocateExtent(13 * kWholeChunk, 0).ok());
  EXPECT_TRUE(member.AllocateExtent(13 * kWholeChunk, 1).ok());
}

}  // namespace
}  // namespace farleaf::dsm
