// What a cached node says of a key beside what its page says.
#include "index/blink/cached_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/trimmed_node.h"

namespace farleaf::index {
namespace {

struct FreeNode {
  void operator()(CachedNode* node) const { ::operator delete(node, std::align_val_t{64}); }
};

class CachedNodeTest : public testing::Test {
 protected:
  /// A node of these separators; the first is its low fence.
  std::unique_ptr<CachedNode, FreeNode> Make(const std::vector<uint64_t>& separators) {
    Node page(geometry_, page_);
    std::byte low[8];
    StoreBig64(low, separators[0]);
    const std::string_view low_fence(reinterpret_cast<const char*>(low), 8);
    page.Init({1, 1, low_fence, std::nullopt, {}});
    for (size_t i = 0; i < separators.size(); ++i) {
      std::byte key[8];
      StoreBig64(key, separators[i]);
      EXPECT_TRUE(page.InsertChild(i, {reinterpret_cast<const char*>(key), 8},
                                   GlobalAddress(0, 64 * (i + 1))));
    }
    page.SetVersion(1);
    const size_t bytes = TrimmedImageBytes(page);
    void* memory = ::operator new(CachedNode::BytesOf(bytes, 0) + 64, std::align_val_t{64});
    // What stands behind the image is no part of it.
    std::memset(memory, 0, CachedNode::BytesOf(bytes, 0) + 64);
    auto* node = new (memory) CachedNode{static_cast<uint32_t>(bytes), 1};
    TrimImage(page, {node->image(), bytes});
    node->MakeGuide(separators.size());
    return std::unique_ptr<CachedNode, FreeNode>(node);
  }
  size_t ByPage(uint64_t key) const { return internal::Fixed8::ChildIndexFor(page_, key); }

  const Geometry geometry_ = Geometry::Fixed8(2048, 2048);
  alignas(16) std::byte page_[2048 - 8] = {};
};

TEST_F(CachedNodeTest, LeadsToTheChildThatThePageLeadsTo) {
  Random random(7);
  for (size_t count = 1; count <= CachedNode::kGuidedMax; ++count) {
    for (const uint64_t range : {uint64_t{200}, uint64_t{1} << 40, UINT64_MAX}) {
      std::vector<uint64_t> separators;
      while (separators.size() < count) {
        separators.push_back(random.Below(range));
        std::sort(separators.begin(), separators.end());
        separators.erase(std::unique(separators.begin(), separators.end()), separators.end());
      }
      const auto node = Make(separators);
      std::vector<uint64_t> keys = {separators[0], separators.back(), UINT64_MAX, UINT64_MAX - 1};
      for (const uint64_t separator : separators) {
        for (const uint64_t key : {separator - 1, separator, separator + 1}) {
          if (key >= separators[0]) keys.push_back(key);
        }
      }
      for (const uint64_t key : keys) {
        ASSERT_EQ(node->ChildIndexFor(key, count), ByPage(key)) << count << " entries, key " << key;
      }
    }
  }
}

TEST_F(CachedNodeTest, TheLargestKeyMayBeASeparator) {
  for (size_t count = 2; count <= CachedNode::kGuidedMax; ++count) {
    std::vector<uint64_t> separators;
    for (size_t i = 0; i + 1 < count; ++i) separators.push_back(i * 3);
    separators.push_back(UINT64_MAX);
    const auto node = Make(separators);
    EXPECT_EQ(node->ChildIndexFor(UINT64_MAX, count), count - 1);
    EXPECT_EQ(node->ChildIndexFor(UINT64_MAX - 1, count), count - 2);
  }
}

}  // namespace
}  // namespace farleaf::index
