// Torn images of parted leaves: whatever words of a change have landed, a reader of one part, of a window
// of parts from one READ or of the whole leaf reads again, or has an answer that was true before or after.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "index/blink/parted_leaf.h"
#include "test/support/parted_leaf_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

/// Nullopt: the reader has to read again, or more. Else the value, or nothing if the key is absent.
using Answer = std::optional<std::optional<uint64_t>>;

struct LeafState {
  LeafHead head;
  LeafEntries entries;
  Bytes image;

  std::optional<uint64_t> At(uint64_t key) const {
    const auto at = entries.find(key);
    return at == entries.end() ? std::nullopt : std::optional(at->second);
  }
};

Answer AskParts(Bytes* image, uint32_t loaded, const LeafHead& believed, uint64_t key) {
  const LeafParts leaf(*image, loaded, believed.Range());
  if (!leaf.Fits(believed.Digest())) return std::nullopt;
  const LeafParts::Place place = leaf.Find(key);
  if (place.outcome == LeafParts::Outcome::kNotLoaded) return std::nullopt;
  if (place.outcome == LeafParts::Outcome::kNo) return Answer(std::in_place, std::nullopt);
  return LoadLittle<uint64_t>(leaf.part(place.part).value(place.slot));
}

/// Nothing is said of fences: who opens the whole leaf sees them.
Answer AskLeaf(const std::optional<LeafEntries>& opened, uint64_t key) {
  if (!opened) return std::nullopt;
  const auto at = opened->find(key);
  if (at == opened->end()) return Answer(std::in_place, std::nullopt);
  return at->second;
}

uint32_t Window(size_t first, size_t count, size_t parts) {
  uint32_t loaded = 0;
  for (size_t i = 0; i < std::min(count, parts); ++i) {
    loaded |= uint32_t{1} << (first + i) % parts;
  }
  return loaded;
}

void CopyWord(const Bytes& from, size_t word, Bytes* to) {
  std::copy_n(from.begin() + static_cast<ptrdiff_t>(word * 8), 8,
              to->begin() + static_cast<ptrdiff_t>(word * 8));
}

std::vector<size_t> ChangedWords(const Bytes& before, const Bytes& after, size_t first,
                                 size_t count) {
  std::vector<size_t> words;
  for (size_t word = first; word < first + count; ++word) {
    if (LoadLittle<uint64_t>(&before[word * 8]) != LoadLittle<uint64_t>(&after[word * 8])) {
      words.push_back(word);
    }
  }
  return words;
}

/// `before` with those of `words` that `landed` has a bit for as they are in `after`.
Bytes Mixed(const Bytes& before, const Bytes& after, const std::vector<size_t>& words,
            uint64_t landed) {
  Bytes image = before;
  for (size_t i = 0; i < words.size(); ++i) {
    if ((landed >> i & 1) != 0) CopyWord(after, words[i], &image);
  }
  return image;
}

/// Of the homes that the leaf has now.
std::vector<uint64_t> KeysFor(uint64_t style, const LeafState& state, size_t count,
                              Random* random) {
  return AwkwardKeys(style, HomesOf(state.image, state.head), count, random);
}

/// Every other seed's is ordered, with wide fences.
LeafState RandomLeaf(size_t parts, uint64_t seed, Random* random) {
  LeafState state;
  state.head.version = 1 + random->Below(100);
  if (seed / 5 % 2 == 1) {
    state.head.low = 1000;
    state.head.high = 1000 + (uint64_t{1} << (10 + seed % 50));
  }
  state.image = PackedLeaf(parts, state.head, {});
  // Often parts just full, which nothing went past yet.
  const size_t count =
      random->OneIn(2) ? 7 + 7 * random->Below(2) : random->Below(parts * kPartSlots);
  for (const uint64_t key : KeysFor(seed, state, count, random)) {
    state.entries[key] = random->Below(100);
  }
  state.image = PackedLeaf(parts, state.head, state.entries);
  return state;
}

/// One put, update or remove, by parts, of `of_key` or any. Returns its key; nullopt: there was no room.
std::optional<uint64_t> ChangeOne(size_t parts, uint64_t style, LeafState* state, Random* random,
                                  std::optional<uint64_t> of_key = std::nullopt) {
  uint64_t key = KeysFor(style, *state, 1, random)[0];
  const size_t home = random->Below(parts);
  if (DecodedPart(state->image, home).full()) {
    key = KeyOfHome(home, HomesOf(state->image, state->head), random);  // goes past its home
  } else if (!state->entries.empty() && !random->OneIn(4)) {
    const auto at = static_cast<long>(random->Below(state->entries.size()));
    key = std::next(state->entries.begin(), at)->first;
  }
  if (of_key) key = *of_key;
  LeafParts leaf(state->image, (uint32_t{1} << parts) - 1, state->head.Range());
  const uint64_t value = random->OneIn(4) ? 0 : 1000 + random->Below(1000);
  const LeafParts::Place found = leaf.Find(key);
  if (found.outcome == LeafParts::Outcome::kYes && random->OneIn(2)) {
    leaf.Remove(found);
    state->entries.erase(key);
    return key;
  }
  if (found.outcome == LeafParts::Outcome::kYes) {
    leaf.SetValue(found, &value);
  } else {
    const LeafParts::Place room = leaf.FindRoom(key, ChainPartsOf(leaf.parts()));
    if (room.outcome == LeafParts::Outcome::kNo) return std::nullopt;
    leaf.Put(room, key, &value);
  }
  state->entries[key] = value;
  return key;
}

/// Which states of a leaf readers of all kinds tell of, by what they answer of one key.
struct Told {
  size_t from = 0;  ///< none is of an earlier state only
  size_t to = 0;    ///< nor of a later one
};

/// `states`: before, and after each of the changes that one write-back carries.
Told TellOf(Bytes* image, size_t parts, const std::vector<LeafState>& states, uint64_t key) {
  Told told{0, states.size() - 1};
  const auto add = [&](const Answer& answer) {
    if (!answer) return;
    size_t first = states.size(), last = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].At(key) != *answer) continue;
      first = std::min(first, i);
      last = i;
    }
    ASSERT_LT(first, states.size()) << "an answer that was never true, of key " << key;
    told.from = std::max(told.from, first);
    told.to = std::min(told.to, last);
  };
  const LeafHead& head = states[0].head;
  const size_t home = HomesOf(states[0].image, head).Of(key);
  for (size_t window = 1; window <= parts; ++window) {
    add(AskParts(image, Window(home, window, parts), head, key));
    add(AskParts(image, Window(home + parts - 1, window, parts), head, key));
  }
  add(AskLeaf(OpenedLeaf(parts, *image), key));
  return told;
}

/// Everybody reads while any of the words have landed, in any order.
void ExpectNoReaderGoesBack(size_t parts, const std::vector<LeafState>& states,
                            const std::vector<size_t>& words, const std::set<uint64_t>& changed) {
  const Bytes &before = states.front().image, &after = states.back().image;
  const uint64_t subsets = uint64_t{1} << words.size();
  for (const uint64_t key : changed) {
    std::vector<Told> told(subsets);
    for (uint64_t landed = 0; landed < subsets; ++landed) {
      Bytes image = Mixed(before, after, words, landed);
      told[landed] = TellOf(&image, parts, states, key);
      if (::testing::Test::HasFatalFailure()) return;
    }
    // Words only come to those that landed: who reads later sees no less of them.
    for (uint64_t earlier = 0; earlier < subsets; ++earlier) {
      for (uint64_t later = earlier; later < subsets; later = (later + 1) | earlier) {
        ASSERT_LE(told[earlier].from, told[later].to) << earlier << ' ' << later << ' ' << key;
      }
    }
  }
  for (uint64_t landed = 0; landed < subsets; landed += 1 + subsets / 16) {
    Bytes image = Mixed(before, after, words, landed);
    for (const auto& [key, value] : states[0].entries) TellOf(&image, parts, states, key);
  }
}

TEST(TornPartsTest, EverySubsetOfAWriteBacksWordsIsTrueOfSomeStateAndNoReaderGoesBack) {
  uint64_t mixes = 0, away_from_home = 0, combined = 0;
  for (uint64_t seed = 0; seed < test::Amount{100, 2000, 20'000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t parts = kLeafPartsMin + random.Below(4);
    std::vector<LeafState> states{RandomLeaf(parts, seed, &random)};
    std::set<uint64_t> changed;
    for (uint64_t changes = seed % 2 == 0 ? 1 : 2 + random.Below(4); changes > 0; --changes) {
      LeafState next = states.back();
      std::optional<uint64_t> again;
      if (!changed.empty() && random.OneIn(2)) again = *changed.begin();
      const auto key = ChangeOne(parts, seed, &next, &random, again);
      if (!key) continue;
      changed.insert(*key);
      states.push_back(std::move(next));
    }
    const Bytes &before = states.front().image, &after = states.back().image;
    const auto words = ChangedWords(before, after, 0, before.size() / 8);
    // Of one: a slot, its part's head and those of two that it went past.
    ASSERT_LE(words.size(), 5 * (states.size() - 1));
    if (words.size() > 9) continue;
    away_from_home += states.size() == 2 && words.size() > 3;
    combined += states.size() > 2;
    mixes += uint64_t{1} << words.size();
    ASSERT_NO_FATAL_FAILURE(ExpectNoReaderGoesBack(parts, states, words, changed));
  }
  std::printf("%llu mixes, %llu changes of several parts, %llu write-backs of several changes\n",
              static_cast<unsigned long long>(mixes),
              static_cast<unsigned long long>(away_from_home),
              static_cast<unsigned long long>(combined));
  const uint64_t enough = test::Amount{1, 20, 200};
  EXPECT_GE(away_from_home, enough);
  EXPECT_GE(combined, 10 * enough);
}

/// Ways in which a leaf is written whole.
enum class Rewrite : uint8_t { kSplit, kMerge, kPackedAnew, kDeath, kReuse, kHashed };
constexpr Rewrite kRewrites[] = {Rewrite::kSplit, Rewrite::kMerge, Rewrite::kPackedAnew,
                                 Rewrite::kDeath, Rewrite::kReuse, Rewrite::kHashed};

LeafState Rewritten(size_t parts, Rewrite how, const LeafState& before, Random* random) {
  LeafState after = before;
  after.head.version += 1 + random->Below(3);
  Bytes previous = before.image;
  switch (how) {
    case Rewrite::kSplit:
      after.head.high = before.head.low.value_or(0) + 1000;
      if (!before.entries.empty()) {
        const uint64_t low = before.head.low.value_or(0);
        after.head.high = low + (before.entries.rbegin()->first - low) / 2 + 1;
      }
      after.entries.erase(after.entries.lower_bound(*after.head.high), after.entries.end());
      break;
    case Rewrite::kMerge:
      after.head.high = std::nullopt;
      for (uint64_t i = random->Below(10); i > 0; --i) {
        if (after.entries.size() < parts * kPartSlots) after.entries[~random->Below(99)] = i;
      }
      break;
    case Rewrite::kPackedAnew:
      previous.clear();
      break;
    case Rewrite::kHashed:
      after.head.wanted = Placement::kHashed;
      break;
    case Rewrite::kDeath:
      after.head.dead = true;
      break;
    case Rewrite::kReuse:
      after = RandomLeaf(parts, random->Next(), random);
      after.head = {9, 5, std::nullopt, before.head.version + 1, false};
      break;
  }
  after.image = PackedLeaf(parts, after.head, after.entries, previous);
  return after;
}

LeafState LeafToRewrite(size_t parts, uint64_t seed, Rewrite how, Random* random) {
  LeafState before = RandomLeaf(parts, seed, random);
  if (how == Rewrite::kMerge) before.head.high = ~uint64_t{100};
  if (how == Rewrite::kMerge) {
    before.entries.erase(before.entries.lower_bound(*before.head.high), before.entries.end());
    while (before.entries.size() > parts * kPartSlots / 2) {
      before.entries.erase(before.entries.begin());
    }
  }
  before.image = PackedLeaf(parts, before.head, before.entries);
  // A change or two, so that there are marks that are not needed and slots that were used.
  for (uint64_t i = random->Below(4); i > 0; --i) ChangeOne(parts, seed, &before, random);
  if (before.head.high) {
    before.entries.erase(before.entries.lower_bound(*before.head.high), before.entries.end());
    before.image = PackedLeaf(parts, before.head, before.entries, before.image);
  }
  return before;
}

TEST(TornLeafTest, APartIsIntactOnlyAsItWasBeforeOrAfterForEverySubsetOfItsWords) {
  uint64_t mixes = 0;
  for (uint64_t seed = 0; seed < test::Amount{5, 25, 500}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const LeafState before = LeafToRewrite(4, seed, kRewrites[seed % 6], &random);
    const LeafState after = Rewritten(4, kRewrites[seed % 6], before, &random);
    for (size_t p = 0; p < 4; ++p) {
      const auto words = ChangedWords(before.image, after.image, p * 16, 16);
      ASSERT_GE(words.size(), 2u);
      const uint64_t all = (uint64_t{1} << words.size()) - 1;
      Bytes image = before.image;
      for (uint64_t step = 0; step <= all; ++step, ++mixes) {  // Gray code: one word a step
        const uint64_t landed = step ^ step >> 1;
        const bool whole = landed == 0 || landed == all;
        ASSERT_EQ(ConstPart(image.data() + p * kPartBytes).Intact(), whole) << p << ' ' << landed;
        const auto turned = static_cast<size_t>(std::countr_one(step));
        if (step == all) break;
        const bool lands = ((landed ^ uint64_t{1} << turned) >> turned & 1) != 0;
        CopyWord(lands ? after.image : before.image, words[turned], &image);
      }
    }
  }
  std::printf("%llu mixes\n", static_cast<unsigned long long>(mixes));
}

/// Every part as before, as after, or a mix of words; seldom more than one of the last kind.
Bytes RandomMix(const LeafState& before, const LeafState& after, Random* random) {
  Bytes image = before.image;
  const size_t words = image.size() / 8;
  const uint64_t later = random->Below(101);
  for (size_t first = 0; first < words; first += 16) {
    const bool mixed = random->OneIn(16), landed = random->Below(100) < later;
    for (size_t word = first; word < std::min(first + 16, words); ++word) {
      if (mixed ? random->OneIn(2) : landed) CopyWord(after.image, word, &image);
    }
  }
  return image;
}

TEST(TornLeafTest, PartsOfOneReadThatFitAreAllOfOneImage) {
  uint64_t as_before = 0, as_after = 0;
  for (uint64_t seed = 0; seed < test::Amount{50, 400, 5000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t parts = kLeafPartsMin + random.Below(6);
    const LeafState before = LeafToRewrite(parts, seed, kRewrites[seed % 6], &random);
    const LeafState after = Rewritten(parts, kRewrites[seed % 6], before, &random);
    std::set<uint64_t> keys;
    for (const auto& state : {before, after}) {
      for (const auto& [key, value] : state.entries) keys.insert(key);
    }
    for (int mix = 0; mix < 50; ++mix) {
      Bytes image = RandomMix(before, after, &random);
      for (size_t first = 0; first < parts; ++first) {
        const uint32_t loaded = Window(first, 1 + random.Below(4), parts);
        std::set<const LeafState*> answered;
        for (const uint64_t key : keys) {
          for (const LeafState* state : {&before, &after}) {  // whose fences the reader believes
            if (state->head.dead || !state->head.Covers(key)) continue;
            const auto answer = AskParts(&image, loaded, state->head, key);
            if (!answer) continue;
            const bool same_fences = before.head.Digest() == after.head.Digest();
            const bool was = *answer == before.At(key), is = *answer == after.At(key);
            ASSERT_TRUE(same_fences ? was || is : state == &before ? was : is) << key;
            if (was && !is) answered.insert(&before);
            if (is && !was) answered.insert(&after);
            as_before += state == &before;
            as_after += state == &after;
          }
        }
        ASSERT_LE(answered.size(), 1u) << "answers of two images from one READ";
      }
    }
  }
  EXPECT_GT(as_before, 1000u);
  EXPECT_GT(as_after, 1000u);
}

TEST(TornLeafTest, AWholeLeafOpensOnlyAsItWasBeforeOrAfter) {
  uint64_t mixes = 0, before_opened = 0, after_opened = 0;
  const auto expect = [&](const Bytes& image, const LeafState& before, const LeafState& after,
                          size_t parts) {
    ++mixes;
    Bytes node(LeafImageBytes(parts));
    const OpenOutcome opened = OpenPartedLeaf(PartedGeometry(parts), image, node);
    if (opened == OpenOutcome::kTorn) return;
    ASSERT_EQ(opened, OpenOutcome::kValid);
    const bool was = node == NodeOf(parts, before.head, before.entries);
    ASSERT_TRUE(was || node == NodeOf(parts, after.head, after.entries));
    ++(was ? before_opened : after_opened);
  };
  for (uint64_t seed = 0; seed < test::Amount{10, 100, 1000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const LeafState before = LeafToRewrite(4, seed, kRewrites[seed % 6], &random);
    const LeafState after = Rewritten(4, kRewrites[seed % 6], before, &random);
    // Every subset of the trailer's words, with every part as it was or is.
    const auto words = ChangedWords(before.image, after.image, 64, 7);
    for (uint64_t landed = 0; landed < uint64_t{16} << words.size(); ++landed) {
      Bytes image = Mixed(before.image, after.image, words, landed >> 4);
      for (size_t word = 0; word < 64; ++word) {
        if ((landed >> word / 16 & 1) != 0) CopyWord(after.image, word, &image);
      }
      ASSERT_NO_FATAL_FAILURE(expect(image, before, after, 4)) << landed;
    }
    for (int mix = 0; mix < 500; ++mix) {
      ASSERT_NO_FATAL_FAILURE(expect(RandomMix(before, after, &random), before, after, 4));
    }
  }
  EXPECT_GT(before_opened, 100u);
  EXPECT_GT(after_opened, 100u);
  std::printf("%llu mixes\n", static_cast<unsigned long long>(mixes));
}

/// A leaf's life, state by state: changes, and now and then a whole rewrite.
std::vector<LeafState> History(size_t parts, uint64_t seed, Random* random) {
  std::vector<LeafState> states{LeafToRewrite(parts, seed, Rewrite::kMerge, random)};
  const uint64_t rewrite_at = random->Below(24);
  for (uint64_t i = 0; i < 12; ++i) {
    LeafState next = states.back();
    if (i == rewrite_at) {
      next = Rewritten(parts, kRewrites[std::array{0, 1, 2, 5}[random->Below(4)]], next, random);
    } else if (const auto key = ChangeOne(parts, seed, &next, random);
               !key || !next.head.Covers(*key)) {
      continue;
    }
    states.push_back(std::move(next));
  }
  return states;
}

/// What a READ may return that lasts from the first of the states to the last: its parts are of any time in
/// between, and seldom a word of a part is of another.
Bytes ReadDuring(const std::vector<LeafState>& states, Random* random) {
  Bytes image = states[0].image;
  const size_t words = image.size() / 8;
  for (size_t first = 0; first < words; first += 16) {
    const bool torn = random->OneIn(8);
    const size_t time = random->Below(states.size());
    for (size_t word = first; word < std::min(first + 16, words); ++word) {
      const size_t other = random->Below(states.size());
      CopyWord(states[torn && random->OneIn(4) ? other : time].image, word, &image);
    }
  }
  return image;
}

TEST(TornLeafTest, AnswersFromAReadAcrossManyChangesWereTrueDuringIt) {
  uint64_t by_parts = 0, by_leaf = 0;
  for (uint64_t seed = 0; seed < test::Amount{50, 500, 10'000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t parts = kLeafPartsMin + random.Below(5);
    std::vector<LeafState> states = History(parts, seed, &random);
    std::set<uint64_t> keys;
    for (const auto& state : states) {
      for (const auto& [key, value] : state.entries) keys.insert(key);
    }
    const auto was_true = [&](uint64_t key, std::optional<uint64_t> answer, uint64_t digest) {
      return std::any_of(states.begin(), states.end(), [&](const LeafState& state) {
        return state.head.Digest() == digest && state.At(key) == answer;
      });
    };
    for (int read = 0; read < 60; ++read) {
      Bytes image = ReadDuring(states, &random);
      const LeafState& believed = states[random.Below(states.size())];
      const auto opened = OpenedLeaf(parts, image);
      for (const uint64_t key : keys) {
        if (!believed.head.Covers(key)) continue;
        const size_t home = HomesOf(believed.image, believed.head).Of(key);
        for (size_t window = 1; window <= 3; ++window) {
          const auto answer = AskParts(&image, Window(home, window, parts), believed.head, key);
          if (!answer) continue;
          ++by_parts;
          ASSERT_TRUE(was_true(key, *answer, believed.head.Digest())) << key;
        }
        if (!opened) continue;
        ++by_leaf;
        const Answer answer = AskLeaf(opened, key);
        ASSERT_TRUE(std::any_of(states.begin(), states.end(), [&](const LeafState& state) {
          return !state.head.Covers(key) || state.At(key) == *answer;
        })) << key;
      }
    }
  }
  EXPECT_GT(by_parts, 1000u);
  EXPECT_GT(by_leaf, 1000u);
}

}  // namespace
}  // namespace farleaf::index
