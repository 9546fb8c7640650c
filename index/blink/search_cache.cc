#include "index/blink/search_cache.h"

#include <bit>
#include <cstring>
#include <new>

#include "dsm/base/check.h"
#include "index/blink/fence_digest.h"

namespace farleaf::index {

namespace {
// A cached path that moves right more often than this is so stale that a refresh is due.
constexpr int kCachedHopsMax = 16;

/// Header and the first entries' keys, all at once instead of one miss after another as the binary
/// search goes: a level-1 node is rarely in the nearer caches.
void PrefetchKeys(const std::byte* image) {
  for (size_t line = 0; line < 512; line += 64) __builtin_prefetch(image + line);
}

/// A fence or separator of a node of byte strings in one piece, without allocation.
class KeyBuffer {
 public:
  std::string_view Assemble(const internal::BytesPage& page, size_t i) {
    const internal::BytesSlot slot = page.Slot(i);
    const std::string_view rest = page.Rest(slot);
    if (slot.shared == 0) return rest;
    FARLEAF_DCHECK(slot.shared + rest.size() <= sizeof bytes_, slot.shared, rest.size());
    page.Low().copy(bytes_, slot.shared);
    rest.copy(bytes_ + slot.shared, rest.size());
    return {bytes_, slot.shared + rest.size()};
  }

 private:
  // Check() of a page bounds each of the two, not their sum: format.md's rule on key lengths is for
  // Validate.
  char bytes_[kKeyBytesMax + kPageBytesMax];
};

internal::BytesPage BytesPageOf(const ConstNode& node) {
  return {node.geometry(), node.image()};
}
}  // namespace

uint64_t FenceDigestOf(const ConstNode& node) {
  const std::byte* page = node.image().data();
  if (node.geometry().layout == Layout::kFixed8) {
    std::optional<uint64_t> low, high;
    if (node.has_low()) low = internal::Fixed8::Low(page);
    if (node.has_high()) high = internal::Fixed8::High(page);
    return FenceDigestFixed8(node.tree(), low, high);
  }
  const internal::BytesPage bytes = BytesPageOf(node);
  std::optional<std::string_view> low, high;
  if (node.has_low()) low = bytes.Low();
  if (node.has_high()) high = bytes.High();
  return FenceDigest(node.tree(), low, high);
}

uint64_t ChildFenceDigest(const ConstNode& node, size_t i) {
  const size_t count = node.count();
  const GlobalAddress child = node.Child(i);
  size_t first = i, last = i;
  while (first > 0 && node.Child(first - 1) == child) --first;
  while (last + 1 < count && node.Child(last + 1) == child) ++last;
  const bool at_low = first == 0, at_high = last + 1 == count;
  if (node.geometry().layout == Layout::kFixed8) {
    const std::byte* page = node.image().data();
    std::optional<uint64_t> low, high;
    if (!at_low || node.has_low()) low = internal::Fixed8::Key(page, first);
    if (!at_high) {
      high = internal::Fixed8::Key(page, last + 1);
    } else if (node.has_high()) {
      high = internal::Fixed8::High(page);
    }
    return FenceDigestFixed8(node.tree(), low, high);
  }
  const internal::BytesPage bytes = BytesPageOf(node);
  KeyBuffer low_buffer, high_buffer;
  std::optional<std::string_view> low, high;
  if (!at_low) {
    low = low_buffer.Assemble(bytes, first);
  } else if (node.has_low()) {
    low = bytes.Low();
  }
  if (!at_high) {
    high = high_buffer.Assemble(bytes, last + 1);
  } else if (node.has_high()) {
    high = bytes.High();
  }
  return FenceDigest(node.tree(), low, high);
}

SearchCache::SearchCache(const Geometry& geometry, TreeId tree,
                         std::span<const dsm::RegionLayout> layouts, dsm::EpochDomain* epochs)
    : geometry_(geometry), image_bytes_(geometry.image_bytes(1)), tree_(tree), epochs_(epochs) {
  for (const dsm::RegionLayout& layout : layouts) {
    if (regions_.size() <= layout.server) regions_.resize(layout.server + size_t{1});
    auto region = std::make_unique<CachedRegion>();
    region->layout = layout;
    region->chunk_shift = std::countr_zero(layout.chunk_bytes);
    region->chunks = std::vector<std::atomic<CachedChunk*>>(layout.chunk_count);
    regions_[layout.server] = std::move(region);
  }
}

SearchCache::~SearchCache() {
  for (auto& region : regions_) {
    if (!region) continue;
    for (auto& chunk : region->chunks) {
      CachedChunk* cached = chunk.load();
      if (!cached) continue;
      for (Slot& slot : cached->slots) ::operator delete(const_cast<CachedNode*>(slot.load()));
      delete cached;
    }
  }
}

const SearchCache::CachedNode* SearchCache::Load(GlobalAddress address) const {
  if (address.server() >= regions_.size() || !regions_[address.server()]) [[unlikely]]
    return nullptr;
  const CachedRegion& region = *regions_[address.server()];
  const uint64_t offset = address.offset() - region.layout.first_chunk;  // wraps below first_chunk
  const uint64_t chunk = offset >> region.chunk_shift;
  if (chunk >= region.chunks.size()) [[unlikely]]
    return nullptr;
  const CachedChunk* cached = region.chunks[chunk].load(std::memory_order_acquire);
  if (!cached) return nullptr;
  const auto in_chunk = static_cast<uint32_t>(offset & (region.layout.chunk_bytes - 1));
  return cached->slots[in_chunk / geometry_.node_bytes].load(std::memory_order_acquire);
}

SearchCache::Slot* SearchCache::SlotFor(GlobalAddress address) {
  if (address.server() >= regions_.size() || !regions_[address.server()]) return nullptr;
  CachedRegion& region = *regions_[address.server()];
  const dsm::RegionLayout& layout = region.layout;
  if (address.offset() < layout.first_chunk) return nullptr;
  const uint64_t chunk = layout.ChunkOf(address.offset());
  if (chunk >= layout.chunk_count) return nullptr;
  CachedChunk* cached = region.chunks[chunk].load();
  if (!cached) {
    cached = new CachedChunk(layout.chunk_bytes / geometry_.node_bytes + 1);
    region.chunks[chunk].store(cached);
  }
  const uint64_t in_chunk = address.offset() - layout.ChunkOffset(chunk);
  return &cached->slots[in_chunk / geometry_.node_bytes];
}

void SearchCache::Install(GlobalAddress address, std::span<const std::byte> image) {
  const ConstNode node(geometry_, image);
  if (node.tree() != tree_ || node.is_leaf()) return;
  const CachedNode* replaced = nullptr;
  {
    std::lock_guard lock(install_mutex_);
    Slot* slot = SlotFor(address);
    if (!slot) return;
    replaced = slot->load();
    if (replaced && replaced->version >= node.version()) return;
    void* memory = ::operator new(sizeof(CachedNode) + image_bytes_);
    auto* fresh = new (memory) CachedNode{node.version()};
    std::memcpy(fresh->image(), image.data(), image_bytes_);
    slot->store(fresh, std::memory_order_seq_cst);
  }
  if (replaced) {
    epochs_->Retire([replaced] { ::operator delete(const_cast<CachedNode*>(replaced)); });
  } else {
    nodes_.fetch_add(1, std::memory_order_relaxed);
  }
}

uint64_t SearchCache::VersionOf(GlobalAddress address) const {
  const CachedNode* node = Load(address);
  return node ? node->version : 0;
}

SearchCache::Path SearchCache::Descend(std::string_view key, Side side, Level level,
                                       Parent* parent) const {
  const RootWord top = root();
  Path path{top.address, top.level, {}, false, false};
  int hops = 0;
  while (path.level > level) {
    const CachedNode* cached = Load(path.node);
    if (!cached) return path;
    PrefetchKeys(cached->image());
    const ConstNode node = View(cached);
    const bool below = node.BelowLow(key) || (side == Side::kBefore && node.LowEquals(key));
    if (node.dead() || node.level() != path.level || below) [[unlikely]] {
      path.stale = true;
      return path;
    }
    const bool past = side == Side::kAt ? node.AtOrPastHigh(key) : node.PastHigh(key);
    if (past) [[unlikely]] {
      // To the right of the root there is nothing: the tree has grown since.
      if (path.level == top.level || ++hops > kCachedHopsMax || node.right().is_null()) {
        path.stale = true;
        return path;
      }
      path.node = node.right();
      continue;
    }
    const size_t i = side == Side::kAt ? node.ChildIndexFor(key) : node.ChildIndexBelow(key);
    *parent = {cached, i};
    path.parent = path.node;
    path.node = node.Child(i);
    --path.level;
  }
  path.complete = true;
  return path;
}

SearchCache::LeafPath SearchCache::FindLeaf(std::string_view key) const {
  Parent parent;
  LeafPath path{Descend(key, Side::kAt, 0, &parent)};
  if (!path.complete) return path;
  path.fence_digest = parent.node ? ChildFenceDigest(View(parent.node), parent.entry)
                                  : FenceDigest(tree_, std::nullopt, std::nullopt);
  return path;
}

const SearchCache::CachedNode* SearchCache::FindLevel1(std::string_view key, Side side) const {
  const Path path = Find(key, side, 1);
  if (!path.complete || path.stale || root().level < 1) return nullptr;
  const CachedNode* cached = Load(path.node);
  // The path may end one hop left of the node that covers the key.
  for (int hops = 0; cached && hops < kCachedHopsMax; ++hops) {
    const ConstNode node = View(cached);
    if (node.dead() || node.level() != 1 || node.BelowLow(key)) return nullptr;
    if (side == Side::kBefore && node.LowEquals(key)) return nullptr;
    if (side == Side::kAt ? !node.AtOrPastHigh(key) : !node.PastHigh(key)) return cached;
    cached = node.right().is_null() ? nullptr : Load(node.right());
  }
  return nullptr;
}

const SearchCache::CachedNode* SearchCache::LastLevel1() const {
  RootWord at = root();
  // Images of different ages may name each other as right siblings: bound the hops.
  for (int hops = 0; at.level >= 1 && hops < kCachedHopsMax;) {
    const CachedNode* cached = Load(at.address);
    if (!cached) return nullptr;
    const ConstNode node = View(cached);
    if (node.dead() || node.level() != at.level) return nullptr;
    if (node.has_high()) {
      ++hops;
      at.address = node.right();
      continue;
    }
    if (at.level == 1) return cached;
    at = {node.Child(node.count() - 1), static_cast<Level>(at.level - 1)};
  }
  return nullptr;
}

void SearchCache::LeavesFrom(std::string_view from, std::optional<std::string_view> end, size_t max,
                             std::vector<GlobalAddress>* leaves) const {
  leaves->clear();
  if (root().level == 0) {
    leaves->push_back(root().address);
    return;
  }
  const CachedNode* cached = FindLevel1(from, Side::kAt);
  if (!cached) return;
  size_t i = View(cached).ChildIndexFor(from);
  for (;;) {
    const ConstNode node = View(cached);
    for (; i < node.count() && leaves->size() < max; ++i) {
      if (!leaves->empty() && end && node.CompareKey(i, *end) >= 0) return;
      // One child may stand in a run of entries (index/blink/README.md): read it once.
      if (leaves->empty() || leaves->back() != node.Child(i)) leaves->push_back(node.Child(i));
    }
    if (leaves->size() >= max || node.right().is_null()) return;
    const CachedNode* next = Load(node.right());
    if (!next) return;
    const ConstNode next_node = View(next);
    if (next_node.dead() || next_node.level() != 1 || !next_node.LowEquals(node.high())) return;
    cached = next;
    i = 0;
  }
}

void SearchCache::LeavesBefore(std::optional<std::string_view> from, size_t max,
                               std::vector<GlobalAddress>* leaves) const {
  leaves->clear();
  if (root().level == 0) {
    leaves->push_back(root().address);
    return;
  }
  const CachedNode* cached = from ? FindLevel1(*from, Side::kBefore) : LastLevel1();
  std::string low;
  while (cached) {
    const ConstNode node = View(cached);
    size_t i = from ? node.ChildIndexBelow(*from) : node.count() - 1;
    for (;; --i) {
      if (leaves->empty() || leaves->back() != node.Child(i)) leaves->push_back(node.Child(i));
      if (leaves->size() >= max) return;
      if (i == 0) break;
    }
    if (!node.has_low()) return;
    low = node.low();
    from = low;
    cached = FindLevel1(low, Side::kBefore);
  }
}

}  // namespace farleaf::index
