// The leaf of a key, by the cached nodes.
#include "index/blink/fence_digest.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

namespace {
/// Most of a level-1 node of 1 KiB that is as full as most are.
constexpr size_t kFixed8PrefetchBytes = 768;
}  // namespace

SearchCache::Level1 SearchCache::FindLevel1Fixed8(uint64_t key) const {
  using internal::Fixed8;
  const RootWord top = root();
  if (top.level == 0) return {};
  Level1 at{Load(top.address), top.address};
  for (Level level = top.level; at.cached; --level) {
    const std::byte* const page = at.cached->image();
    if (level == 1) at.cached->Prefetch(kFixed8PrefetchBytes);
    NoteUse(at.cached);
    const size_t count = internal::PageCount(page);
    const bool covers =
        Fixed8::Low(page) <= key && (!Fixed8::HasHigh(page) || key < Fixed8::High(page));
    const bool dead = (internal::PageFlags(page) & internal::kFlagDead) != 0;
    if (!covers || dead || internal::PageLevel(page) != level || count > CachedNode::kGuidedMax)
        [[unlikely]] {
      return {};
    }
    at.child = at.cached->ChildIndexFor(key, count);
    if (level == 1) return at;
    at.node = View(at.cached).Child(at.child);
    at.cached = at.cached->Child(at.child);
  }
  return {};
}

bool SearchCache::FindLeafFixed8(uint64_t key, LeafPath* path) const {
  const Level1 at = FindLevel1Fixed8(key);
  if (!at.cached) return false;
  const ConstNode node = View(at.cached);
  path->node = node.Child(at.child);
  path->parent = at.node;
  path->parent_version = node.version();
  path->complete = true;
  path->fence_digest = ChildFenceDigest(node, at.child, &path->range);
  return true;
}

SearchCache::LeafPath SearchCache::FindLeaf(std::string_view key) const {
  if (geometry_.layout == Layout::kFixed8) {
    LeafPath straight;
    if (FindLeafFixed8(LoadBig64(key.data()), &straight)) [[likely]]
      return straight;
  }
  Parent parent;
  LeafPath path{Descend(key, Side::kAt, 0, &parent)};
  if (!path.complete) return path;
  path.fence_digest = parent.node
                          ? ChildFenceDigest(View(parent.node), parent.entry, &path.range)
                          : FenceDigest({geometry_.digest_key, tree_}, std::nullopt, std::nullopt);
  return path;
}

}  // namespace farleaf::index
