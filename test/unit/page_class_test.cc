#include "dsm/page_class.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dsm/pages/free_bundle.h"

namespace farleaf::dsm {
namespace {

std::vector<PageClass> AllClasses() {
  std::vector<PageClass> classes;
  for (uint32_t bytes = kPageBytesMin; bytes <= kPageBytesMax; bytes += 64) {
    classes.push_back({ChunkKind::kLeaf, bytes, 0});
  }
  for (uint16_t tree = 1; tree <= kTreesMax; ++tree) {
    classes.push_back({ChunkKind::kSearch, std::max(kPageBytesMin, tree * 64u), tree});
  }
  auto block = ValueBlockBytes(1, kChunkBytesMax);
  while (block) {
    classes.push_back({ChunkKind::kValue, *block, 0});
    block = ValueBlockBytes(uint64_t{*block} + 1, kChunkBytesMax);
  }
  return classes;
}

TEST(PageClassTest, EachClassHasAFreeListOfItsOwn) {
  std::set<uint32_t> lists;
  for (const PageClass& page_class : AllClasses()) {
    ASSERT_TRUE(IsValid(page_class)) << page_class.page_bytes;
    const uint32_t list = FreeListIndex(page_class);
    ASSERT_LT(list, kFreeListsMax);
    ASSERT_TRUE(lists.insert(list).second) << "list " << list << " serves two classes";
  }
}

TEST(PageClassTest, AChunkWordNamesItsClass) {
  for (const PageClass& page_class : AllClasses()) {
    ChunkWord word = ChunkWord::Decode(ChunkWordOf(page_class).Encode());
    word.owner = 5;
    ASSERT_EQ(PageClassOf(word), page_class);
  }
  EXPECT_FALSE(PageClassOf({.kind = ChunkKind::kRedo, .page_units = 128}));
  EXPECT_FALSE(PageClassOf({.kind = ChunkKind::kLeaf, .page_units = 1}));
  EXPECT_FALSE(PageClassOf({.kind = ChunkKind::kSearch, .page_units = 16}));
  EXPECT_FALSE(PageClassOf({.kind = ChunkKind::kLeaf, .page_units = 16, .tree = 1}));
  EXPECT_FALSE(PageClassOf({.kind = ChunkKind::kValue, .page_units = 9}));
}

TEST(PageClassTest, PagesFillAChunkWithoutOverlap) {
  for (const PageClass& page_class : AllClasses()) {
    for (const uint64_t chunk_bytes : {uint64_t{kChunkBytesMin}, uint64_t{1} << 20}) {
      if (page_class.page_bytes > chunk_bytes) continue;
      const uint64_t count = PagesPerChunk(page_class, chunk_bytes);
      ASSERT_GT(count, 0u);
      const uint64_t first = PageOffsetInChunk(page_class, chunk_bytes, 0);
      if (page_class.kind == ChunkKind::kSearch) {
        ASSERT_GE(first, count * 8) << "the change counters overlap page 0";
        ASSERT_EQ(first % page_class.page_bytes, 0u);
      } else {
        ASSERT_EQ(first, 0u);
      }
      const uint64_t end =
          PageOffsetInChunk(page_class, chunk_bytes, count - 1) + page_class.page_bytes;
      ASSERT_LE(end, chunk_bytes);
      ASSERT_LT(chunk_bytes - end, page_class.page_bytes) << "room for another page";
      for (const uint64_t index : {uint64_t{0}, count / 2, count - 1}) {
        const uint64_t offset = PageOffsetInChunk(page_class, chunk_bytes, index);
        ASSERT_EQ(PageIndexInChunk(page_class, chunk_bytes, offset), index);
        ASSERT_FALSE(PageIndexInChunk(page_class, chunk_bytes, offset + 8));
      }
      ASSERT_FALSE(PageIndexInChunk(page_class, chunk_bytes, end));
      if (first > 0) {
        ASSERT_FALSE(PageIndexInChunk(page_class, chunk_bytes, 0));
      }
    }
  }
}

TEST(PageClassTest, ValueBlocksWasteAtMostAQuarter) {
  uint32_t last = 0;
  for (uint64_t bytes = 1; bytes <= kChunkBytesMin; ++bytes) {
    const auto block = ValueBlockBytes(bytes, kChunkBytesMin);
    ASSERT_TRUE(block);
    ASSERT_GE(*block, bytes);
    ASSERT_EQ(*block % 64, 0u);
    ASSERT_GE(*block, last);
    if (bytes > kPageBytesMin) {
      ASSERT_LE(*block - bytes, std::max<uint64_t>(63, bytes / 4)) << bytes;
    }
    last = *block;
  }
  EXPECT_EQ(ValueBlockBytes(kChunkBytesMin, kChunkBytesMin), kChunkBytesMin);
  EXPECT_FALSE(ValueBlockBytes(kChunkBytesMin + 1, kChunkBytesMin));
  EXPECT_EQ(ValueBlockBytes(kValueBlockBytesMax, kChunkBytesMax), kValueBlockBytesMax);
  EXPECT_FALSE(ValueBlockBytes(kValueBlockBytesMax + 1, kChunkBytesMax));
}

TEST(PageClassTest, CarveMarksLieBetweenChunkTableAndChunks) {
  for (const uint64_t region_bytes : {uint64_t{1} << 20, uint64_t{1} << 30, uint64_t{1} << 40}) {
    auto layout = RegionLayout::For(0, region_bytes, kChunkBytesMin);
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->CarveMarkOffset(0), layout->ChunkWordOffset(layout->chunk_count));
    EXPECT_LE(layout->CarveMarkOffset(layout->chunk_count), layout->first_chunk);
  }
}

class FreeBundleTest : public ::testing::Test {
 protected:
  FreeBundleTest() : layout_(*RegionLayout::For(3, 8 << 20, 1 << 20)) {}
  FreeBundle Full(const PageClass& page_class) {
    const auto page = [&](uint64_t i) {
      return FreePage{layout_.ChunkOffset(1) + PageOffsetInChunk(page_class, 1 << 20, i), i * 77};
    };
    FreeBundle bundle;
    bundle.carrier = page(0);
    const uint64_t pages = PagesPerChunk(page_class, 1 << 20);
    for (uint32_t i = 0; i < BundlePagesMax(page_class); ++i) {
      bundle.others.push_back(page((i + 1) % pages));
    }
    bundle.next_offset = page(pages - 1).offset;
    bundle.listed_word = ListedWord({5, 7}, 99);
    return bundle;
  }
  RegionLayout layout_;
};

TEST_F(FreeBundleTest, WhatIsEncodedIsDecodedAndStaysClearOfHeadAndTail) {
  for (const PageClass& page_class : AllClasses()) {
    if (page_class.page_bytes > 1 << 20) continue;
    const FreeBundle bundle = Full(page_class);
    ASSERT_GE(bundle.others.size(), 1u);
    const uint64_t bytes = BundleBytes(static_cast<uint32_t>(bundle.others.size()));
    const bool is_block = page_class.kind == ChunkKind::kValue;
    ASSERT_LE(BundleOffsetInPage(page_class) + bytes, page_class.page_bytes - (is_block ? 0 : 16));
    std::vector<std::byte> image(bytes);
    EncodeBundle(page_class, bundle, image);
    image.resize(bytes + 64, std::byte{0xff});
    auto decoded = DecodeBundle(page_class, layout_, bundle.carrier.offset, image);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(decoded->next_offset, bundle.next_offset);
    ASSERT_EQ(decoded->listed_word, bundle.listed_word);
    ASSERT_EQ(decoded->carrier.version, bundle.carrier.version);
    ASSERT_EQ(decoded->others.size(), bundle.others.size());
    for (size_t i = 0; i < bundle.others.size(); ++i) {
      ASSERT_EQ(decoded->others[i].offset, bundle.others[i].offset);
      ASSERT_EQ(decoded->others[i].version, bundle.others[i].version);
    }
  }
}

TEST_F(FreeBundleTest, DamageMisplacementAndShortnessAreCorruption) {
  const PageClass page_class{ChunkKind::kLeaf, 512, 0};
  const FreeBundle bundle = Full(page_class);
  std::vector<std::byte> image(BundleBytes(static_cast<uint32_t>(bundle.others.size())));
  EncodeBundle(page_class, bundle, image);
  const auto decodes = [&](const PageClass& c, uint64_t offset, std::span<const std::byte> bytes) {
    auto decoded = DecodeBundle(c, layout_, offset, bytes);
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), StatusCode::kCorruption);
    }
    return decoded.ok();
  };
  ASSERT_TRUE(decodes(page_class, bundle.carrier.offset, image));
  for (size_t bit = 0; bit < image.size() * 8; ++bit) {
    image[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_FALSE(decodes(page_class, bundle.carrier.offset, image)) << "bit " << bit;
    image[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (size_t bytes = 0; bytes < image.size(); ++bytes) {
    ASSERT_FALSE(decodes(page_class, bundle.carrier.offset, std::span(image).first(bytes)));
  }
  EXPECT_FALSE(decodes(page_class, bundle.carrier.offset + 512, image));
  EXPECT_FALSE(decodes({ChunkKind::kSearch, 512, 1}, bundle.carrier.offset, image));
}

TEST(FreeListHeadTest, EveryChangeMakesAnotherWord) {
  FreeListHead head{GlobalAddress::kOffsetMax / 64 * 64, (1u << 22) - 2};
  std::set<uint64_t> words;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(words.insert(head.Encode()).second);
    EXPECT_EQ(FreeListHead::Decode(head.Encode()).Encode(), head.Encode());
    EXPECT_EQ(FreeListHead::Decode(head.Encode()).offset, head.offset);
    head = head.ChangedTo(head.offset);
  }
  EXPECT_FALSE(head.is_empty());
  EXPECT_TRUE(head.ChangedTo(0).is_empty());
}

}  // namespace
}  // namespace farleaf::dsm
