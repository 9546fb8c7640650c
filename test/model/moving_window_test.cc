// A window of keys that moves for ever uses a bounded pool: insert ascending, delete the oldest.
//
// 100,000 live keys; 2 M operations, 100 M at the long scale (test/support/test_scale.h).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "index/blink/check.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

uint64_t ChunksTaken(LocalTree& local) {
  uint64_t taken = 0;
  for (const dsm::RegionLayout& layout : local.pool().layouts()) {
    const std::byte* region = local.fabric().region_bytes(layout.server).data();
    for (uint64_t chunk = 0; chunk < layout.chunk_count; ++chunk) {
      taken += LoadLittle<uint64_t>(region + layout.ChunkWordOffset(chunk)) != 0;
    }
  }
  return taken;
}

TEST(MovingWindowTest, PoolUseStaysBounded) {
  constexpr uint64_t kLive = 100'000;
  const uint64_t operations =
      test::Amount{.small = 500'000, .usual = 2'000'000, .large = 100'000'000};
  LocalTree local;
  uint64_t settled = 0;  // chunks, once the window has moved by its own length
  for (uint64_t i = 0; i < operations / 2; ++i) {
    ASSERT_TRUE(local.Insert(Fixed(i), Fixed(~i))) << i;
    if (i < kLive) continue;
    ASSERT_TRUE(local.Delete(Fixed(i - kLive))) << i;
    if (i == 2 * kLive) settled = ChunksTaken(local);
    if (i % kLive == 0 && settled > 0) {
      ASSERT_LE(ChunksTaken(local), settled) << "after " << 2 * i << " operations";
    }
  }
  ASSERT_GT(settled, 0u);
  std::printf("%lu operations, %lu chunks, %lu splits, %lu merges\n", operations,
              ChunksTaken(local), local.tree().stats().splits.load(),
              local.tree().stats().merges.load());
  EXPECT_GT(local.tree().stats().merges, operations / 200);

  dsm::FabricCounts counts;
  OpContext op{local.worker(), counts};
  const auto report = local.worker().Run(CheckPool(op, local.pool(), {}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->trees.at(0).keys(), kLive);
}

}  // namespace
}  // namespace farleaf::index
