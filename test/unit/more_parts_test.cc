// Changes for which the parts that were read with the lock do not suffice, since another compute server has filled them: they read
// those that may help, not the leaf.
#include <gtest/gtest.h>

#include <cstdio>

#include "dsm/base/random.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kLoaded = 60'000;

class MorePartsTest : public testing::Test {
 protected:
  using Costs = dsm::FabricCounts;
  static std::string KeyOf(uint64_t i) { return Fixed(Mix64(i)); }

  void SetUp() override {
    for (uint64_t i = 0; i < kLoaded / 2; ++i) tree_.Insert(KeyOf(i), Fixed(i));
    // It meets all parts, and then does not see what becomes of them.
    Costs costs;
    OpContext op{tree_.worker(), costs};
    for (uint64_t i = 0; i < kLoaded / 2; ++i) ExpectFound(op, i);
    for (uint64_t i = kLoaded / 2; i < kLoaded; ++i) tree_.Insert(KeyOf(i), Fixed(i));
  }
  void ExpectFound(OpContext& op, uint64_t i) {
    std::string value;
    const auto found = tree_.worker().Run(other_.Get(op, KeyOf(i), &value));
    ASSERT_TRUE(found.ok() && *found && value == Fixed(i)) << i;
  }
  Costs Insert(uint64_t i) {
    Costs costs;
    OpContext op{tree_.worker(), costs};
    const auto inserted = tree_.worker().Run(other_.Insert(op, KeyOf(i), Fixed(i)));
    EXPECT_TRUE(inserted.ok() && *inserted) << inserted.status();
    return costs;
  }

  LocalTree tree_{{.geometry = Geometry::Parted()}};
  BlinkTree other_{&tree_.pool(), tree_.tree().info(), {}};
};

TEST_F(MorePartsTest, AnInsertReadsThePartsBehindThoseThatHaveFilledUpAndNotTheLeaf) {
  constexpr uint64_t kInserts = 3'000;
  uint64_t of_parts = 0, of_pages = 0;
  for (uint64_t i = kLoaded; i < kLoaded + kInserts; ++i) {
    const Costs costs = Insert(i);
    if (costs.bytes_read >= Geometry::Parted().image_bytes(1)) {
      ++of_pages;  // the leaf is split, or has been by others, or its parent has
    } else if (costs.round_trips > 2) {
      ++of_parts;
      EXPECT_EQ(costs.round_trips, 3u) << i;
      EXPECT_LE(costs.bytes_read, 5 * kPartBytes + 16) << i;
    }
  }
  std::printf("%lu inserts read more parts, %lu whole pages\n", of_parts, of_pages);
  EXPECT_GE(of_parts, kInserts / 50);
  Costs costs;
  OpContext op{tree_.worker(), costs};
  for (uint64_t i = 0; i < kLoaded + kInserts; ++i) {
    ExpectFound(op, i);
    EXPECT_EQ(tree_.Get(KeyOf(i)), Fixed(i));
  }
}

}  // namespace
}  // namespace farleaf::index
