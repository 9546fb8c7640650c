// Leaves of byte strings that are looked at, and changed, where they lie: leaf_peek.h, in_place.cc, crc32c_change.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "dsm/base/crc32c.h"
#include "dsm/base/crc32c_change.h"
#include "dsm/base/crc32c_few.h"
#include "index/blink/leaf_peek.h"
#include "test/support/node_fixture.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr TreeId kTreeId = 7;

// ---- The checksum of what has changed ----

TEST(Crc32cChange, TheChecksumOfAChangeIsThatOfTheWhole) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::byte> bytes(8 + random.Below(509) * 8);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
    const size_t words = bytes.size() / 8, begin = random.Below(words),
                 count = 1 + random.Below(words - begin);
    const std::vector<std::byte> before = bytes;
    const auto changed = std::span(bytes).subspan(8 * begin, 8 * count);
    for (std::byte& byte : changed) byte = static_cast<std::byte>(random.Next());
    const auto was = std::span(before).subspan(8 * begin, 8 * count);
    EXPECT_EQ(Crc32c(before) ^ Crc32cChange(was, changed, words - begin - count), Crc32c(bytes));
  }
}

TEST(Crc32cChange, BothWaysOfShiftingAgree) {
  Random random(1);
  for (size_t words = 0; words <= farleaf::internal::kCrcWordsMax; ++words) {
    const auto crc = static_cast<uint32_t>(random.Next());
    EXPECT_EQ(ShiftCrc32c(crc, words), farleaf::internal::ShiftCrcPortably(crc, words)) << words;
  }
}

TEST(Crc32cOfFew, IsTheChecksumOfAnyNumberOfBytes) {
  Random random(1);
  std::vector<std::byte> bytes(kCrcFewBytes + 20);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  for (size_t count = 0; count <= bytes.size(); ++count) {
    const auto few = std::span<const std::byte>(bytes).first(count);
    EXPECT_EQ(Crc32cOfFew(few), Crc32c(few)) << count;
  }
}

// ---- A peek beside a writer ----

/// One of twelve; slots tell no more of two of them.
std::string AnyKey(Random& random) {
  const uint64_t number = random.Below(12);
  return {'k', static_cast<char>('a' + number / 2), 'l', 'm', static_cast<char>('a' + number % 2)};
}

/// A leaf in memory, and one who writes it: a piece of 8 bytes at a time, between any two loads.
class ContestedLeaf {
 public:
  ContestedLeaf(const Geometry& geometry, Random* random)
      : geometry_(geometry), random_(random), page_(geometry.leaf_bytes) {
    NodeImage leaf(geometry_);
    leaf->Init({kTreeId, 0, "aaaa", "zzzz", {}});
    leaf->Seal(1);
    std::copy(leaf.image().begin(), leaf.image().end(), page_.begin());
    contents_.emplace_back();
  }

  uint64_t Word(size_t offset) {
    Interfere();
    return LoadLittle<uint64_t>(&page_[offset]);
  }
  void Copy(size_t offset, size_t bytes, std::byte* to) {
    for (size_t at = 0; at < bytes; at += 8) StoreLittle(to + at, Word(offset + at));
  }
  /// What the leaf has held since it was last asked, the oldest first.
  std::vector<std::map<std::string, std::string>> TakeContents() {
    auto taken = contents_;
    contents_.erase(contents_.begin(), contents_.end() - 1);
    return taken;
  }
  void Finish() {
    while (!left_.empty()) WriteOne();
  }

 private:
  void Interfere() {
    for (uint64_t n = random_->Below(40) == 0 ? random_->Below(120) : random_->Below(2); n > 0;
         --n) {
      if (left_.empty()) {
        if (!random_->OneIn(100)) return;
        Begin();
      }
      WriteOne();
    }
  }
  /// Locks, and decides what is written: all words that change, in any order, and the unlock behind them.
  void Begin() {
    NodeImage next(geometry_);
    std::copy_n(page_.begin(), next.image().size(), next.image().begin());
    std::map<std::string, std::string> content = contents_.back();
    const std::string key = AnyKey(*random_);
    const std::string value(random_->Below(20), static_cast<char>('a' + random_->Below(26)));
    const auto at = next->Search(key);
    if (random_->OneIn(4)) {
      if (at.found) next->Remove(at.index);
      content.erase(key);
    } else if (at.found ? next->ReplaceValue(at.index, {value, false})
                        : next->Insert(at.index, key, {value, false})) {
      content[key] = value;
    }
    next->Seal(next->version() + 1);
    contents_.push_back(std::move(content));
    for (size_t offset = 0; offset < next.image().size(); offset += 8) {
      const auto word = LoadLittle<uint64_t>(&next.image()[offset]);
      if (word != LoadLittle<uint64_t>(&page_[offset])) left_.push_back({offset, word});
    }
    for (size_t i = left_.size(); i > 1; --i) std::swap(left_[i - 1], left_[random_->Below(i)]);
    const size_t lock_at = next.image().size();
    left_.insert(left_.begin(), {lock_at, 0x5555});
    left_.push_back({lock_at, dsm::kUnlockedWord});
    std::reverse(left_.begin(), left_.end());
  }
  void WriteOne() {
    StoreLittle(&page_[left_.back().first], left_.back().second);
    left_.pop_back();
  }

  const Geometry geometry_;
  Random* random_;
  std::vector<std::byte> page_;
  std::vector<std::pair<size_t, uint64_t>> left_;  // to be written, the last first
  std::vector<std::map<std::string, std::string>> contents_;
};

/// What a peek is made to believe without looking.
enum class PeekFault : uint8_t { kNone, kLockUnchecked, kVersionUncheckedBehind };

constexpr Geometry kContested{Layout::kBytes, 512, 512, 40, 30};

struct ContestedPage {
  ContestedLeaf* leaf = nullptr;
  PeekFault fault = PeekFault::kNone;
  mutable std::optional<uint64_t> version = {};

  uint64_t Word(size_t offset) const {
    const uint64_t word = leaf->Word(offset);
    if (fault == PeekFault::kLockUnchecked && offset == kContested.image_bytes(0)) {
      return dsm::kUnlockedWord;
    }
    if (fault == PeekFault::kVersionUncheckedBehind &&
        offset == offsetof(internal::PageHeader, version)) {
      if (!version) version = word;
      return *version;
    }
    return word;
  }
  void Copy(size_t offset, size_t bytes, std::byte* to) const { leaf->Copy(offset, bytes, to); }
  void Prefetch(size_t) const {}
};

struct Peeks {
  uint64_t believed = 0;
  std::string wrong;  ///< the first that told what the leaf held at no moment
};

/// The writer goes on between the two, and other looks use the image.
PeekOutcome FindInTwoSteps(BasicLeafPeek<ContestedPage>& peek, ContestedLeaf& leaf,
                           const std::string& key, PageBuffer& image) {
  const auto outcome = peek.BeginFind(key, image);
  for (int i = 0; i < 20; ++i) leaf.Word(0);
  std::fill(std::begin(image.bytes), std::end(image.bytes), std::byte{0x5a});
  return outcome ? *outcome : peek.EndFind(image);
}

Peeks PeekBesideAWriter(PeekFault fault, uint64_t seed) {
  Random random(seed);
  ContestedLeaf leaf(kContested, &random);
  Peeks peeks;
  for (int i = 0; i < 20'000 && peeks.wrong.empty(); ++i) {
    if (random.OneIn(8)) leaf.Finish();
    leaf.TakeContents();
    const std::string key = AnyKey(random);
    BasicLeafPeek<ContestedPage> peek(kContested, kTreeId, {&leaf, fault});
    PageBuffer image;
    const PeekOutcome outcome =
        random.OneIn(2) ? peek.Find(key, image) : FindInTwoSteps(peek, leaf, key, image);
    std::optional<std::string> value;
    if (outcome == PeekOutcome::kFound) value = peek.Value(image);
    if (outcome == PeekOutcome::kNotHere || !peek.Holds()) continue;
    ++peeks.believed;
    const auto contents = leaf.TakeContents();
    const bool held = std::any_of(contents.begin(), contents.end(), [&](const auto& content) {
      const auto found = content.find(key);
      return value ? found != content.end() && found->second == *value : found == content.end();
    });
    if (!held) peeks.wrong = key + " = " + value.value_or("nothing");
  }
  return peeks;
}

TEST(LeafPeek, SaysWhatTheLeafHeldAtAMoment) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const Peeks peeks = PeekBesideAWriter(PeekFault::kNone, seed);
  EXPECT_EQ(peeks.wrong, "");
  EXPECT_GT(peeks.believed, 1'000u);
}

// As the simulation's mutations do of what it runs: simulated memory is not looked at where it lies.
TEST(LeafPeek, WithoutOneOfItsChecksItIsCaughtLying) {
  for (const PeekFault fault : {PeekFault::kLockUnchecked, PeekFault::kVersionUncheckedBehind}) {
    const Peeks peeks = PeekBesideAWriter(fault, 1);
    EXPECT_NE(peeks.wrong, "") << static_cast<int>(fault);
    std::printf("fault %d: caught after %lu answers\n", static_cast<int>(fault),
                static_cast<unsigned long>(peeks.believed));
  }
}

TEST(LeafPeek, TellsNothingOfOtherLeavesAndOfWhatIsNoLeaf) {
  const Geometry geometry{Layout::kBytes, 512, 512, 40, 30};
  const auto outcome_of = [&](const std::vector<std::byte>& page, TreeId tree,
                              std::string_view key) {
    PageBuffer image;
    LeafPeek peek(geometry, tree, MappedPage(page.data()));
    return peek.Find(key, image);
  };
  const auto page_of = [&](Node::Header header, bool dead) {
    NodeImage leaf(geometry);
    leaf->Init(header);
    if (dead) leaf->MarkDead(GlobalAddress(0, 64));
    leaf->Seal(3);
    std::vector<std::byte> page(geometry.leaf_bytes);
    std::copy(leaf.image().begin(), leaf.image().end(), page.begin());
    return page;
  };
  const auto good = page_of({kTreeId, 0, "b", "d", {}}, false);
  EXPECT_EQ(outcome_of(good, kTreeId, "c"), PeekOutcome::kAbsent);
  EXPECT_EQ(outcome_of(good, kTreeId, "a"), PeekOutcome::kNotHere);
  EXPECT_EQ(outcome_of(good, kTreeId, "d"), PeekOutcome::kNotHere);
  EXPECT_EQ(outcome_of(good, kTreeId + 1, "c"), PeekOutcome::kNotHere);
  EXPECT_EQ(outcome_of(page_of({kTreeId, 0, "b", "d", {}}, true), kTreeId, "c"),
            PeekOutcome::kNotHere);
  EXPECT_EQ(outcome_of(std::vector<std::byte>(512), kTreeId, "c"), PeekOutcome::kNotHere);
  auto locked = good;
  locked[504] = std::byte{1};
  EXPECT_EQ(outcome_of(locked, kTreeId, "c"), PeekOutcome::kNotHere);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 20'000; ++i) {  // whatever stands there, nothing beside the page is looked at
    auto page = good;
    for (uint64_t n = 1 + random.Below(12); n > 0; --n) {
      page[random.Below(64)] = static_cast<std::byte>(random.Next());
    }
    [[maybe_unused]] const auto outcome = outcome_of(page, kTreeId, "c");
  }
}

// ---- The tree ----

std::string KeyOf(uint64_t i) { return "key-" + std::to_string(100'000 + i * 7919 % 100'000); }
std::string ValueOf(uint64_t i, char letter) { return std::to_string(i) + std::string(60, letter); }

TEST(InPlace, WhatIsReplacedInPlaceIsReadByAllAsIfItHadNotBeen) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  BlinkTree whole(&tree.pool(), tree.tree().info(), {.in_place = InPlace::kOff});
  constexpr uint64_t kKeys = 3'000;
  for (uint64_t i = 0; i < kKeys; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  for (uint64_t i = 0; i < kKeys; i += 2) {
    EXPECT_FALSE(tree.Put(KeyOf(i), ValueOf(i, 'b')));
    EXPECT_EQ(tree.cost().round_trips, 2u);
    EXPECT_LT(tree.cost().bytes_read, 1'000u);
  }
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  for (uint64_t i = 0; i < kKeys; ++i) {
    std::string value;
    const auto found = tree.worker().Run(whole.Get(op, KeyOf(i), &value));  // checks checksums
    ASSERT_TRUE(found.ok() && *found) << i;
    EXPECT_EQ(value, ValueOf(i, i % 2 == 0 ? 'b' : 'a'));
    EXPECT_EQ(tree.Get(KeyOf(i)), value);
    EXPECT_EQ(tree.cost().round_trips, 1u);
    EXPECT_LT(tree.cost().bytes_read, 1'000u);
  }
  EXPECT_EQ(tree.Get("key-0"), std::nullopt);
}

TEST(InPlace, ValuesOfOtherLengthsAndDeletesGoTheUsualWay) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (uint64_t i = 0; i < 500; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  EXPECT_FALSE(tree.Put(KeyOf(3), "short"));
  EXPECT_FALSE(tree.Put(KeyOf(4), std::string(3'000, 'l')));  // out of line
  EXPECT_TRUE(tree.Delete(KeyOf(5)));
  EXPECT_FALSE(tree.Insert(KeyOf(6), "x"));
  EXPECT_FALSE(tree.Update(KeyOf(5), "x"));
  EXPECT_EQ(tree.Get(KeyOf(3)), "short");
  EXPECT_EQ(tree.Get(KeyOf(4)), std::string(3'000, 'l'));
  EXPECT_EQ(tree.Get(KeyOf(5)), std::nullopt);
  EXPECT_EQ(tree.Get(KeyOf(6)), ValueOf(6, 'a'));
  EXPECT_FALSE(tree.Put(KeyOf(4), std::string(3'000, 'm')));
  EXPECT_EQ(tree.Get(KeyOf(4)), std::string(3'000, 'm'));
}

// The block is named by the leaf; a hint lets it be fetched beside the look, and only then is it one round trip.
TEST(InPlace, ValuesOutOfLineAreReadWithoutTheirLeaf) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  const auto value_of = [](uint64_t i, char letter) {
    return std::to_string(i) + std::string(1'000, letter);
  };
  constexpr uint64_t kKeys = 300;
  for (uint64_t i = 0; i < kKeys; ++i) tree.Put(KeyOf(i), value_of(i, 'a'));
  BlinkTree other(&tree.pool(), tree.tree().info(), {});
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  const auto get = [&](BlinkTree& from, uint64_t i, uint64_t round_trips) {
    counts = {};
    std::string value;
    const auto found = tree.worker().Run(from.Get(op, KeyOf(i), &value));
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(counts.round_trips, round_trips) << i;
    EXPECT_LT(counts.bytes_read, 2'000u) << i;
    return found.ok() && *found ? value : "absent";
  };
  std::string unused;
  EXPECT_TRUE(tree.worker().Run(other.Get(op, KeyOf(0), &unused)).ok());  // the cached nodes
  for (uint64_t i = 1; i < kKeys; ++i) {
    EXPECT_EQ(get(tree.tree(), i, 1), value_of(i, 'a'));
    EXPECT_EQ(get(other, i, 2), value_of(i, 'a'));
    EXPECT_EQ(get(other, i, 1), value_of(i, 'a'));
  }
  const uint64_t stale = tree.tree().stats().stale_value_hints;
  for (uint64_t i = 1; i < kKeys; ++i) {
    const bool stays = i % 3 != 0;
    auto changed = stays ? tree.worker().Run(other.Put(op, KeyOf(i), value_of(i, 'b')))
                         : tree.worker().Run(other.Delete(op, KeyOf(i)));
    EXPECT_TRUE(changed.ok()) << changed.status();
    EXPECT_EQ(get(tree.tree(), i, stays ? 2 : 1), stays ? value_of(i, 'b') : "absent");
    EXPECT_EQ(get(tree.tree(), i, 1), stays ? value_of(i, 'b') : "absent");
  }
  EXPECT_EQ(tree.tree().stats().stale_value_hints - stale, (kKeys - 1) * 2 / 3 + 1);
}

// Of a tree with values out of line it is asked ahead of the lock what is stored of a key that is absent.
TEST(InPlace, WhatIsDecidedUnderTheLockIsWhatCounts) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  const std::string first(1'000, 'a'), second(1'000, 'b');
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  const auto modify = [&](std::string_view key, const ModifyFunction& decide) {
    return tree.worker().Run(tree.tree().Modify(op, key, decide, CurrentValue::kPresenceOnly));
  };
  for (const std::string key : {"out of line", "another"}) {  // of the second one there are hints
    EXPECT_TRUE(tree.Put(key, first));
    const auto kept = modify(key, [&](auto current, std::string* value) {
      EXPECT_TRUE(value->empty());
      value->assign(second);
      return current ? ModifyAction::kKeep : ModifyAction::kWrite;
    });
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_TRUE(kept->existed);
    EXPECT_EQ(kept->action, ModifyAction::kKeep);
    EXPECT_EQ(tree.Get(key), first);
    const auto shorter = modify(key, [&](auto current, std::string* value) {
      value->append(current ? "short" : second);
      return ModifyAction::kWrite;
    });
    ASSERT_TRUE(shorter.ok()) << shorter.status();
    EXPECT_EQ(tree.Get(key), "short");
  }
}

TEST(InPlace, EmptyValuesAreReplacedByEmptyOnes) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (uint64_t i = 0; i < 100; ++i) {  // at whatever place of the leaf their end is
    const std::string key = std::string(1 + i % 9, 'k') + std::to_string(i);
    EXPECT_TRUE(tree.Put(key, ""));
    EXPECT_FALSE(tree.Put(key, ""));
    EXPECT_EQ(tree.Get(key), "");
  }
}

// A leaf that was expected splits: the key is looked for in it once, and then where it is.
TEST(InPlace, AnExpectedLeafIsNotExpectedForEver) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  const std::string key = KeyOf(99'999);
  tree.Put(key, ValueOf(1, 'a'));
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  tree.tree().Expect(op, key);
  for (uint64_t i = 0; i < 2'000; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  for (int i = 0; i < 2; ++i) {
    tree.tree().Expect(op, key);
    EXPECT_EQ(tree.Get(key), ValueOf(1, 'a'));
  }
  EXPECT_LT(tree.cost().bytes_read, 1'000u);
  EXPECT_FALSE(tree.Put(key, ValueOf(1, 'b')));
  EXPECT_LT(tree.cost().bytes_read, 1'000u);
}

struct Visited final : ValueVisitor {
  std::vector<std::optional<std::string>> values;
  void Visit(size_t number, std::optional<std::string_view> value) override {
    EXPECT_EQ(number, values.size());
    values.emplace_back(value ? std::optional<std::string>(*value) : std::nullopt);
  }
};

TEST(InPlace, AVisitTellsOfTheKeysInTheirOrder) {
  for (const InPlace in_place : {InPlace::kOn, InPlace::kOff}) {
    LocalTree tree({.geometry = Geometry::Bytes(), .tree = {.in_place = in_place}});
    for (uint64_t i = 0; i < 2'000; i += 2) {
      tree.Put(KeyOf(i), i % 50 == 0 ? std::string(500, 'o') : ValueOf(i, 'a'));
    }
    std::vector<std::string> keys;
    std::vector<std::string_view> views;
    for (uint64_t i = 0; i < 300; ++i) keys.push_back(KeyOf(i));
    views.assign(keys.begin(), keys.end());
    Visited visited;
    dsm::FabricCounts counts;
    OpContext op{tree.worker(), counts};
    ASSERT_TRUE(tree.worker().Run(tree.tree().VisitValues(op, views, visited)).ok());
    ASSERT_EQ(visited.values.size(), keys.size());
    for (uint64_t i = 0; i < keys.size(); ++i) EXPECT_EQ(visited.values[i], tree.Get(keys[i])) << i;
    visited.values.clear();
    views[100] = {};
    EXPECT_FALSE(tree.worker().Run(tree.tree().VisitValues(op, views, visited)).ok());
    EXPECT_EQ(visited.values.size(), in_place == InPlace::kOn ? 100u : 0u);
  }
}

/// Appends a letter in the place of a value's first one, or stores `value`.
struct Changes final : KeyChanges {
  Changes() : KeyChanges(&replacement_room) {}
  std::string replacement_room;
  std::string value;  ///< empty: a letter
  std::vector<bool> existed;
  StatusCode failure = StatusCode::kOk;
  ModifyAction Decide(size_t, std::optional<std::string_view> current,
                      std::string* replacement) override {
    if (!value.empty()) {
      *replacement = value;
    } else {
      if (!current || current->empty()) return ModifyAction::kKeep;
      replacement->assign(current->substr(1)).push_back('+');
    }
    return ModifyAction::kWrite;
  }
  void Done(size_t number, const Result<ModifyResult>& result) override {
    EXPECT_EQ(number, existed.size());
    existed.push_back(result.ok() && result->existed);
    if (!result.ok()) failure = result.status().code();
  }
};

TEST(InPlace, ChangesOfManyKeysAreMadeInTheirOrder) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (uint64_t i = 0; i < 2'000; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  // Of one leaf, of many, and one key again and again: each sees those in front of it.
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 60; ++i) keys.push_back(KeyOf(i % 3 == 0 ? 7 : i % 3 == 1 ? i : i * 31));
  std::map<std::string, std::string> expected;
  for (const std::string& key : keys) {
    auto at = expected.find(key);
    if (at == expected.end()) at = expected.emplace(key, *tree.Get(key)).first;
    at->second = at->second.substr(1) + '+';
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  Changes changes;
  EXPECT_EQ(tree.tree().ModifyAtOnce(op, views, CurrentValue::kRead, changes), keys.size());
  EXPECT_EQ(changes.existed, std::vector<bool>(keys.size(), true));
  EXPECT_EQ(counts.round_trips, 2 * keys.size());
  for (const auto& [key, value] : expected) EXPECT_EQ(tree.Get(key), value) << key;
}

TEST(InPlace, ManyChangesEndAheadOfOneThatHasToWait) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (uint64_t i = 0; i < 500; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  tree.Put(KeyOf(120), "short");
  const std::string value = ValueOf(100, 'b');
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 40; ++i) keys.push_back(KeyOf(100 + i));
  std::vector<std::string_view> views(keys.begin(), keys.end());
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  for (size_t waiting : {0, 3, 20}) {  // an absent key, an empty one, a value of another length
    views[3] = waiting == 3 ? std::string_view() : std::string_view(keys[3]);
    views[0] = waiting == 0 ? std::string_view("absent") : std::string_view(keys[0]);
    Changes changes;
    changes.value = value;
    EXPECT_EQ(tree.tree().ModifyAtOnce(op, views, CurrentValue::kPresenceOnly, changes), waiting);
    EXPECT_EQ(changes.existed.size(), waiting);
  }
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(tree.Get(keys[i]), value);
  for (uint64_t i = 21; i < 40; ++i) EXPECT_EQ(tree.Get(keys[i]), ValueOf(100 + i, 'a'));
  EXPECT_EQ(tree.Get("absent"), std::nullopt);
}

TEST(InPlace, ChangesGiveTheirRedoSlotsBackAndUseNoWordTwice) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (uint64_t i = 0; i < 500; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  const auto take_all = [&](dsm::ServerId server) {
    std::vector<uint64_t> words;
    while (const auto word = tree.pool().redo_slots(server).Take(0)) words.push_back(*word);
    for (const uint64_t word : words) tree.pool().redo_slots(server).Give(word);
    return words;
  };
  const auto before = std::array{take_all(0), take_all(1)};
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 40; ++i) keys.push_back(KeyOf(100 + i));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  Changes changes;
  changes.value = ValueOf(100, 'b');
  ASSERT_EQ(tree.tree().ModifyAtOnce(op, views, CurrentValue::kPresenceOnly, changes), keys.size());
  uint64_t uses = 0;
  for (dsm::ServerId server : {0, 1}) {
    const auto after = take_all(server);
    EXPECT_EQ(after.size(), before[server].size());
    std::map<uint16_t, uint32_t> sequences;
    for (const uint64_t word : before[server]) {
      const auto lock = dsm::LockWord::Decode(word);
      sequences[lock.redo_slot] = lock.sequence + 1;  // they were given back
    }
    for (const uint64_t word : after) {
      const auto lock = dsm::LockWord::Decode(word);
      ASSERT_GE(lock.sequence, sequences[lock.redo_slot]);
      uses += lock.sequence - sequences[lock.redo_slot];
    }
  }
  EXPECT_EQ(uses, keys.size());
}

TEST(InPlace, AServerThatIsLostIsToldAsEver) {
  LocalTree tree({.geometry = Geometry::Bytes(), .fabric = {.servers = 1}});
  for (uint64_t i = 0; i < 100; ++i) tree.Put(KeyOf(i), ValueOf(i, 'a'));
  tree.fabric().KillServer(0);
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  std::string value;
  EXPECT_EQ(tree.worker().Run(tree.tree().Get(op, KeyOf(1), &value)).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(tree.worker().Run(tree.tree().Put(op, KeyOf(1), ValueOf(1, 'b'))).status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace farleaf::index
