// Raw images and node images: the same bytes where a page stands as its node, and where it does not, no
// entry, fence or version is lost between the two.
#include "index/blink/leaf_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "index/blink/page.h"

namespace farleaf::index {
namespace {

std::string Key(uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number);
  return key;
}

Geometry Parted() {
  Geometry geometry = Geometry::Fixed8(1088, 1024);
  geometry.leaf_layout = LeafLayout::kParted;
  return geometry;
}

/// A leaf of 20 entries in a locked page, sealed with `version`.
void Fill(const Geometry& geometry, uint64_t version, LockedPage* page) {
  page->level_class = LeftLockClass(0);
  Node node = page->node(geometry);
  node.Init({.tree = 7});
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(node.Insert(i, Key(i * 10), {Key(i), false}));
  SealNode(node, version);
}

TEST(LeafCodecTest, ASortedPageIsWrittenFromItsBufferAndOpenedThere) {
  const Geometry geometry = Geometry::Fixed8(2048, 1024);
  LockedPage page;
  Fill(geometry, 5, &page);
  const auto raw = page.Pack(geometry);
  EXPECT_EQ(raw.data(), page.buffer.bytes);
  EXPECT_EQ(raw.size(), geometry.image_bytes(0));
  EXPECT_EQ(page.handed_over(geometry).data(), page.buffer.bytes);
  EXPECT_EQ(page.arrival(geometry).data(), page.buffer.bytes);
  EXPECT_EQ(OpenPage(geometry, 0, raw), OpenOutcome::kValid);
  EXPECT_EQ(RawTree(geometry, 0, raw), 7);
  EXPECT_EQ(LastVersion(geometry, 0, raw), 5u);
}

TEST(LeafCodecTest, APartedPageKeepsItsNodeOverPackAndOpen) {
  const Geometry geometry = Parted();
  LockedPage page;
  Fill(geometry, 5, &page);
  const auto raw = page.Pack(geometry, LockedPage::PageIs::kNew);
  EXPECT_NE(raw.data(), page.buffer.bytes);
  EXPECT_EQ(RawTree(geometry, 0, raw), 7);
  EXPECT_EQ(LastVersion(geometry, 0, raw), 5u);

  EXPECT_TRUE(page.handed_over(geometry).empty());
  LockedPage next;  // that reads it
  next.level_class = LeftLockClass(0);
  std::memcpy(next.arrival(geometry).data(), raw.data(), raw.size());
  ASSERT_EQ(next.Open(geometry), OpenOutcome::kValid);
  next.BeginChanges(geometry);
  const ConstNode node = next.node(geometry);
  EXPECT_TRUE(node.Validate().ok()) << node.Validate();
  ASSERT_EQ(node.count(), 20u);
  EXPECT_EQ(node.version(), 5u);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(node.Key(i), Key(i * 10));

  // A change is packed beside what stood there before.
  next.node(geometry).ReplaceValue(3, {Key(99), false});
  SealNode(next.node(geometry), 6);
  const auto changed = next.Pack(geometry);
  std::vector<std::byte> image(changed.begin(), changed.end());
  ASSERT_EQ(OpenPage(geometry, 0, image), OpenOutcome::kValid);
  EXPECT_EQ(ConstNode(geometry, image).Value(3).bytes, Key(99));
  EXPECT_EQ(ConstNode(geometry, image).version(), 6u);
}

TEST(LeafCodecTest, ATornPartedPageStaysRaw) {
  const Geometry geometry = Parted();
  LockedPage page;
  Fill(geometry, 5, &page);
  const auto raw = page.Pack(geometry, LockedPage::PageIs::kNew);
  std::vector<std::byte> image(raw.begin(), raw.end());
  image[100] ^= std::byte{1};
  const std::vector<std::byte> torn = image;
  EXPECT_EQ(OpenPage(geometry, 0, image), OpenOutcome::kTorn);
  EXPECT_EQ(image, torn);
}

TEST(LeafCodecTest, AWholeLeafOfTheOtherLayoutIsToldFromATornOne) {
  const Geometry parted = Parted(), sorted = Geometry::Fixed8(1088, 1024);
  LockedPage page;
  for (const auto& [mine, other] : {std::pair(parted, sorted), {sorted, parted}}) {
    Fill(other, 5, &page);
    const auto raw = page.Pack(other, LockedPage::PageIs::kNew);
    std::vector<std::byte> image(raw.begin(), raw.end());
    EXPECT_TRUE(IsOtherLayout(mine, image));
    image[100] ^= std::byte{1};
    EXPECT_FALSE(IsOtherLayout(mine, image));
  }
  // Of a size that no parted leaf has.
  std::vector<std::byte> image(1024 - 8);
  EXPECT_FALSE(IsOtherLayout(Geometry::Fixed8(1024), image));
}

}  // namespace
}  // namespace farleaf::index
