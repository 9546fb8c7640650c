// Gets that look at parts of a leaf where it lies (parts_look.h) beside a writer, whose words land one by one between
// any two of their loads.
#include "index/blink/parts_look.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "dsm/base/mutation.h"
#include "index/blink/page.h"
#include "test/support/parted_leaf_fixture.h"

namespace farleaf {

namespace {
Mutation chosen = Mutation::kNone;
}  // namespace
bool Mutated(Mutation mutation) { return mutation == chosen; }

namespace index {
namespace {

constexpr size_t kParts = kLeafPartsMin + 1;
constexpr uint64_t kFirstKey = 1'000, kKeySpan = 1 << 20;
constexpr size_t kEntriesMax = 24;

/// What the leaf holds from one write-back on.
struct LeafState {
  LeafHead head;
  LeafEntries entries;

  std::optional<uint64_t> At(uint64_t key) const {
    const auto at = entries.find(key);
    return at == entries.end() ? std::nullopt : std::optional(at->second);
  }
};

/// A leaf in memory, and one who writes it, part by part or whole: a piece of 8 bytes at a time, between any two loads.
class ContestedLeaf {
 public:
  explicit ContestedLeaf(Random* random) : random_(random) {
    // Half of the keys crowd in an eighth of the range, so that entries go past their homes.
    for (int i = 0; i < 40; ++i) {
      keys_.push_back(kFirstKey + random_->Below(i % 2 == 0 ? kKeySpan : kKeySpan / 8));
    }
    states_.push_back({});
    page_ = PackedLeaf(kParts, states_[0].head, {});
  }

  void Copy(size_t offset, size_t bytes, std::byte* to) {
    for (size_t at = 0; at < bytes; at += 8) {
      Interfere();
      std::copy_n(page_.begin() + static_cast<ptrdiff_t>(offset + at), 8, to + at);
    }
  }
  void Finish() {
    while (!left_.empty()) WriteOne();
  }
  /// The writer goes on, or not.
  void Interfere() {
    for (uint64_t n = random_->OneIn(40) ? random_->Below(160) : random_->Below(2); n > 0; --n) {
      if (left_.empty()) {
        if (!random_->OneIn(40)) return;
        Begin();
      }
      if (!left_.empty()) WriteOne();
    }
  }
  const std::vector<uint64_t>& keys() const { return keys_; }
  /// All states that were, the last of which may be landing.
  const std::vector<LeafState>& states() const { return states_; }
  size_t landed() const { return states_.size() - (left_.empty() ? 1 : 2); }

 private:
  /// Decides what is written: the words that change, in any order, save that those of the part into which a key comes are
  /// the last, as in the product.
  void Begin() {
    LeafState next = states_.back();
    Bytes image = page_;
    const uint64_t key = AnyKey();
    if (!next.head.Covers(key) || random_->OneIn(8) || !ChangeOne(key, &next, &image)) {
      WriteWhole(&next, &image);
    }
    for (size_t offset = 0; offset < image.size(); offset += 8) {
      const auto word = LoadLittle<uint64_t>(&image[offset]);
      if (word != LoadLittle<uint64_t>(&page_[offset])) left_.push_back({offset, word});
    }
    for (size_t i = left_.size(); i > 1; --i) std::swap(left_[i - 1], left_[random_->Below(i)]);
    std::stable_partition(left_.begin(), left_.end(), [&](const auto& word) {
      const size_t part = word.first / kPartBytes;
      return part < kParts && DecodedPart(image, part).SlotOf(key).has_value();
    });  // the last first
    states_.push_back(std::move(next));
  }
  uint64_t AnyKey() { return keys_[random_->Below(keys_.size())]; }

  /// An update, a delete or an insert, in the parts concerned. False: there is no room.
  bool ChangeOne(uint64_t key, LeafState* next, Bytes* image) {
    LeafParts leaf(*image, (uint32_t{1} << kParts) - 1, next->head.Range());
    const uint64_t value = random_->Next();
    for (size_t part = 0; part < kParts; ++part) {
      const auto slot = DecodedPart(*image, part).SlotOf(key);
      if (!slot) continue;
      const LeafParts::Place at{LeafParts::Outcome::kYes, part, *slot};
      if (random_->OneIn(3)) {
        leaf.Remove(at);
        next->entries.erase(key);
      } else {
        leaf.SetValue(at, &value);
        next->entries[key] = value;
      }
      return true;
    }
    const LeafParts::Place room = leaf.FindRoom(key, ChainPartsOf(leaf.parts()));
    if (room.outcome != LeafParts::Outcome::kYes || next->entries.size() == kEntriesMax) {
      return false;
    }
    leaf.Put(room, key, &value);
    next->entries[key] = value;
    return true;
  }
  /// Another structure, most often of other fences, and now and then of another tree or dead.
  void WriteWhole(LeafState* next, Bytes* image) {
    const LeafHead before = next->head;
    LeafHead& head = next->head;
    ++head.version;
    head.dead = random_->OneIn(16);
    head.tree = random_->OneIn(16) ? 8 : 7;
    head.wanted = random_->OneIn(3) ? Placement::kHashed : Placement::kOrdered;
    if (head.tree == before.tree && random_->OneIn(2)) {
      const uint64_t ends[] = {kFirstKey, kFirstKey + kKeySpan / 8, kFirstKey + kKeySpan};
      const uint64_t low = random_->Below(2), high = low + 1 + random_->Below(2 - low);
      head.low = ends[low];
      head.high = ends[high];
      if (random_->OneIn(8)) head.low = head.high = std::nullopt;
    }
    const bool new_page = before.dead || before.tree != head.tree;
    if (new_page) next->entries.clear();
    std::erase_if(next->entries, [&](const auto& entry) { return !head.Covers(entry.first); });
    for (const uint64_t key :
         keys_) {  // of the page that is merged with this one, or what the new one begins with
      const bool came = head.Covers(key) && (new_page || !before.Covers(key));
      if (came && random_->OneIn(2)) next->entries[key] = random_->Next();
    }
    while (next->entries.size() > (head.dead ? 0 : kEntriesMax)) {
      head.high = std::prev(next->entries.end())->first;  // a split
      next->entries.erase(std::prev(next->entries.end()));
      if (head.low && *head.low >= *head.high) head.low = std::nullopt;
    }
    *image = PackedLeaf(kParts, head, next->entries);
  }
  void WriteOne() {
    StoreLittle(&page_[left_.back().first], left_.back().second);
    left_.pop_back();
  }

  Random* random_;
  std::vector<uint64_t> keys_;
  Bytes page_;
  std::vector<std::pair<size_t, uint64_t>> left_;  // to be written, the last first
  std::vector<LeafState> states_;
};

struct ContestedPage {
  ContestedLeaf* leaf;
  void Copy(size_t offset, size_t bytes, std::byte* to) const { leaf->Copy(offset, bytes, to); }
};

struct Looks {
  uint64_t believed = 0, absent = 0, of_more_parts = 0;
  std::string wrong;  ///< the first that told what the leaf held at no moment, or no longer
};

/// Some of the parts that the key's entry may be in, as hints that are right or wrong would have it.
PartMask SomeWindow(uint64_t key, const LeafHead& head, Random* random) {
  const Placement placement = random->OneIn(3) ? Placement::kHashed : Placement::kOrdered;
  const LeafHomes homes(kParts, placement, head.Range());
  PartMask window = 0;
  size_t at = homes.Of(key);
  for (uint64_t parts = 1 + random->Below(3); parts > 0; --parts, at = homes.Next(at)) {
    window |= PartMask{1} << at;
  }
  return window;
}

Looks LookBesideAWriter(Mutation mutation, uint64_t seed) {
  Random random(seed);
  chosen = mutation;
  ContestedLeaf leaf(&random);
  std::map<uint64_t, size_t> since;  // by key: the first state that its last answer may be of
  Looks looks;
  for (int i = 0; i < 20'000 && looks.wrong.empty(); ++i) {
    if (random.OneIn(8)) leaf.Finish();
    const size_t landed = leaf.landed();
    const uint64_t key = leaf.keys()[random.Below(leaf.keys().size())];
    const LeafHead head = leaf.states()[landed - std::min(landed, random.Below(3))].head;
    if (head.dead || head.tree != 7 || !head.Covers(key)) {
      leaf.Interfere();
      continue;
    }
    const PartMask window = SomeWindow(key, head, &random);
    PageBuffer page;
    const auto image = page.image(PartedGeometry(kParts), 0);
    dsm::FabricCounts read;
    const auto parts =
        LookAtParts(ContestedPage{&leaf}, window, head.Range(), head.Digest(), image, &read);
    if (!parts) continue;
    const LeafParts::Place at = parts->Find(key);
    if (at.outcome == LeafParts::Outcome::kNotLoaded) continue;
    std::optional<uint64_t> value;
    if (at.outcome == LeafParts::Outcome::kYes) {
      value = LoadLittle<uint64_t>(parts->part(at.part).value(at.slot));
    }
    ++looks.believed;
    looks.absent += value ? 0 : 1;
    looks.of_more_parts += std::popcount(window) > 1 ? 1 : 0;
    size_t state = std::max(landed, since[key]);
    const auto& states = leaf.states();
    while (state < states.size() &&
           (states[state].head.Digest() != head.Digest() || states[state].At(key) != value)) {
      ++state;
    }
    if (state == states.size()) {
      looks.wrong = std::to_string(key) + " = " + (value ? std::to_string(*value) : "nothing");
    }
    since[key] = state;
  }
  chosen = Mutation::kNone;
  return looks;
}

TEST(PartsLook, SaysWhatTheLeafHeldAtAMomentAndNothingOlderThanBefore) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const Looks looks = LookBesideAWriter(Mutation::kNone, seed);
  EXPECT_EQ(looks.wrong, "");
  EXPECT_GT(looks.believed, 2'000u);
  EXPECT_GT(looks.absent, 200u);
  EXPECT_GT(looks.of_more_parts, 500u);
  std::printf("%lu answers, %lu absent, %lu of more than one part\n", looks.believed, looks.absent,
              looks.of_more_parts);
}

TEST(PartsLook, WithoutOneOfItsChecksItIsCaughtLying) {
  for (const Mutation mutation :
       {Mutation::kSkipChecksum, Mutation::kFenceDigestUnchecked, Mutation::kPassedMarkIgnored}) {
    const Looks looks = LookBesideAWriter(mutation, 1);
    EXPECT_NE(looks.wrong, "") << static_cast<int>(mutation);
    std::printf("mutation %d: caught after %lu answers\n", static_cast<int>(mutation),
                looks.believed);
  }
}

}  // namespace
}  // namespace index
}  // namespace farleaf
