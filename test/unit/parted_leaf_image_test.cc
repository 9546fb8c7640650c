// Whole images of parted leaves: the sorted node and back, what stays where it was, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dsm/base/crc32c.h"
#include "index/blink/parted_leaf.h"
#include "test/support/parted_leaf_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

LeafHead RandomHead(Random* random) {
  LeafHead head;
  head.tree = static_cast<TreeId>(1 + random->Below(128));
  if (!random->OneIn(3)) head.low = random->Next() >> 1;
  if (!random->OneIn(3)) head.high = head.low.value_or(0) + 1 + random->Below(uint64_t{1} << 62);
  head.version = random->OneIn(2) ? random->Next() : 1 + random->Below(4);
  head.dead = random->OneIn(8);
  if (random->OneIn(4)) head.wanted = Placement::kHashed;
  return head;
}

/// Keys between the fences as often as not, and so that either placement is hard to keep.
LeafHomes HomesToFill(size_t parts, const LeafHead& head, Random* random) {
  const bool ordered = random->OneIn(2);
  return {parts, ordered ? Placement::kOrdered : Placement::kHashed, head.Range()};
}

LeafEntries RandomEntries(const LeafHomes& homes, uint64_t style, Random* random) {
  const size_t parts = homes.parts();
  const size_t most = parts * kPartSlots;
  const size_t count = random->OneIn(4) ? most : random->Below(most + 1);
  LeafEntries entries;
  for (const uint64_t key : AwkwardKeys(style, homes, count, random)) entries[key] = random->Next();
  return entries;
}

OpenOutcome Open(size_t parts, std::span<const std::byte> raw, Bytes* node) {
  node->assign(LeafImageBytes(parts), std::byte{0xa5});
  return OpenPartedLeaf(PartedGeometry(parts), raw, *node);
}

/// Where each key stands, part * 7 + slot.
std::map<uint64_t, size_t> PlacesOf(std::span<const std::byte> raw, size_t parts) {
  std::map<uint64_t, size_t> places;
  for (size_t p = 0; p < parts; ++p) {
    const PartBytes part = DecodedPart(raw, p);
    for (size_t i = 0; i < kPartSlots; ++i) {
      if ((part.used >> i & 1) != 0) places[part.key[i]] = p * kPartSlots + i;
    }
  }
  return places;
}

TEST(PartedImageTest, PackedAndOpenedIsTheSameNodeByteForByte) {
  const uint64_t rounds = test::Amount{10, 60, 600};
  for (size_t parts = kLeafPartsMin; parts <= kLeafPartsMax; ++parts) {
    EXPECT_TRUE(PartedGeometry(parts).Validate().ok()) << PartedGeometry(parts).Validate();
    for (uint64_t seed = 0; seed < rounds; ++seed) {
      SCOPED_TRACE("parts " + std::to_string(parts) + ", seed " + std::to_string(seed));
      Random random(seed * 100 + parts);
      const LeafHead head = RandomHead(&random);
      const LeafHomes homes = HomesToFill(parts, head, &random);
      const LeafEntries entries = RandomEntries(homes, seed, &random);
      const Bytes node = NodeOf(parts, head, entries);
      const Bytes raw = PackedLeaf(parts, head, entries);
      ASSERT_EQ(LeafFault(raw, head, entries, Marks::kExact), "");
      Bytes opened;
      ASSERT_EQ(Open(parts, raw, &opened), OpenOutcome::kValid);
      ASSERT_EQ(opened, node);
      Bytes searched = raw;
      const LeafParts leaf(searched, (uint32_t{1} << parts) - 1, head.Range());
      for (const auto& [key, value] : entries) {
        const auto place = leaf.Find(key);
        ASSERT_EQ(place.outcome, LeafParts::Outcome::kYes);
        ASSERT_EQ(LoadLittle<uint64_t>(leaf.part(place.part).value(place.slot)), value);
      }
    }
  }
}

/// `entries` with some gone, some changed and some new.
LeafEntries Changed(LeafEntries entries, const LeafHomes& homes, uint64_t style, Random* random) {
  for (auto at = entries.begin(); at != entries.end();) {
    if (random->OneIn(3)) {
      at = entries.erase(at);
      continue;
    }
    if (random->OneIn(4)) at->second = random->Next();
    ++at;
  }
  const size_t room = homes.parts() * kPartSlots - entries.size();
  for (const uint64_t key : AwkwardKeys(style, homes, random->Below(room + 1), random)) {
    entries[key] = random->Next();
  }
  return entries;
}

TEST(PartedImageTest, WhatStaysKeepsItsPlaceAndOnlyWhatChangedIsWritten) {
  const uint64_t rounds = test::Amount{10, 60, 600};
  uint64_t changed_words = 0, words = 0;
  for (size_t parts = kLeafPartsMin; parts <= kLeafPartsMax; ++parts) {
    for (uint64_t seed = 0; seed < rounds; ++seed) {
      SCOPED_TRACE("parts " + std::to_string(parts) + ", seed " + std::to_string(seed));
      Random random(seed * 100 + parts);
      LeafHead head = RandomHead(&random);
      const LeafHomes homes = HomesToFill(parts, head, &random);
      const LeafEntries before = RandomEntries(homes, seed, &random);
      const Bytes previous = PackedLeaf(parts, head, before);
      const LeafEntries after = Changed(before, homes, seed + random.Below(2), &random);
      ++head.version;
      if (random.OneIn(2)) head.high = head.low.value_or(0) + 1 + (random.Next() >> 3);
      const Bytes raw = PackedLeaf(parts, head, after, previous);
      ASSERT_EQ(LeafFault(raw, head, after, Marks::kExact), "");
      Bytes opened;
      ASSERT_EQ(Open(parts, raw, &opened), OpenOutcome::kValid);
      ASSERT_EQ(opened, NodeOf(parts, head, after));

      // Two words of each part, and the trailer, say what leaf it is; else what is new or has another
      // value is written, and nothing more.
      const auto old_places = PlacesOf(previous, parts), places = PlacesOf(raw, parts);
      // An entry away from home may move: no part is to be passed that has room again.
      std::set<size_t> may_change;
      for (const auto& [key, value] : after) {
        const size_t place = places.at(key), slot = place / 7 * 16 + 2 + place % 7 * 2;
        const auto old = before.find(key);
        const bool stays =
            old != before.end() && old_places.at(key) / 7 == HomesOf(raw, head).Of(key);
        if (stays) {
          ASSERT_EQ(place, old_places.at(key));
        }
        if (!stays) may_change.insert(slot);
        if (!stays || old->second != value) may_change.insert(slot + 1);
      }
      for (size_t word = 0; word < raw.size() / 8; ++word) {
        const bool same = std::equal(raw.begin() + static_cast<ptrdiff_t>(word * 8),
                                     raw.begin() + static_cast<ptrdiff_t>(word * 8 + 8),
                                     previous.begin() + static_cast<ptrdiff_t>(word * 8));
        ++words;
        changed_words += !same;
        const bool identity = word >= parts * 16 || word % 16 < 2;
        ASSERT_TRUE(same || identity || may_change.contains(word)) << word;
      }
    }
  }
  std::printf("of %llu words %llu changed\n", static_cast<unsigned long long>(words),
              static_cast<unsigned long long>(changed_words));
}

TEST(PartedImageTest, ASplitOfAHashedLeafRewritesTwoWordsOfEachPartAndTheTrailer) {
  LeafEntries all, left;
  Random random(1);
  for (uint64_t i = 0; i < 40; ++i) all[i] = random.Next();
  left.insert(all.begin(), all.find(20));
  const Bytes before = PackedLeaf(8, {7, 0, 100, 5, false, Placement::kHashed}, all);
  const Bytes after = PackedLeaf(8, {7, 0, 20, 6, false, Placement::kHashed}, left, before);
  size_t words = 0;
  for (size_t at = 0; at < after.size(); at += 8) {
    words += LoadLittle<uint64_t>(&after[at]) != LoadLittle<uint64_t>(&before[at]);
  }
  // Of the trailer: checksum, version, high fence, version; the sibling's address is the same here.
  EXPECT_EQ(words, 2 * 8 + 4u);
}

TEST(PartedImageTest, AnyPageMayBeThePreviousOne) {
  for (uint64_t seed = 0; seed < test::Amount{200, 3000, 30'000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t parts = kLeafPartsMin + random.Below(kLeafPartsMax - kLeafPartsMin + 1);
    const LeafHead head = RandomHead(&random);
    const LeafEntries entries = RandomEntries(HomesToFill(parts, head, &random), seed, &random);
    Bytes previous(LeafImageBytes(parts));
    for (std::byte& byte : previous) byte = static_cast<std::byte>(random.Next());
    for (const auto& [key, value] : entries) {  // some of them, once, twice, and anywhere
      if (random.OneIn(2)) continue;
      for (uint64_t times = 1 + random.Below(2); times > 0; --times) {
        StoreBig64(&previous[random.Below(parts) * 128 + 16 + 16 * random.Below(7)], key);
      }
    }
    const Bytes raw = PackedLeaf(parts, head, entries, previous);
    ASSERT_EQ(LeafFault(raw, head, entries, Marks::kExact), "");
    Bytes opened;
    ASSERT_EQ(Open(parts, raw, &opened), OpenOutcome::kValid);
    ASSERT_EQ(opened, NodeOf(parts, head, entries));
  }
}

TEST(PartedImageTest, StructureIsTheVersionsLowBitsAndWraps) {
  const LeafEntries entries = {{1, 10}, {2, 20}, {3, 30}};
  Bytes image;
  for (const uint64_t version : {uint64_t{1}, uint64_t{0xfffffe}, uint64_t{0xffffff},
                                 uint64_t{0x1000000}, uint64_t{0x1000001}, ~uint64_t{0}}) {
    SCOPED_TRACE(version);
    const LeafHead head{7, std::nullopt, std::nullopt, version, false};
    const Bytes previous = image;
    image = PackedLeaf(5, head, entries, previous);
    ASSERT_EQ(LeafFault(image, head, entries, Marks::kExact), "");
    Bytes opened;
    ASSERT_EQ(Open(5, image, &opened), OpenOutcome::kValid);
    EXPECT_EQ(ConstNode(PartedGeometry(5), opened).version(), version);
    if (previous.empty()) continue;
    // A part of the life before does not pass for one of this.
    for (size_t p = 0; p < 5; ++p) {
      Bytes mixed = image;
      std::copy_n(previous.begin() + static_cast<ptrdiff_t>(p * kPartBytes), kPartBytes,
                  mixed.begin() + static_cast<ptrdiff_t>(p * kPartBytes));
      EXPECT_EQ(Open(5, mixed, &opened), OpenOutcome::kTorn);
      EXPECT_FALSE(LeafParts(mixed, 0x1f, {}).Fits(head.Digest()));
      EXPECT_TRUE(LeafParts(mixed, 1u << p, {}).Fits(head.Digest()));
    }
  }
}

TEST(PartedImageTest, ADeadLeafFitsNoFences) {
  const LeafHead head{7, 5, 50, 3, true};
  LeafHead alive = head;
  alive.dead = false;
  Bytes image = PackedLeaf(6, head, {{7, 1}}), opened;
  ASSERT_EQ(Open(6, image, &opened), OpenOutcome::kValid);
  EXPECT_TRUE(ConstNode(PartedGeometry(6), opened).dead());
  for (uint32_t loaded = 1; loaded < 0x40; ++loaded) {
    EXPECT_FALSE(LeafParts(image, loaded, {}).Fits(alive.Digest()));
  }
}

TEST(PartedImageTest, EveryChangedByteIsTorn) {
  Random random(7);
  LeafEntries entries = RandomEntries(LeafHomes(7, Placement::kHashed, {}), 0, &random);
  Bytes image = PackedLeaf(7, {7, 1, std::nullopt, 9, false}, entries), opened;
  for (std::byte& byte : image) {
    const std::byte good = byte;
    byte ^= static_cast<std::byte>(1 + random.Below(255));
    EXPECT_EQ(Open(7, image, &opened), OpenOutcome::kTorn) << &byte - image.data();
    byte = good;
  }
  EXPECT_EQ(Open(7, image, &opened), OpenOutcome::kValid);
  Bytes zero(LeafImageBytes(7));
  EXPECT_EQ(Open(7, zero, &opened), OpenOutcome::kTorn);
  EXPECT_FALSE(ConstPart(zero.data()).Intact());
}

/// The trailer's own checksum, made right.
void SealTrailer(size_t parts, Bytes* image) {
  const std::span<std::byte> trailer = std::span(*image).subspan(parts * kPartBytes);
  StoreLittle(trailer.data(), Crc32c(trailer.subspan(4)));
}

TEST(PartedImageTest, ATrailerThatIsNoLeafsIsMalformed) {
  constexpr size_t kTrailer = 4 * kPartBytes;
  const std::vector<std::pair<size_t, int>> fields = {
      {offsetof(internal::PageHeader, level), 1},
      {offsetof(internal::PageHeader, flags), 8},
      {offsetof(internal::PageHeader, right), 8},
      {offsetof(internal::PageHeader, count), 1},
      {offsetof(internal::PageHeader, count) + 1, 1}};
  for (auto [offset, value] : fields) {
    Bytes image = PackedLeaf(4, {7, 1, 9, 2, false}, {{3, 1}}), opened;
    image[kTrailer + offset] = static_cast<std::byte>(value);
    SealTrailer(4, &image);
    EXPECT_EQ(Open(4, image, &opened), OpenOutcome::kMalformed) << offset;
  }
}

TEST(PartedImageTest, PartsThatAreNotTheTrailersAreTorn) {
  constexpr size_t kTrailer = 4 * kPartBytes;
  const Bytes good = PackedLeaf(4, {7, 1, 9, 2, false}, {{3, 1}});
  // Tree, dead, no high fence, version, low fence, high fence, second version.
  for (const size_t offset :
       {size_t{4}, size_t{7}, size_t{8}, size_t{39}, size_t{47}, size_t{48}}) {
    for (const int flip : {1, 2}) {
      Bytes image = good, opened;
      image[kTrailer + offset] ^= static_cast<std::byte>(flip);
      SealTrailer(4, &image);
      EXPECT_EQ(Open(4, image, &opened), OpenOutcome::kTorn) << offset;
    }
  }
}

TEST(PartedImageTest, AKeyThatStandsTwiceIsTorn) {
  Random random(2);
  const uint64_t key = KeyOfHome(1, 4, &random);
  for (const size_t other : {size_t{1}, size_t{2}}) {
    Bytes image = PackedLeaf(4, {}, {{key, 1}}), opened;
    Part home(image.data() + kPartBytes), part(image.data() + other * kPartBytes);
    home.SetPassed(true);
    home.Seal();
    part.Put(5, key, "another.");
    part.Seal();
    EXPECT_EQ(Open(4, image, &opened), OpenOutcome::kTorn);
  }
}

TEST(PartedImageTest, AnEntryWhoseWayFromHomeIsNotMarkedIsTorn) {
  Random random(2);
  const uint64_t key = KeyOfHome(3, 4, &random);
  for (const uint32_t marked : {0u, 8u, 1u, 9u}) {  // the way is 3, 0, 1
    Bytes image = PackedLeaf(4, {}, {}), opened;
    for (size_t p = 0; p < 4; ++p) {
      Part part(image.data() + p * kPartBytes);
      if ((marked >> p & 1) != 0) part.SetPassed(true);
      if (p == 1) part.Put(0, key, "a value.");
      part.Seal();
    }
    EXPECT_EQ(Open(4, image, &opened), marked == 9 ? OpenOutcome::kValid : OpenOutcome::kTorn);
  }
}

TEST(PartedImageTest, ALeafIsOrderedIfItHasTwoFencesAndItsKeysAreSpreadBetweenThem) {
  LeafEntries even, dense;
  for (uint64_t i = 0; i < 64; ++i) even[1000 + 100 * i] = i;
  for (uint64_t i = 0; i < 30; ++i) dense[1000 + i] = i;
  const auto placement = [](const LeafHead& head, const LeafEntries& entries) {
    const Bytes raw = PackedLeaf(16, head, entries);
    EXPECT_EQ(LeafFault(raw, head, entries, Marks::kExact), "");
    return DecodedPart(raw, 7).placement();
  };
  EXPECT_EQ(placement({7, 1000, 7400, 5, false}, even), Placement::kOrdered);
  EXPECT_EQ(placement({7, 1000, 7400, 5, false}, {}), Placement::kOrdered);
  EXPECT_EQ(placement({7, 1000, 7400, 5, false, Placement::kHashed}, even), Placement::kHashed);
  EXPECT_EQ(placement({7, 1000, std::nullopt, 5, false}, even), Placement::kHashed);
  EXPECT_EQ(placement({7, std::nullopt, 7400, 5, false}, even), Placement::kHashed);
  EXPECT_EQ(placement({7, 1000, 7400, 5, false}, dense), Placement::kHashed);
  EXPECT_EQ(placement({7, 1000, 1030, 5, false}, dense), Placement::kOrdered);
}

TEST(PartedImageTest, PartsOfAnOrderedLeafAreInTheOrderOfKeys) {
  for (uint64_t seed = 0; seed < test::Amount{20, 100, 1000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint64_t low = random.Next() >> 1;
    const LeafHead head{7, low, low + 1 + (random.Next() >> (1 + random.Below(50))), 5, false};
    LeafEntries entries;
    for (uint64_t i = 0; i < 40; ++i) entries[low + random.Below(*head.high - low)] = i;
    const Bytes raw = PackedLeaf(16, head, entries);
    ASSERT_EQ(LeafFault(raw, head, entries, Marks::kExact), "");
    if (DecodedPart(raw, 0).placement() != Placement::kOrdered) continue;
    const LeafHomes homes = HomesOf(raw, head);
    for (const auto& [key, place] : PlacesOf(raw, 16)) {
      const size_t part = place / kPartSlots, home = homes.Of(key);
      EXPECT_LT((part + 16 - home) % 16, OrderedChainPartsOf(16));
      EXPECT_LE(homes.FirstKeyOf(home), key);
      EXPECT_LT(key, homes.EndKeyOf(home));
    }
  }
}

TEST(PartedImageTest, AnOrderedLeafWithoutTwoFencesIsTorn) {
  for (const uint8_t flag : {internal::kFlagNoLow, internal::kFlagNoHigh}) {
    LeafHead head{7, std::nullopt, std::nullopt, 2, false};
    if (flag == internal::kFlagNoLow) head.high = 9;
    if (flag == internal::kFlagNoHigh) head.low = 1;
    Bytes image = PackedLeaf(4, head, {{3, 1}}), opened;
    ASSERT_EQ(Open(4, image, &opened), OpenOutcome::kValid);
    for (size_t p = 0; p < 4; ++p) {
      Part part(image.data() + p * kPartBytes);
      part.SetIdentity(head.Digest(), head.Structure(Placement::kOrdered));
      part.Seal();
    }
    EXPECT_EQ(Open(4, image, &opened), OpenOutcome::kTorn);
  }
}

}  // namespace
}  // namespace farleaf::index
