// The leaf of a key, by the cached nodes.
#include "index/blink/fence_digest.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

namespace {
/// Most of a level-1 node of 1 KiB that is as full as most are.
constexpr size_t kFixed8PrefetchBytes = 768;
}  // namespace

bool SearchCache::FindLeafFixed8(uint64_t key, LeafPath* path) const {
  using internal::Fixed8;
  const RootWord top = root();
  if (top.level == 0) return false;
  const CachedNode* cached = Load(top.address);
  path->parent = top.address;
  for (Level level = top.level;; --level) {
    if (!cached) return false;
    const std::byte* const page = cached->image();
    if (level == 1) cached->Prefetch(kFixed8PrefetchBytes);
    NoteUse(cached);
    const size_t count = internal::PageCount(page);
    const bool covers =
        Fixed8::Low(page) <= key && (!Fixed8::HasHigh(page) || key < Fixed8::High(page));
    const bool dead = (internal::PageFlags(page) & internal::kFlagDead) != 0;
    if (!covers || dead || internal::PageLevel(page) != level || count > CachedNode::kGuidedMax)
        [[unlikely]] {
      return false;
    }
    const size_t i = cached->ChildIndexFor(key, count);
    const ConstNode node = View(cached);
    path->node = node.Child(i);
    if (level == 1) {
      path->parent_version = node.version();
      path->complete = true;
      path->fence_digest = ChildFenceDigest(node, i, &path->range);
      return true;
    }
    path->parent = path->node;
    cached = cached->Child(i);
  }
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
