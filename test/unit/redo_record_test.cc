// Redo records: they fit, they come back as they were, half of one is none, and applying one to any
// mix of a page's old and new words gives the new page.
#include "dsm/redo_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"

namespace farleaf::dsm {
namespace {

using Bytes = std::vector<std::byte>;

const RedoHead kHead{RedoKind::kMergeLeft, 0x1234'5678'9abc'def1, {1, 0x40000}, 77,
                     {2, 0x50000},         0x0fed'cba9'8765'4321};

Bytes RandomBytes(Random& random, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; i += 8) StoreLittle(bytes.data() + i, random.Next());
  return bytes;
}

/// `before` with some words changed: few, many or all.
Bytes Changed(Random& random, const Bytes& before) {
  Bytes after = before;
  const uint64_t one_in = uint64_t{1} << random.Below(8);
  for (size_t i = 0; i < after.size(); i += 8) {
    if (random.OneIn(one_in)) StoreLittle(after.data() + i, random.Next());
  }
  return after;
}

Bytes Encoded(const RedoHead& head, const Bytes& before, const Bytes& after) {
  Bytes slot(kRedoSlotBytes, std::byte{0xee});
  const size_t bytes = EncodeRedo(head, before, after, slot);
  EXPECT_LE(bytes, RedoBytesMax(after.size()));
  EXPECT_EQ(bytes % 8, 0u);
  slot.resize(bytes);
  return slot;
}

TEST(RedoRecordTest, AnyMixOfOldAndNewWordsBecomesTheNewPage) {
  const uint64_t seed = 20'260'101;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int run = 0; run < 3'000; ++run) {
    const size_t image_bytes = 8 * (1 + random.Below(kRedoImageBytesMax / 8));
    const Bytes before = RandomBytes(random, image_bytes), after = Changed(random, before);
    const Bytes slot = Encoded(kHead, before, after);
    const auto record = ParseRedo(slot);
    ASSERT_TRUE(record);
    ASSERT_EQ(static_cast<const RedoHead&>(*record), kHead);
    Bytes mix = before;
    for (size_t i = 0; i < image_bytes; i += 8) {
      if (random.OneIn(2)) StoreLittle(mix.data() + i, LoadLittle<uint64_t>(after.data() + i));
    }
    ASSERT_TRUE(ApplyRedo(*record, mix));
    ASSERT_EQ(mix, after) << "run " << run;
    ASSERT_TRUE(ApplyRedo(*record, mix));  // again
    ASSERT_EQ(mix, after) << "run " << run;
  }
}

TEST(RedoRecordTest, OfExtentsIsThatOfAllThatChangedInThem) {
  Random random(12);
  for (int run = 0; run < 300; ++run) {
    const Bytes before = RandomBytes(random, 2'104);
    Bytes after = before, elsewhere = before;
    const RedoExtent extents[] = {{128, 256}, {1'024, 128}};
    for (const RedoExtent& extent : extents) {
      for (size_t i = 0; i < extent.length; i += 8) {
        if (random.OneIn(4)) StoreLittle(after.data() + extent.offset + i, random.Next());
      }
    }
    const Bytes whole = Encoded(kHead, before, after);
    for (size_t i = 1'152; i < after.size(); ++i)
      after[i] = std::byte{0x55};  // not to be looked at
    Bytes slot(kRedoSlotBytes);
    slot.resize(EncodeRedo(kHead, before, after, extents, slot));
    ASSERT_EQ(slot, whole) << "run " << run;
  }
}

TEST(RedoRecordTest, ItsExtentsCoverAllThatChanged) {
  const uint64_t seed = 20'261'121;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int run = 0; run < 500; ++run) {
    const Bytes before = RandomBytes(random, 1'016), after = Changed(random, before);
    const Bytes record = Encoded(kHead, before, after);
    std::vector<RedoExtent> extents(128);
    extents.resize(RedoExtents(kHead, record, extents));
    Bytes image = before;
    for (const RedoExtent& extent : extents) {
      std::copy_n(after.begin() + extent.offset, extent.length, image.begin() + extent.offset);
    }
    ASSERT_EQ(image, after);
    std::vector<RedoExtent> first(1);
    ASSERT_EQ(RedoExtents(kHead, record, first), extents.size());
    if (!extents.empty()) {
      ASSERT_EQ(first[0].offset, extents[0].offset);
    }
  }
}

TEST(RedoRecordTest, APlainChangeHasAShortHeader) {
  Random random(13);
  const Bytes before = RandomBytes(random, 512), after = Changed(random, before);
  RedoHead head = kHead;
  head.kind = RedoKind::kChange;
  const size_t long_bytes = Encoded(head, before, after).size();
  head.follow_up = {};
  EXPECT_EQ(Encoded(head, before, after).size(), long_bytes) << "a block to be freed has a word";
  head.follow_up_word = 0;
  const Bytes slot = Encoded(head, before, after);
  EXPECT_EQ(slot.size() + 16, long_bytes);
  ASSERT_TRUE(ParseRedo(slot));
  EXPECT_EQ(static_cast<const RedoHead&>(*ParseRedo(slot)), head);
  Bytes taken(kRedoSlotBytes), image = before;
  taken.resize(CopyRedo(*ParseRedo(slot), 4711, taken));
  EXPECT_EQ(taken.size(), slot.size());
  ASSERT_TRUE(ParseRedo(taken));
  ASSERT_TRUE(ApplyRedo(*ParseRedo(taken), image));
  EXPECT_EQ(image, after);
}

TEST(RedoRecordTest, HoldsWhatChangedAndLittleElse) {
  Random random(3);
  const Bytes before = RandomBytes(random, 1'016);
  Bytes after = before;
  EXPECT_EQ(Encoded(kHead, before, after).size(), kRedoHeaderBytes);
  after[100] ^= std::byte{1};
  EXPECT_EQ(Encoded(kHead, before, after).size(), kRedoHeaderBytes + 8 + 8);
  after[300] ^= std::byte{1};
  EXPECT_EQ(Encoded(kHead, before, after).size(), kRedoHeaderBytes + 2 * (8 + 8));
  after[316] ^= std::byte{1};  // one equal word between the two: one range
  EXPECT_EQ(Encoded(kHead, before, after).size(), kRedoHeaderBytes + (8 + 8) + (8 + 24));
  EXPECT_EQ(Encoded(kHead, {}, {}).size(), kRedoHeaderBytes);
}

TEST(RedoRecordTest, ImageWithEveryOtherPairOfWordsChangedFits) {
  Bytes before(kRedoImageBytesMax, std::byte{0}), after = before;
  for (size_t i = 0; i < after.size(); i += 24) after[i] = std::byte{1};  // the worst for ranges
  const Bytes slot = Encoded(kHead, before, after);
  ASSERT_TRUE(ParseRedo(slot));
  ASSERT_TRUE(ApplyRedo(*ParseRedo(slot), before));
  EXPECT_EQ(before, after);
}

TEST(RedoRecordTest, HalfOfARecordIsNone) {
  const uint64_t seed = 41;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int run = 0; run < 2'000; ++run) {
    const Bytes before = RandomBytes(random, 504), after = Changed(random, before);
    Bytes slot(kRedoSlotBytes);  // what an earlier acquisition left there
    RedoHead earlier = kHead;
    earlier.lock_word += uint64_t{1} << 36;
    EncodeRedo(earlier, before, Changed(random, before), slot);
    const Bytes fresh = Encoded(kHead, before, after);
    size_t landed = 0;
    for (size_t i = 0; i < fresh.size(); i += 8) {
      const bool lands = random.OneIn(2);
      const bool same =
          LoadLittle<uint64_t>(slot.data() + i) == LoadLittle<uint64_t>(fresh.data() + i);
      if (lands) std::copy_n(fresh.begin() + i, 8, slot.begin() + i);
      landed += lands || same;
    }
    const auto record = ParseRedo(slot);
    const bool whole = landed == fresh.size() / 8;
    ASSERT_EQ(record && record->lock_word == kHead.lock_word, whole) << "run " << run;
  }
}

TEST(RedoRecordTest, CopyUnderAnotherLockWordIsTheSameRecord) {
  Random random(8);
  const Bytes before = RandomBytes(random, 248), after = Changed(random, before);
  const Bytes slot = Encoded(kHead, before, after);
  Bytes taken(kRedoSlotBytes);
  taken.resize(CopyRedo(*ParseRedo(slot), 4711, taken));
  const auto copy = ParseRedo(taken);
  ASSERT_TRUE(copy);
  RedoHead expected = kHead;
  expected.lock_word = 4711;
  EXPECT_EQ(static_cast<const RedoHead&>(*copy), expected);
  Bytes image = before;
  ASSERT_TRUE(ApplyRedo(*copy, image));
  EXPECT_EQ(image, after);
}

TEST(RedoRecordTest, RangeOutsideThePageChangesNothing) {
  Random random(9);
  const Bytes before = RandomBytes(random, 512);
  Bytes after = before;
  after[0] ^= std::byte{1};
  after[504] ^= std::byte{1};
  const Bytes slot = Encoded(kHead, before, after);
  Bytes shorter(before.begin(), before.begin() + 504);
  const Bytes untouched = shorter;
  EXPECT_FALSE(ApplyRedo(*ParseRedo(slot), shorter));
  EXPECT_EQ(shorter, untouched);
}

TEST(RedoRecordTest, WorkedExampleIsWhatFormatMdShows) {
  Bytes before(248), after(248);
  StoreLittle<uint64_t>(after.data() + 8, 4);
  after[0x48] = std::byte{'v'};
  StoreLittle<uint64_t>(after.data() + 240, 4);
  const LockWord word{LockWord::State::kLocked, 7, 2, 3, 9};
  const Bytes slot =
      Encoded({RedoKind::kChange, word.Encode(), {1, 0x40200}, 4, {}, 0}, before, after);
  std::string hex;
  for (size_t i = 0; i < slot.size(); ++i) {
    char text[32];
    if (i % 16 == 0) {
      std::snprintf(text, sizeof text, "%s%04zx ", i ? "\n" : "", i);
      hex += text;
    }
    std::snprintf(text, sizeof text, " %02x", static_cast<unsigned>(slot[i]));
    hex += text;
  }
  std::ifstream file(FARLEAF_SOURCE_DIR "/dsm/format.md");
  std::stringstream format;
  format << file.rdbuf();
  EXPECT_NE(format.str().find("```hex\n" + hex + "\n```"), std::string::npos) << hex;
}

TEST(RedoRecordTest, EmptySlotHoldsNone) {
  EXPECT_FALSE(ParseRedo(Bytes(kRedoSlotBytes)));
  EXPECT_FALSE(ParseRedo({}));
}

}  // namespace
}  // namespace farleaf::dsm
