// A leaf that is split is written whole, perhaps with a new key in it, whose home may be another part than before: the part that
// gets the key is written behind all others, so that whoever has found it there finds no old part any more that would deny it.
// Simulated runs do not tell the product from a tree that writes that part first.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "index/blink/parted_leaf.h"
#include "test/support/crashing_member.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

using test::CrashingMember;
using Bytes = std::vector<std::byte>;

/// A leaf that an insert splits, as it stands when its author dies at any verb of that.
class AddedKeyTest : public ::testing::Test {
 protected:
  /// Inserts keys until one has a leaf split, some other leaves later, and takes that back.
  void FindAKey(Random& random) {
    servers_ = std::move(*dsm::LocalFabric::Create({.servers = 2,
                                                    .region_bytes = uint64_t{3} << 20,
                                                    .chunk_bytes = dsm::kChunkBytesMin,
                                                    .hugepages = dsm::Hugepages::kNever}));
    CrashingMember builder(servers_.get(), &clock_, options_, true);
    geometry_ = builder.tree->info().geometry;
    while (builder.tree->stats().splits < 5) {
      if (builder.tree->stats().splits == 4) before_.emplace(servers_.get());
      key_ = random.Next();
      ASSERT_TRUE(Insert(builder).ok());
    }
    builder.plan.dead = true;  // it never was
  }
  Result<bool> Insert(CrashingMember& by) {
    OpContext op = by.Op();
    auto inserted = by.worker->Run(by.tree->Insert(op, Fixed(key_), Fixed(1)));
    return inserted;
  }
  /// The leaf before the insert, and when so many verbs of it have run, or all.
  struct Images {
    Bytes before, now;
    bool ended = false;
  };
  Images InsertUpTo(uint64_t verbs) {
    before_->Restore();
    CrashingMember author(servers_.get(), &clock_, options_, false);
    const SearchCache::LeafPath path = author.tree->cache().FindLeaf(Fixed(key_));
    FARLEAF_CHECK(path.complete, key_);
    Images images;
    images.before = LeafAt(path.node);
    author.plan.verbs_left = verbs;
    images.ended = Insert(author).ok();
    author.plan.dead = true;
    images.now = LeafAt(path.node);
    return images;
  }
  Bytes LeafAt(dsm::GlobalAddress leaf) const {
    const auto page = servers_->region_bytes(leaf.server()).subspan(leaf.offset());
    return {page.begin(), page.begin() + static_cast<ptrdiff_t>(geometry().image_bytes(0))};
  }
  LeafParts PartsOfLeaf(Bytes& image) const {
    Bytes node(image.size());
    FARLEAF_CHECK(OpenPartedLeaf(geometry(), image, node) == OpenOutcome::kValid);
    return LeafParts(image, (uint32_t{1} << PartsOf(geometry().leaf_bytes)) - 1,
                     RangeOf(ConstNode(geometry(), node)));
  }
  static bool Same(size_t part, const Bytes& left, const Bytes& right) {
    const auto begin = static_cast<ptrdiff_t>(part * kPartBytes);
    return std::equal(left.begin() + begin, left.begin() + begin + kPartBytes,
                      right.begin() + begin);
  }
  const Geometry& geometry() const { return geometry_; }

  const CrashingMember::Options options_{Geometry::Parted(8, 256), {}};
  Geometry geometry_;  // of the tree that the builder made
  ManualClock clock_;
  std::unique_ptr<dsm::LocalFabric> servers_;
  std::optional<test::RegionSnapshot> before_;
  uint64_t key_ = 0;
};

TEST_F(AddedKeyTest, WhoHasSeenTheAddedKeyFindsNoOldPartThatDeniesIt) {
  int told_apart = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    ASSERT_NO_FATAL_FAILURE(FindAKey(random));
    Images whole = InsertUpTo(UINT64_MAX);
    ASSERT_TRUE(whole.ended);
    const LeafParts::Place place = PartsOfLeaf(whole.now).Find(key_);
    if (place.outcome != LeafParts::Outcome::kYes) continue;  // it is in the right leaf
    // What a reader by the old placement asks.
    const LeafParts old = PartsOfLeaf(whole.before);
    std::set<size_t> asked{old.homes().Of(key_)};
    for (size_t at = *asked.begin(); old.part(at).passed() && asked.size() < old.parts();) {
      at = old.Next(at);
      asked.insert(at);
    }
    told_apart += !asked.contains(place.part);
    for (uint64_t verbs = 0;; ++verbs) {
      const Images torn = InsertUpTo(verbs);
      const bool seen = Same(place.part, torn.now, whole.now);
      const bool denied = std::all_of(asked.begin(), asked.end(), [&](size_t part) {
        return Same(part, torn.now, whole.before);
      });
      EXPECT_FALSE(seen && denied) << "behind " << verbs << " verbs";
      if (torn.ended) break;
    }
  }
  EXPECT_GT(told_apart, 0);
}

}  // namespace
}  // namespace farleaf::index
