// What a leaf that was found split says of its cached parent: where its keys end, and which sibling has the
// others. README.md ("A parent that learns") has the argument.
#include "index/blink/search_cache.h"

namespace farleaf::index {

namespace {
/// Writes into `out` the node of a cached image, whose page is only as large as it has to be.
bool Expand(const ConstNode& node, Node* out) {
  const std::string low = node.low();
  std::string high;
  Node::Header header{node.tree(), node.level(), std::nullopt, std::nullopt, node.right()};
  if (node.has_low()) header.low = low;
  if (node.has_high()) header.high = high = node.high();
  out->Init(header);
  for (size_t i = 0; i < node.count(); ++i) {
    if (!out->InsertChild(i, node.Key(i), node.Child(i))) return false;
  }
  return true;
}

/// What `parent` lacks of what `leaf` says.
enum class Lacks : uint8_t {
  kNothing,
  kRightHalf,  ///< the entry of the leaf is as the leaf says but for its end
  kMore,
};

Lacks WhatItLacks(const ConstNode& parent, GlobalAddress address, const ConstNode& leaf,
                  size_t* entry) {
  if (parent.dead() || leaf.dead() || !leaf.has_high() || leaf.right().is_null()) {
    return Lacks::kMore;
  }
  const std::string low = leaf.low(), high = leaf.high();
  if (leaf.has_low() ? !parent.Covers(low) : parent.has_low()) return Lacks::kMore;
  const size_t i = *entry = leaf.has_low() ? parent.ChildIndexFor(low) : 0;
  if (parent.Child(i) != address) return Lacks::kMore;
  const bool first = i == 0, last = i + 1 == parent.count();
  const bool begins_there = first && !leaf.has_low() ? !parent.has_low()
                            : first                  ? parent.LowEquals(low)
                                                     : parent.CompareKey(i, low) == 0;
  if (!begins_there) return Lacks::kMore;
  if (last ? parent.HighEquals(high) : parent.CompareKey(i + 1, high) == 0) return Lacks::kNothing;
  const bool ends_earlier = last ? !parent.PastHigh(high) : parent.CompareKey(i + 1, high) > 0;
  return ends_earlier ? Lacks::kRightHalf : Lacks::kMore;
}
}  // namespace

uint8_t SearchCache::LearnedOf(GlobalAddress parent) const {
  const CachedNode* node = Load(parent);
  return node ? node->learned.load(std::memory_order_relaxed) : 0;
}

bool SearchCache::LearnSplit(GlobalAddress parent, GlobalAddress address, const ConstNode& leaf) {
  std::vector<const CachedNode*> gone;
  {
    std::lock_guard lock(install_mutex_);
    Slot* slot = SlotFor(parent);
    const CachedNode* replaced = slot ? slot->load() : nullptr;
    if (!replaced) return false;
    const ConstNode node = View(replaced);
    if (leaf.tree() != tree_ || leaf.level() + 1 != node.level()) return false;
    size_t entry = 0;
    const Lacks lacks = WhatItLacks(node, address, leaf, &entry);
    if (lacks == Lacks::kNothing) return true;
    const uint8_t before = replaced->learned.load(std::memory_order_relaxed);
    const auto learned = static_cast<uint8_t>(before + (before < UINT8_MAX));
    replaced->learned.store(learned, std::memory_order_relaxed);
    if (lacks == Lacks::kMore) return false;
    alignas(16) std::byte bytes[kPageBytesMax];
    Node wider(geometry_, {bytes, geometry_.image_bytes(node.level())});
    if (!Expand(node, &wider) || !wider.InsertChild(entry + 1, leaf.high(), leaf.right()))
      return false;
    wider.SetVersion(node.version());
    CachedNode* fresh = MakeNode(wider);
    fresh->learned.store(learned, std::memory_order_relaxed);
    Replace(slot, replaced, fresh);
    gone.push_back(replaced);
    if (RoomBytes() == 0) Evict(slot, &gone);
  }
  for (const CachedNode* node : gone) epochs_->Retire([node] { DestroyNode(node); });
  return true;
}

}  // namespace farleaf::index
