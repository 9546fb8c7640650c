// Parted leaves against a map and against the format's own offsets: changes by parts, with all of them
// in hand or some, and the way from the sorted node and back.
#include "index/blink/parted_leaf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dsm/base/crc32c.h"
#include "test/support/parted_leaf_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

using Outcome = LeafParts::Outcome;

/// Where the walk from the key's home ends, by the bytes.
LeafParts::Place ExpectedFind(std::span<const std::byte> image, const LeafHomes& homes,
                              uint32_t loaded, uint64_t key) {
  const size_t parts = homes.parts();
  for (size_t i = 0, at = homes.Of(key); i < parts; ++i, at = (at + 1) % parts) {
    if ((loaded >> at & 1) == 0) return {Outcome::kNotLoaded, at};
    const PartBytes part = DecodedPart(image, at);
    if (const auto slot = part.SlotOf(key)) return {Outcome::kYes, at, *slot};
    if (!part.passed) return {Outcome::kNo};
  }
  return {Outcome::kNo};
}

LeafParts::Place ExpectedRoom(std::span<const std::byte> image, const LeafHomes& homes,
                              uint32_t loaded, uint64_t key, size_t chain) {
  const size_t parts = homes.parts();
  for (size_t i = 0, at = homes.Of(key); i < chain; ++i, at = (at + 1) % parts) {
    if ((loaded >> at & 1) == 0) return {Outcome::kNotLoaded, at};
    if (!DecodedPart(image, at).full()) return {Outcome::kYes, at};
  }
  return {Outcome::kNo};
}

/// A leaf and a map of the same content. What is not loaded is hidden by bytes that mean nothing.
class LeafModel {
 public:
  LeafModel(size_t parts, uint64_t seed, LeafHead head)
      : head_(head),
        parts_(parts),
        random_(seed),
        image_(PackedLeaf(parts, head_, {})),
        homes_(HomesOf(image_, head)) {
    keys_ = AwkwardKeys(seed, homes_, parts * kPartSlots + 12, &random_);
  }

  void Step() {
    const uint64_t key = keys_[random_.Below(keys_.size())];
    const uint32_t loaded = Loaded(key);
    Bytes buffer = Hidden(loaded);
    LeafParts leaf(buffer, loaded, head_.Range());
    ASSERT_EQ(leaf.count(), EntriesIn(loaded));
    const LeafParts::Place found = leaf.Find(key);
    ASSERT_NO_FATAL_FAILURE(ExpectPlace(found, ExpectedFind(image_, homes_, loaded, key)));
    if (found.outcome == Outcome::kNotLoaded) {
      ++not_loaded_;
      return ExpectDependsOn(found.part, loaded, key);
    }
    const auto in_model = model_.find(key);
    ASSERT_EQ(found.outcome == Outcome::kYes, in_model != model_.end());
    if (found.outcome == Outcome::kYes) {
      ASSERT_EQ(DecodedPart(image_, found.part).value[found.slot], in_model->second);
      Change(found, key, &leaf);
    } else {
      ASSERT_NO_FATAL_FAILURE(Insert(key, loaded, &leaf));
    }
    TakeOver(buffer, loaded);
  }

  std::string Fault() const { return LeafFault(image_, head_, model_, Marks::kEnough); }
  std::optional<LeafEntries> Opened() const { return OpenedLeaf(parts_, image_); }
  const LeafEntries& model() const { return model_; }
  uint64_t refused() const { return refused_; }
  uint64_t not_loaded() const { return not_loaded_; }

 private:
  uint32_t All() const { return (uint32_t{1} << parts_) - 1; }

  /// Everything, a window from the key's home on, or anything.
  uint32_t Loaded(uint64_t key) {
    if (random_.OneIn(2)) return All();
    if (random_.OneIn(3))
      return 1u << random_.Below(parts_) | (static_cast<uint32_t>(random_.Next()) & All());
    uint32_t loaded = 0;
    const size_t home = homes_.Of(key), window = 1 + random_.Below(4);
    for (size_t i = 0; i < window; ++i) loaded |= uint32_t{1} << (home + i) % parts_;
    return loaded;
  }

  Bytes Hidden(uint32_t loaded) {
    Bytes buffer = image_;
    for (size_t p = 0; p < parts_; ++p) {
      if ((loaded >> p & 1) != 0) continue;
      const auto filler = static_cast<std::byte>(random_.Next());
      std::fill_n(buffer.begin() + static_cast<ptrdiff_t>(p * kPartBytes), kPartBytes, filler);
    }
    hidden_ = buffer;
    return buffer;
  }

  size_t EntriesIn(uint32_t loaded) const {
    size_t entries = 0;
    for (size_t p = 0; p < parts_; ++p) {
      if ((loaded >> p & 1) == 0) continue;
      entries += static_cast<size_t>(std::popcount(DecodedPart(image_, p).used));
    }
    return entries;
  }

  static void ExpectPlace(const LeafParts::Place& place, const LeafParts::Place& expected) {
    ASSERT_EQ(place.outcome, expected.outcome);
    if (expected.outcome == Outcome::kNo) return;
    ASSERT_EQ(place.part, expected.part);
    if (expected.outcome == Outcome::kYes) {
      ASSERT_EQ(place.slot, expected.slot);
    }
  }

  /// With one content of the missing part the key is there, with another it is not.
  void ExpectDependsOn(size_t part, uint32_t loaded, uint64_t key) {
    for (const bool holds : {false, true}) {
      Bytes buffer = hidden_;
      Part missing(buffer.data() + part * kPartBytes);
      std::fill_n(buffer.begin() + static_cast<ptrdiff_t>(part * kPartBytes), kPartBytes,
                  std::byte{0});
      missing.SetIdentity(head_.Digest(), DecodedPart(image_, part).structure);
      if (holds) missing.Put(3, key, "8 bytes.");
      const LeafParts leaf(buffer, loaded | uint32_t{1} << part, head_.Range());
      ASSERT_EQ(leaf.Find(key).outcome, holds ? Outcome::kYes : Outcome::kNo);
    }
  }

  void Change(const LeafParts::Place& place, uint64_t key, LeafParts* leaf) {
    if (random_.OneIn(3)) {
      leaf->Remove(place);
      model_.erase(key);
      return;
    }
    const uint64_t value = random_.Next();
    leaf->SetValue(place, &value);
    model_[key] = value;
  }

  void Insert(uint64_t key, uint32_t loaded, LeafParts* leaf) {
    const size_t chain = random_.OneIn(3) ? 1 + random_.Below(parts_) : ChainPartsOf(parts_);
    const LeafParts::Place room = leaf->FindRoom(key, chain);
    const LeafParts::Place expected = ExpectedRoom(image_, homes_, loaded, key, chain);
    ASSERT_EQ(room.outcome, expected.outcome);
    if (room.outcome == Outcome::kNo) {
      ++refused_;
      return;
    }
    ASSERT_EQ(room.part, expected.part);
    if (room.outcome == Outcome::kNotLoaded) return;
    ASSERT_LT(room.slot, kPartSlots);
    ASSERT_EQ(DecodedPart(image_, room.part).used >> room.slot & 1, 0u);
    const uint64_t value = random_.Next();
    leaf->Put(room, key, &value);
    model_[key] = value;
  }

  /// As a write-back does: of the parts in hand. Nothing else was to be written.
  void TakeOver(const Bytes& buffer, uint32_t loaded) {
    for (size_t at = 0; at < buffer.size(); ++at) {
      const size_t part = at / kPartBytes;
      if (part < parts_ && (loaded >> part & 1) != 0) {
        image_[at] = buffer[at];
      } else {
        ASSERT_EQ(buffer[at], hidden_[at]) << at;
      }
    }
  }

  const LeafHead head_;
  const size_t parts_;
  Random random_;
  Bytes image_, hidden_;
  const LeafHomes homes_;
  std::vector<uint64_t> keys_;
  LeafEntries model_;
  uint64_t refused_ = 0, not_loaded_ = 0;
};

TEST(LeafPartsTest, BehavesLikeAMapWhicheverPartsAreInHand) {
  uint64_t refused = 0, not_loaded = 0;
  size_t fullest = 0;
  for (size_t parts = kLeafPartsMin; parts <= kLeafPartsMax; ++parts) {
    for (uint64_t style = 0; style < 2 * kKeyStyles; ++style) {
      const uint64_t seed = parts * 2 * kKeyStyles + style;
      SCOPED_TRACE("parts " + std::to_string(parts) + ", seed " + std::to_string(seed));
      LeafHead head{7, 3, std::nullopt, 41, false};
      if (style >= kKeyStyles) head.high = 1000 + (uint64_t{1} << (20 + parts));  // ordered
      LeafModel leaf(parts, seed, head);
      const uint64_t steps = test::Amount{100, 500, 10'000};
      for (uint64_t step = 0; step < steps; ++step) {
        ASSERT_NO_FATAL_FAILURE(leaf.Step()) << step;
        ASSERT_EQ(leaf.Fault(), "") << step;
        fullest = std::max(fullest, leaf.model().size() * 100 / (parts * kPartSlots));
      }
      ASSERT_EQ(leaf.Opened(), leaf.model());
      refused += leaf.refused();
      not_loaded += leaf.not_loaded();
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(not_loaded, 100u);
  if (test::ScaleOfTests() != test::Scale::kSmall) {
    EXPECT_GT(fullest, 80u);
  }
}

TEST(LeafPartsTest, AChainOfAllPartsFillsTheLeafAndWraps) {
  for (size_t parts = kLeafPartsMin; parts <= kLeafPartsMax; ++parts) {
    SCOPED_TRACE(parts);
    Random random(parts);
    const LeafHead head;
    Bytes image = PackedLeaf(parts, head, {});
    LeafEntries model;
    while (model.size() < parts * kPartSlots) {
      const uint64_t key = KeyOfHome(parts - 1, parts, &random);
      LeafParts leaf(image, (uint32_t{1} << parts) - 1, {});
      if (leaf.Find(key).outcome == Outcome::kYes) continue;
      const size_t full = model.size() / kPartSlots;  // parts, from the last on
      if (full > 0) {
        ASSERT_EQ(leaf.FindRoom(key, full).outcome, Outcome::kNo);
      }
      const auto room = leaf.FindRoom(key, full + 1);
      ASSERT_EQ(room.outcome, Outcome::kYes);
      ASSERT_EQ(room.part, (parts - 1 + full) % parts);
      const uint64_t value = model[key] = random.Next();
      leaf.Put(room, key, &value);
      ASSERT_EQ(LeafFault(image, head, model, Marks::kExact), "");
    }
    const LeafParts leaf(image, (uint32_t{1} << parts) - 1, {});
    EXPECT_TRUE(leaf.whole());
    EXPECT_EQ(leaf.count(), model.size());
    EXPECT_EQ(leaf.FindRoom(KeyOfHome(0, parts, &random), parts).outcome, Outcome::kNo);
    EXPECT_EQ(leaf.Find(KeyOfHome(parts - 1, parts, &random)).outcome, Outcome::kNo);
    EXPECT_EQ(OpenedLeaf(parts, image), model);
  }
}

TEST(LeafPartsTest, AFreedSlotIsNotAnEntryAndServesTheNextOne) {
  Random random(5);
  Bytes image = PackedLeaf(4, {}, {});
  LeafParts leaf(image, 0xf, {});
  const uint64_t first = KeyOfHome(2, 4, &random), second = KeyOfHome(2, 4, &random), value = 9;
  leaf.Put(leaf.FindRoom(first, 1), first, &value);
  leaf.Remove(leaf.Find(first));
  EXPECT_EQ(leaf.Find(first).outcome, Outcome::kNo);
  EXPECT_EQ(leaf.count(), 0u);
  leaf.Put(leaf.FindRoom(second, 1), second, &value);
  EXPECT_EQ(leaf.Find(first).outcome, Outcome::kNo);
  EXPECT_EQ(LeafFault(image, {}, {{second, 9}}, Marks::kExact), "");
}

TEST(LeafPartsTest, FitsExactlyIfAllInHandIsIntactOfTheseFencesAndOfOneStructure) {
  const LeafHead head{7, 10, 1'000, 0x1234567, false};
  const uint64_t digest = head.Digest();
  const Bytes good = PackedLeaf(8, head, {{11, 1}, {300, 2}, {999, 3}});
  for (const uint32_t loaded : {0x1u, 0x80u, 0xffu, 0x91u}) {
    SCOPED_TRACE(loaded);
    Bytes image = good;
    EXPECT_TRUE(LeafParts(image, loaded, head.Range()).Fits(digest));
    EXPECT_FALSE(LeafParts(image, loaded, head.Range()).Fits(digest ^ 1));
    for (size_t p = 0; p < 8; ++p) {
      const bool in_hand = (loaded >> p & 1) != 0;
      image = good;
      image[p * kPartBytes + 100] ^= std::byte{1};
      EXPECT_EQ(LeafParts(image, loaded, head.Range()).Fits(digest), !in_hand);
      image = good;
      Part part(image.data() + p * kPartBytes);
      for (const uint32_t structure : {0xa34566u, 0xa24567u, 0x234567u, 0xe34567u}) {
        part.SetIdentity(digest, structure);
        part.Seal();
        EXPECT_EQ(LeafParts(image, loaded, head.Range()).Fits(digest),
                  !in_hand || std::popcount(loaded) == 1);
      }
      part.SetIdentity(digest ^ uint64_t{1} << 47, head.Structure(Placement::kOrdered));
      part.Seal();
      EXPECT_EQ(LeafParts(image, loaded, head.Range()).Fits(digest), !in_hand);
    }
  }
  Bytes image = good;
  EXPECT_FALSE(LeafParts(image, 0, {}).Fits(digest));
}

TEST(LeafPartsTest, IdentityTakesAllOfItsBitsAndNoOther) {
  Random random(11);
  alignas(8) std::byte bytes[kPartBytes];
  for (int i = 0; i < 1000; ++i) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
    const ConstPart view(bytes);
    const uint32_t used = view.used();
    const bool passed = view.passed();
    const uint64_t digest = i == 0 ? (uint64_t{1} << 48) - 1 : random.Next() >> 16;
    const auto structure = i == 0 ? 0xffffffu : static_cast<uint32_t>(random.Next() >> 40);
    Part(bytes).SetIdentity(digest, structure);
    EXPECT_EQ(view.digest(), digest);
    EXPECT_EQ(view.structure(), structure);
    EXPECT_EQ(view.used(), used);
    EXPECT_EQ(view.passed(), passed);
  }
}

TEST(LeafPartsTest, HomesOfCountersStridesAndRandomKeysAreEven) {
  Random random(3);
  for (const size_t parts : {4u, 8u, 15u, 31u}) {
    for (const uint64_t stride : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{8}, uint64_t{64},
                                  uint64_t{1000}, uint64_t{1} << 20, uint64_t{1} << 32}) {
      std::vector<size_t> count(parts);
      for (uint64_t i = 0; i < 1000 * parts; ++i) {
        ++count[HomePart(stride == 0 ? random.Next() : 77 + stride * i, parts)];
      }
      const auto [least, most] = std::minmax_element(count.begin(), count.end());
      EXPECT_GT(*least, 800u) << parts << " parts, stride " << stride;
      EXPECT_LT(*most, 1200u) << parts << " parts, stride " << stride;
    }
  }
}

}  // namespace
}  // namespace farleaf::index
