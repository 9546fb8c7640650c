#include "dsm/page_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "dsm/base/clock.h"
#include "dsm/pages/free_bundle.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/pool_member.h"

namespace farleaf::dsm {
namespace {

constexpr PageClass kScannedLeaves{ChunkKind::kLeaf, 1024, 0};
constexpr PageClass kScannedNodes{ChunkKind::kSearch, 512, 7};
constexpr PageClass kBlocks{ChunkKind::kValue, 128, 0};
constexpr uint64_t kScannedChunk = kChunkBytesMin;

struct Seen final : PageVisitor, ListVisitor {
  std::map<ChunkUse, int> uses;
  std::map<uint64_t, ChunkUse> chunks;
  std::map<uint64_t, ScannedPage> pages;  // their images are gone
  std::map<uint64_t, ListedPage> listed;
  void OnChunk(const ScannedChunk& chunk) override {
    ++uses[chunk.use];
    EXPECT_TRUE(chunks.emplace(chunk.address.word(), chunk.use).second);
  }
  void OnPage(const ScannedPage& page) override {
    EXPECT_TRUE(pages.emplace(page.address.word(), page).second) << page.address;
    EXPECT_EQ(page.image.size(),
              page.page_class.kind == ChunkKind::kExtent ? 64 : page.page_class.page_bytes);
  }
  void OnListedPage(const ListedPage& page) override {
    EXPECT_TRUE(listed.emplace(page.address.word(), page).second) << page.address << " twice";
  }
  int Count(PageState state) const {
    return static_cast<int>(std::count_if(
        pages.begin(), pages.end(), [&](const auto& page) { return page.second.state == state; }));
  }
};

class PageScanTest : public ::testing::Test {
 protected:
  PageScanTest() {
    auto fabric = LocalFabric::Create({.servers = 2,
                                       .region_bytes = 1 << 20,
                                       .chunk_bytes = kScannedChunk,
                                       .hugepages = Hugepages::kNever});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    servers_ = std::move(*fabric);
    member_.emplace(servers_.get(), &clock_, AllocatorOptions{.grace_ms = 0});
  }
  Seen Scan() {
    Seen seen;
    OpContext op = member_->op();
    for (const RegionLayout& layout : member_->allocator().layouts()) {
      Status status = member_->worker->Run(ScanPages(op, layout, seen));
      EXPECT_TRUE(status.ok()) << status;
      status = member_->worker->Run(ScanFreeLists(op, layout, seen));
      EXPECT_TRUE(status.ok()) << status;
    }
    return seen;
  }
  void Use(PageClass page_class, PageGrant page, uint64_t version, uint64_t lock_word) {
    if (page_class.kind != ChunkKind::kValue) {
      member_->WriteWord(page.address + VersionOffset(page_class), version);
    }
    member_->WriteWord(page.address + LockWordOffset(page_class), lock_word);
  }
  uint64_t& ChunkWordAt(ServerId server, uint64_t chunk) {
    return *reinterpret_cast<uint64_t*>(servers_->region_bytes(server).data() +
                                        member_->allocator().layout(server).ChunkWordOffset(chunk));
  }

  MonotonicClock clock_;
  std::unique_ptr<LocalFabric> servers_;
  std::optional<PoolMember> member_;
};

TEST_F(PageScanTest, AFreshPoolIsFreeChunks) {
  const Seen seen = Scan();
  EXPECT_EQ(seen.uses, (std::map<ChunkUse, int>{{ChunkUse::kFree, 26}}));
  EXPECT_TRUE(seen.pages.empty() && seen.listed.empty());
}

TEST_F(PageScanTest, EveryPagesStateIsTold) {
  for (const PageClass page_class : {kScannedLeaves, kScannedNodes, kBlocks}) {
    const bool is_block = page_class.kind == ChunkKind::kValue;
    const PageGrant used = member_->Allocate(page_class, 1);
    const PageGrant locked = member_->Allocate(page_class, 1);
    const PageGrant freed = member_->Allocate(page_class, 1);
    const PageGrant unwritten = member_->Allocate(page_class, 1);
    const uint64_t lock = LockWord{LockWord::State::kLocked, 5, 3, 2, 1}.Encode();
    Use(page_class, used, 41, is_block ? 0x1234567000 : 0);
    Use(page_class, locked, 42, lock);
    Use(page_class, freed, 43, member_->free_word());
    Seen seen = Scan();
    const auto at = [&](PageGrant page) { return seen.pages.at(page.address.word()); };
    EXPECT_EQ(at(used).state, PageState::kInUse);
    EXPECT_EQ(at(used).version, is_block ? 0u : 41u);
    EXPECT_EQ(at(used).page_class, page_class);
    EXPECT_EQ(at(locked).state, PageState::kInUse);
    EXPECT_EQ(at(locked).lock_word, lock);
    EXPECT_EQ(at(locked).lock.owner, 5);
    EXPECT_EQ(at(freed).state, PageState::kFree);
    EXPECT_EQ(at(freed).lock.owner, member_->pool->self().id);
    EXPECT_EQ(at(freed).version, is_block ? 0u : 43u);
    EXPECT_EQ(at(unwritten).state, PageState::kNeverUsed);
    const uint64_t chunk_pages = PagesPerChunk(page_class, kScannedChunk);
    EXPECT_EQ(std::count_if(seen.pages.begin(), seen.pages.end(),
                            [&](const auto& page) { return page.second.page_class == page_class; }),
              static_cast<int64_t>(chunk_pages));
  }
  EXPECT_EQ(Scan().uses, (std::map<ChunkUse, int>{{ChunkUse::kFree, 23}, {ChunkUse::kPages, 3}}));
}

TEST_F(PageScanTest, PagesInThePoolsListsAreFreeWithoutHolder) {
  std::map<uint64_t, uint64_t> versions;
  for (const PageClass page_class : {kScannedLeaves, kScannedNodes, kBlocks}) {
    for (int i = 0; i < 150; ++i) {
      PageGrant page = member_->Allocate(page_class, static_cast<ServerId>(i % 2));
      page.version = 1000u + static_cast<uint64_t>(i);
      Use(page_class, page, page.version, 0);
      member_->Retire(page_class, page);
      versions[page.address.word()] = page.version;
    }
  }
  const size_t pages = versions.size();
  EXPECT_EQ(Scan().Count(PageState::kFree), static_cast<int>(pages));
  EXPECT_TRUE(Scan().listed.empty());
  member_->Leave();
  const Seen seen = Scan();
  EXPECT_EQ(seen.listed.size(), pages);
  EXPECT_EQ(seen.Count(PageState::kFree), static_cast<int>(pages));
  for (const auto& [address, listed] : seen.listed) {
    const ScannedPage& page = seen.pages.at(address);
    EXPECT_EQ(page.state, PageState::kFree);
    EXPECT_EQ(page.lock.owner, 0);
    EXPECT_EQ(page.page_class, listed.page_class);
    EXPECT_EQ(listed.version, versions.at(address));
    if (page.page_class.kind == ChunkKind::kValue) continue;
    EXPECT_EQ(page.version, listed.version) << "a bundle leaves its carrier's version alone";
  }
}

TEST_F(PageScanTest, ExtentsRedoAreasAndWhatIsLeftOfThemAreToldApart) {
  const GlobalAddress extent = *member_->AllocateExtent(3 * kScannedChunk, 0);
  member_->WriteWord(extent, 0x777000);
  EXPECT_TRUE(member_->RedoArea(1).ok());
  Seen seen = Scan();
  EXPECT_EQ(seen.uses, (std::map<ChunkUse, int>{{ChunkUse::kFree, 15},
                                                {ChunkUse::kExtent, 1},
                                                {ChunkUse::kExtentRest, 2},
                                                {ChunkUse::kRedo, 8}}));
  ASSERT_EQ(seen.pages.size(), 1u);
  EXPECT_EQ(seen.pages.begin()->first, extent.word());
  EXPECT_EQ(seen.pages.begin()->second.state, PageState::kInUse);
  const uint64_t head = member_->allocator().layout(0).ChunkOf(extent.offset());
  ChunkWordAt(0, head) = 0;  // as if its owner had died in FreeExtent
  seen = Scan();
  EXPECT_EQ(seen.uses[ChunkUse::kOrphan], 2);
  EXPECT_EQ(seen.chunks.at((extent + kScannedChunk).word()), ChunkUse::kOrphan);
}

TEST_F(PageScanTest, WordsThatMeanNothingAreInvalid) {
  ChunkWordAt(0, 3) = uint64_t{1} << 63;
  ChunkWordAt(0, 4) = ChunkWord{.kind = ChunkKind::kUnused, .owner = 4}.Encode();
  ChunkWordAt(0, 5) = 9;
  ChunkWordAt(0, 6) = ChunkWord{.kind = ChunkKind::kValue, .page_units = 1280}.Encode();
  ChunkWordAt(0, 7) = ChunkWord{.kind = ChunkKind::kExtent, .page_units = 40}.Encode();
  Seen seen = Scan();
  EXPECT_EQ(seen.uses,
            (std::map<ChunkUse, int>{
                {ChunkUse::kFree, 21}, {ChunkUse::kOrphan, 1}, {ChunkUse::kInvalid, 4}}));
}

TEST_F(PageScanTest, AChunkThatIsBeingClearedHasNoPages) {
  const GlobalAddress extent = *member_->AllocateExtent(kScannedChunk, 0);
  member_->WriteWord(extent, 0x777000);
  ASSERT_TRUE(member_->FreeExtent(extent, kScannedChunk).ok());
  const uint64_t chunk = member_->allocator().layout(0).ChunkOf(extent.offset());
  ChunkWordAt(0, chunk) = ChunkWordOf(kScannedLeaves).Encode();
  const Seen seen = Scan();
  EXPECT_EQ(seen.chunks.at(extent.word()), ChunkUse::kClearing);
  EXPECT_TRUE(seen.pages.empty());
}

TEST_F(PageScanTest, AListInACircleIsCorrupt) {
  const PageGrant page = member_->Allocate(kScannedLeaves, 1);
  FreeBundle bundle;
  bundle.carrier = {page.address.offset(), 1};
  bundle.next_offset = page.address.offset();
  std::vector<std::byte> bytes(BundleBytes(0));
  EncodeBundle(kScannedLeaves, bundle, bytes);
  std::copy(bytes.begin(), bytes.end(),
            servers_->region_bytes(1).begin() + static_cast<int64_t>(page.address.offset() + 64));
  const uint64_t head = kFreeListsOffset + FreeListIndex(kScannedLeaves) * 8;
  member_->WriteWord({1, head}, FreeListHead{page.address.offset(), 1}.Encode());
  // Seen would complain of each repetition: this visitor only follows.
  struct Follow final : ListVisitor {
    void OnListedPage(const ListedPage&) override {}
  } follow;
  OpContext op = member_->op();
  EXPECT_EQ(
      member_->worker->Run(ScanFreeLists(op, member_->allocator().layout(1), follow)).ToString(),
      "corruption: free list 143 of memory server 1 names more pages than there are: it is a "
      "circle");
  member_->WriteWord({1, head}, 0);
  member_->WriteWord({1, kFreeListsOffset + 8}, FreeListHead{page.address.offset(), 1}.Encode());
  EXPECT_EQ(
      member_->worker->Run(ScanFreeLists(op, member_->allocator().layout(1), follow)).ToString(),
      "corruption: free list 1 of memory server 1 has pages, but no chunk is of its class");
}

}  // namespace
}  // namespace farleaf::dsm
