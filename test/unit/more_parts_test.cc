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
  /// Of changes by who does not know what has become of the leaves.
  struct Changes {
    uint64_t of_parts = 0;  ///< that read more parts
    uint64_t of_pages = 0;  ///< the leaf is split, or has been by others, or its parent has
  };
  template <typename Change>
  Changes Make(uint64_t first, uint64_t end, const Change& change) {
    Changes made;
    for (uint64_t i = first; i < end; ++i) {
      Costs costs;
      OpContext op{tree_.worker(), costs};
      const auto done = tree_.worker().Run(change(op, i));
      EXPECT_TRUE(done.ok() && *done) << i << ": " << done.status();
      if (costs.bytes_read >= Geometry::Parted().image_bytes(1)) {
        ++made.of_pages;
      } else if (costs.round_trips > 2) {
        ++made.of_parts;
        EXPECT_EQ(costs.round_trips, 3u) << i;
        EXPECT_LE(costs.bytes_read, 5 * kPartBytes + 16) << i;
      }
    }
    std::printf("%lu read more parts, %lu whole pages\n", made.of_parts, made.of_pages);
    return made;
  }
  /// By both, which agree: `value` of each number, or none.
  template <typename ValueOf>
  void ExpectAll(uint64_t end, const ValueOf& value_of) {
    Costs costs;
    OpContext op{tree_.worker(), costs};
    for (uint64_t i = 0; i < end; ++i) {
      const std::optional<std::string> expected = value_of(i);
      EXPECT_EQ(tree_.Get(KeyOf(i)), expected) << i;
      std::string value;
      const auto found = tree_.worker().Run(other_.Get(op, KeyOf(i), &value));
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found ? std::optional(value) : std::nullopt, expected) << i;
    }
  }

  LocalTree tree_{{.geometry = Geometry::Parted()}};
  BlinkTree other_{&tree_.pool(), tree_.tree().info(), {}};
};

TEST_F(MorePartsTest, AnInsertReadsThePartsBehindThoseThatHaveFilledUpAndNotTheLeaf) {
  constexpr uint64_t kInserts = 3'000;
  const Changes made =
      Make(kLoaded, kLoaded + kInserts, [&](OpContext& op, uint64_t i) -> dsm::Task<Result<bool>> {
        const std::string key = KeyOf(i), value = Fixed(i);
        auto inserted = co_await other_.Insert(op, key, value);
        co_return inserted;
      });
  EXPECT_GE(made.of_parts, kInserts / 50);
  ExpectAll(kLoaded + kInserts, [](uint64_t i) { return Fixed(i); });
}

TEST_F(MorePartsTest, UpdatesAndDeletesReadThePartThatTheEntryWentToAndNotTheLeaf) {
  const auto update = [&](OpContext& op, uint64_t i) -> dsm::Task<Result<bool>> {
    const std::string key = KeyOf(i), value = Fixed(i + 1);
    auto updated = co_await other_.Update(op, key, value);
    co_return updated;
  };
  const auto remove = [&](OpContext& op, uint64_t i) -> dsm::Task<Result<bool>> {
    const std::string key = KeyOf(i);
    auto deleted = co_await other_.Delete(op, key);
    co_return deleted;
  };
  constexpr uint64_t kHalf = kLoaded / 2, kThreeQuarters = kHalf + kHalf / 2;
  const Changes updates = Make(kHalf, kThreeQuarters, update),
                deletes = Make(kThreeQuarters, kLoaded, remove);
  // Few have gone past parts since: who reads the leaf for those as well reads more than 30.
  EXPECT_GE(updates.of_parts, 10u);
  EXPECT_LE(updates.of_pages, 30u);
  EXPECT_GE(deletes.of_parts, 2u);
  ExpectAll(kLoaded, [](uint64_t i) -> std::optional<std::string> {
    if (i >= kThreeQuarters) return std::nullopt;
    return Fixed(i < kHalf ? i : i + 1);
  });
}

}  // namespace
}  // namespace farleaf::index
