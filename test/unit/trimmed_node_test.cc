// A trimmed image is the same node, in no more bytes than it uses.
#include "index/blink/trimmed_node.h"

#include <gtest/gtest.h>

#include <vector>

#include "dsm/base/random.h"
#include "test/support/node_fixture.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

struct Trimmed {
  explicit Trimmed(const ConstNode& node) : bytes(TrimmedImageBytes(node)) {
    TrimImage(node, bytes);
    geometry = node.geometry();
  }
  ConstNode node() const { return ConstNode(geometry, bytes); }

  Geometry geometry;
  std::vector<std::byte> bytes;  // of exactly the size: asan sees any access past it
};

void ExpectSame(const ConstNode& node, const ConstNode& trimmed) {
  EXPECT_EQ(trimmed.tree(), node.tree());
  EXPECT_EQ(trimmed.level(), node.level());
  EXPECT_EQ(trimmed.version(), node.version());
  EXPECT_EQ(trimmed.right(), node.right());
  EXPECT_EQ(trimmed.has_low(), node.has_low());
  EXPECT_EQ(trimmed.has_high(), node.has_high());
  EXPECT_EQ(trimmed.low(), node.low());
  EXPECT_TRUE(!node.has_high() || trimmed.high() == node.high());
  EXPECT_EQ(EntriesOf(trimmed), EntriesOf(node));
}

TEST(TrimmedNodeTest, AnswersAsTheWholeNodeDoes) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const Geometry& geometry : {Geometry::Fixed8(256), Geometry::Fixed8(1024),
                                   Geometry{Layout::kBytes, 512, 512, 64, 32}, Geometry::Bytes()}) {
    const auto key = [&](uint64_t i) {
      if (geometry.layout == Layout::kFixed8) return Fixed(1'000 + i);
      return "key/" + std::string(i % 5, 'x') + std::to_string(1'000 + i);
    };
    NodeImage image(geometry);
    const std::string low = key(0);
    image->Init({3, 1, low, std::nullopt, GlobalAddress()});
    ASSERT_TRUE(image->InsertChild(0, low, GlobalAddress(1, 1 << 20)));
    for (int round = 0; round < 400; ++round) {
      const std::string separator = key(1 + random.Below(5'000));
      if (separator > low) {
        const size_t i = image->ChildIndexFor(separator);
        const bool there = image->CompareKey(i, separator) == 0;
        if (!there)
          image->InsertChild(i + 1, separator, GlobalAddress(1, (2 + random.Below(99)) << 20));
        if (image->count() > 2 && random.Below(3) == 0) {
          image->RemoveChild(1 + random.Below(image->count() - 1));  // byte strings: garbage
        }
      }
      image->Seal(image->version() + 1);
      const Trimmed trimmed(*image);
      ASSERT_LE(trimmed.bytes.size(), geometry.image_bytes(1));
      ASSERT_EQ(trimmed.node().used_bytes(), image->used_bytes());
      ASSERT_EQ(trimmed.node().capacity_bytes(), image->used_bytes());
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*image, trimmed.node()));
      for (int probe = 0; probe < 10; ++probe) {
        const std::string wanted = key(random.Below(5'100));
        if (image->BelowLow(wanted)) continue;
        ASSERT_EQ(trimmed.node().ChildIndexFor(wanted), image->ChildIndexFor(wanted));
        ASSERT_EQ(trimmed.node().ChildIndexBelow(wanted), image->ChildIndexBelow(wanted));
      }
    }
  }
}

TEST(TrimmedNodeTest, ADeadNodeKeepsFencesAndForwardOnly) {
  for (const Geometry& geometry : {Geometry::Fixed8(1024), Geometry::Bytes()}) {
    NodeImage image(geometry);
    image->Init({3, 2, "aaaaaaaa", "zzzzzzzz", GlobalAddress(1, 1 << 20)});
    ASSERT_TRUE(image->InsertChild(0, "aaaaaaaa", GlobalAddress(1, 2 << 20)));
    for (char c = 'b'; c < 'v'; ++c) {
      ASSERT_TRUE(image->InsertChild(image->count(), std::string(8, c), GlobalAddress(1, 3 << 20)));
    }
    image->MarkDead(GlobalAddress(0, 4 << 20));
    image->Seal(9);
    const Trimmed trimmed(*image);
    EXPECT_LE(trimmed.bytes.size(), 64u);
    EXPECT_TRUE(trimmed.node().dead());
    EXPECT_EQ(trimmed.node().forward(), GlobalAddress(0, 4 << 20));
    EXPECT_EQ(trimmed.node().version(), 9u);
    EXPECT_TRUE(trimmed.node().LowEquals("aaaaaaaa") && trimmed.node().HighEquals("zzzzzzzz"));
  }
}

}  // namespace
}  // namespace farleaf::index
