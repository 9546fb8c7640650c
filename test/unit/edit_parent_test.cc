// EditParent's contract (index/blink/publication.h) on random parent levels, against a map of every
// key to the child that it leads to.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/publication.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeysEnd = 40;  // keys are below
constexpr uint64_t kChildren = 9;

GlobalAddress ChildAddress(uint64_t child) { return {0, (child + 1) << 12}; }

/// A level of parents, left to right, in pages of either layout.
class ParentLevel {
 public:
  ParentLevel(const Geometry& geometry, Random* random) : geometry_(geometry) {
    // Parents begin at random keys, their entries at random keys, and name random children: the
    // contract asks nothing of what was there before.
    std::vector<uint64_t> lows = {0};
    for (uint64_t key = 1; key < kKeysEnd; ++key) {
      if (random->OneIn(9)) lows.push_back(key);
    }
    for (size_t p = 0; p < lows.size(); ++p) {
      const uint64_t high = p + 1 < lows.size() ? lows[p + 1] : kKeysEnd;
      Node node = Append(lows[p], high == kKeysEnd ? std::nullopt : std::optional(high));
      uint64_t child = random->Below(kChildren);
      EXPECT_TRUE(node.InsertChild(0, node.low(), ChildAddress(child)));
      for (uint64_t key = lows[p] + 1; key < high; ++key) {
        if (!random->OneIn(2)) continue;
        // As in the tree: neighbours in a parent differ.
        child = (child + 1 + random->Below(kChildren - 1)) % kChildren;
        if (!node.InsertChild(node.count(), Key(key), ChildAddress(child))) break;
      }
    }
  }

  std::string Key(uint64_t key) const {
    if (geometry_.layout == Layout::kFixed8) return Fixed(key);
    char text[8];
    std::snprintf(text, sizeof text, "k%03d", static_cast<int>(key));
    return text + std::string(key % 7 * 4, 'z');
  }
  Node At(size_t p) { return Node(geometry_, pages_[p]->image(geometry_, 1)); }
  size_t Covering(std::string_view key) {
    size_t p = 0;
    while (At(p).AtOrPastHigh(key)) ++p;
    return p;
  }
  GlobalAddress Leads(uint64_t key) {
    const Node node = At(Covering(Key(key)));
    return node.Child(node.ChildIndexFor(Key(key)));
  }
  bool HasEntryAt(uint64_t key) {
    const Node node = At(Covering(Key(key)));
    const size_t i = node.ChildIndexFor(Key(key));
    return i == 0 ? key == 0 || node.LowEquals(Key(key)) : node.CompareKey(i, Key(key)) == 0;
  }

  /// What BlinkTree::PublishHoldingChild does, without locks.
  void Publish(const Publication& publication) {
    std::string position = publication.low;
    for (;;) {
      const size_t p = Covering(position);
      Node node = At(p);
      if (position != publication.low && publication.high && position >= *publication.high &&
          node.Child(node.ChildIndexFor(position)) != publication.replaced) {
        return;
      }
      std::string next;
      if (node.has_high()) next = node.high();
      const ParentEdit edit = EditParent(node, position, publication);
      if (edit.overflow) {
        Split(p, publication);
      } else if (edit.changed) {
        node.Seal(node.version() + 1);
      }
      if (!edit.goes_on) return;
      position = next;
    }
  }

  void ExpectValid(GlobalAddress child) {
    for (size_t p = 0; p < pages_.size(); ++p) {
      Node node = At(p);
      node.Seal(7);
      const Status valid = node.Validate();
      EXPECT_TRUE(valid.ok()) << valid;
      for (size_t i = 1; i < node.count(); ++i) {
        EXPECT_FALSE(node.Child(i) == child && node.Child(i - 1) == child) << "said twice";
      }
    }
  }

 private:
  Node Append(uint64_t low, std::optional<uint64_t> high) {
    pages_.push_back(std::make_unique<PageBuffer>());
    Node node = At(pages_.size() - 1);
    const std::string low_key = Key(low), high_key = high ? Key(*high) : "";
    Node::Header header{1, 1, std::nullopt, std::nullopt, GlobalAddress()};
    if (low > 0) header.low = low_key;
    if (high) {
      header.high = high_key;
      header.right = ChildAddress(100 + pages_.size());
    }
    node.Init(header);
    return node;
  }
  void Split(size_t p, const Publication& publication) {
    auto left = std::make_unique<PageBuffer>(), right = std::make_unique<PageBuffer>();
    Node left_node(geometry_, left->image(geometry_, 1)),
        right_node(geometry_, right->image(geometry_, 1));
    PendingEntry pending;
    pending.key = publication.low;
    pending.child = publication.child;
    SplitNode(At(p), pending, ChildAddress(200), &left_node, &right_node);
    pages_[p] = std::move(left);
    pages_.insert(pages_.begin() + static_cast<ptrdiff_t>(p) + 1, std::move(right));
  }

  Geometry geometry_;
  std::vector<std::unique_ptr<PageBuffer>> pages_;
};

void CheckOnePublication(const Geometry& geometry, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  ParentLevel level(geometry, &random);
  const uint64_t low = 1 + random.Below(kKeysEnd - 1);
  const uint64_t high = low + 1 + random.Below(kKeysEnd - low);  // kKeysEnd: to the last
  Publication publication;
  publication.low = level.Key(low);
  if (high < kKeysEnd) publication.high = level.Key(high);
  publication.child = ChildAddress(random.OneIn(3) ? kChildren : random.Below(kChildren));
  publication.insert_missing = random.OneIn(2);
  if (!random.OneIn(4)) publication.replaced = ChildAddress(random.Below(kChildren));
  if (publication.replaced == publication.child) publication.replaced = GlobalAddress();

  std::vector<GlobalAddress> before;
  std::vector<uint64_t> entry_begins;  // of the entry that a key falls to
  bool had_entry[kKeysEnd];
  for (uint64_t key = 0; key < kKeysEnd; ++key) {
    before.push_back(level.Leads(key));
    had_entry[key] = level.HasEntryAt(key);
    entry_begins.push_back(had_entry[key] ? key : entry_begins.back());
  }
  level.Publish(publication);
  level.ExpectValid(publication.child);

  bool entry_seen = publication.insert_missing || had_entry[low];
  for (uint64_t key = 0; key < kKeysEnd; ++key) {
    const GlobalAddress after = level.Leads(key);
    if (key < low) {
      EXPECT_EQ(after, before[key]) << "below the range: " << key;
    } else if (key < high) {
      entry_seen |= had_entry[key];
      EXPECT_EQ(after, entry_seen ? publication.child : before[low]) << "in the range: " << key;
      if (level.HasEntryAt(key)) {
        EXPECT_EQ(after, publication.child) << "an entry in the range: " << key;
      }
    } else if (entry_begins[key] < high) {
      EXPECT_EQ(after, entry_seen ? publication.child : before[low])
          << "behind the range, in its last entry: " << key;
    } else if (before[key] != publication.replaced && before[key] != publication.child) {
      EXPECT_EQ(after, before[key]) << "behind the range: " << key;
    } else if (after == publication.replaced) {
      // Only where another's entry stands between; or where nothing was looked for: by a split, or a
      // merge that found no entry to correct.
      EXPECT_TRUE(publication.insert_missing || !entry_seen || entry_begins[key] > high) << key;
    }
  }
}

TEST(EditParentTest, KeepsItsContractOnRandomLevelsOfFixed8) {
  for (uint64_t seed = 1; seed <= 60'000 && !testing::Test::HasFailure(); ++seed) {
    CheckOnePublication(Geometry::Fixed8(256), seed);
  }
}

TEST(EditParentTest, KeepsItsContractOnRandomLevelsOfBytes) {
  for (uint64_t seed = 1; seed <= 20'000 && !testing::Test::HasFailure(); ++seed) {
    CheckOnePublication({Layout::kBytes, 256, 256, 36, 24}, seed);
  }
}

}  // namespace
}  // namespace farleaf::index
