// Hugepages behind the chunks that compute servers have taken.
#include "server/huge_chunks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "dsm/base/random.h"
#include "dsm/shm/memory_region.h"

namespace farleaf::server {
namespace {

using dsm::kHugepageBytes;
using dsm::MemoryRegion;
using Outcome = HugeChunks::Outcome;

struct HugeChunksTest : ::testing::Test {
  static constexpr uint64_t kRanges = 4, kChunkBytes = 1 << 20;

  void Take(uint64_t chunk) {
    const uint64_t word = dsm::ChunkWord{.kind = dsm::ChunkKind::kLeaf, .owner = 1}.Encode();
    std::memcpy(&bytes[layout.ChunkWordOffset(chunk)], &word, sizeof word);
  }
  void TakeAll() {
    for (uint64_t chunk = 0; chunk < layout.chunk_count; ++chunk) Take(chunk);
  }
  Status Back(uint64_t offset) {
    const bool first = !next.ok() || backed.insert(offset / kHugepageBytes).second;
    EXPECT_TRUE(first) << "once is enough";
    return next;
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(kRanges * kHugepageBytes);
  const dsm::RegionLayout layout = *dsm::RegionLayout::For(0, bytes.size(), kChunkBytes);
  const MonotonicClock clock;
  Status next;  // of Back
  std::set<uint64_t> backed;
  HugeChunks chunks{{layout, bytes, &clock, [this](uint64_t offset) { return Back(offset); }}};
};

TEST_F(HugeChunksTest, OnlyThoseRangesGetOneWhoseChunksAreAllTaken) {
  EXPECT_EQ(chunks.BackNext(), Outcome::kNothingToDo);
  // The first range is tables and chunk 0, the second chunks 1 and 2.
  ASSERT_EQ(layout.first_chunk, kChunkBytes);
  Take(1);
  EXPECT_EQ(chunks.BackNext(), Outcome::kNothingToDo);
  Take(2);
  EXPECT_EQ(chunks.BackNext(), Outcome::kBacked);
  EXPECT_EQ(backed, std::set<uint64_t>({1}));
  EXPECT_EQ(chunks.BackNext(), Outcome::kNothingToDo);
  TakeAll();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chunks.BackNext(), Outcome::kBacked);
  EXPECT_EQ(backed.size(), kRanges);
  EXPECT_EQ(chunks.BackNext(), Outcome::kNothingToDo);
}

TEST_F(HugeChunksTest, WhatIsRefusedIsAskedForAgainAndWhatCannotBeIsNot) {
  TakeAll();
  next = Status::Unavailable("busy");
  EXPECT_EQ(chunks.BackNext(), Outcome::kBusy);
  next = Status::ResourceExhausted("none left");
  EXPECT_EQ(chunks.BackNext(), Outcome::kNoneLeft);
  next = Status::Ok();
  for (uint64_t i = 0; i < kRanges; ++i) EXPECT_EQ(chunks.BackNext(), Outcome::kBacked);
  EXPECT_EQ(backed.size(), kRanges);
  HugeChunks others({layout, bytes, &clock, [](uint64_t) { return Status::Unimplemented("no"); }});
  EXPECT_EQ(others.BackNext(), Outcome::kImpossible);
}

TEST(HugepageOfARegion, KeepsWhatThePagesHoldForAllWhoHaveMappedThem) {
  constexpr uint64_t kSeed = 31, kBytes = 3 * kHugepageBytes + 4096;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  auto region = MemoryRegion::Create({.bytes = kBytes});
  ASSERT_TRUE(region.ok()) << region.status();
  auto attached = MemoryRegion::Attach(::dup(region->fd()), kBytes);
  ASSERT_TRUE(attached.ok()) << attached.status();
  for (const MemoryRegion* of : {&*region, &*attached}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(of->bytes().data()) % kHugepageBytes, 0u);
  }
  std::vector<std::byte> expected(kBytes);
  for (uint64_t at = 0; at < kBytes; at += 1 + random.Below(3'000)) {
    expected[at] = attached->bytes()[at] = static_cast<std::byte>(random.Below(256));
  }
  for (uint64_t range = 0; range < 3; ++range) {
    const Status backed = region->BackByHugepage(range * kHugepageBytes);
    if (!backed.ok()) GTEST_SKIP() << backed;
  }
  for (const MemoryRegion* of : {&*region, &*attached}) {
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), of->bytes().begin()));
  }
  attached->bytes()[kHugepageBytes] = std::byte{77};
  EXPECT_EQ(region->bytes()[kHugepageBytes], std::byte{77});
}

}  // namespace
}  // namespace farleaf::server
