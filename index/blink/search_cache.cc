#include "index/blink/search_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "dsm/base/check.h"
#include "index/blink/fence_digest.h"
#include "index/blink/trimmed_node.h"

namespace farleaf::index {

namespace {
// A cached path that moves right more often than this is so stale that a refresh is due.
constexpr int kCachedHopsMax = 16;

constexpr size_t kGuestsMax = 32;
constexpr std::align_val_t kNodeAlignment{64};
/// With one entry, whose line of keys would end here.
constexpr size_t kNodeBytesMin =
    sizeof(CachedNode) + internal::Fixed8::kKeys + 8 * (1 + CachedNode::kLineKeys);

/// What an allocator takes for so much: four sizes in each power of two, as jemalloc has them, and a
/// little for its own tables. A function of the size alone, so that simulated runs repeat exactly.
uint64_t AllocatedBytes(uint64_t bytes) {
  const uint64_t step = bytes <= 128 ? 16 : std::bit_floor(bytes - 1) / 4;
  return RoundUp(bytes, step) + 8;
}

/// Header and the first entries' keys.
constexpr size_t kKeysPrefetchBytes = 512;
/// Of a node of byte strings: header, fences and the slots of a hundred entries.
constexpr size_t kNodePrefetchBytes = 1'088;

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

internal::BytesPage BytesPageOf(const ConstNode& node) { return {node.geometry(), node.image()}; }
DigestScope ScopeOf(const ConstNode& node) { return {node.geometry().digest_key, node.tree()}; }
}  // namespace

uint64_t FenceDigestOf(const ConstNode& node) {
  const std::byte* page = node.image().data();
  if (node.geometry().layout == Layout::kFixed8) {
    std::optional<uint64_t> low, high;
    if (node.has_low()) low = internal::Fixed8::Low(page);
    if (node.has_high()) high = internal::Fixed8::High(page);
    return FenceDigestFixed8(ScopeOf(node), low, high);
  }
  const internal::BytesPage bytes = BytesPageOf(node);
  std::optional<std::string_view> low, high;
  if (node.has_low()) low = bytes.Low();
  if (node.has_high()) high = bytes.High();
  return FenceDigest(ScopeOf(node), low, high);
}

uint64_t ChildFenceDigest(const ConstNode& node, size_t i) {
  LeafRange range;
  return ChildFenceDigest(node, i, &range);
}

uint64_t ChildFenceDigest(const ConstNode& node, size_t i, LeafRange* range) {
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
    if (low && high) *range = {*low, *high};
    return FenceDigestFixed8(ScopeOf(node), low, high);
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
  return FenceDigest(ScopeOf(node), low, high);
}

SearchCache::SearchCache(const Geometry& geometry, TreeId tree,
                         std::span<const dsm::RegionLayout> layouts, dsm::EpochDomain* epochs,
                         uint64_t budget_bytes)
    : geometry_(geometry), tree_(tree), epochs_(epochs), budget_bytes_(budget_bytes) {
  for (const dsm::RegionLayout& layout : layouts) {
    if (regions_.size() <= layout.server) regions_.resize(layout.server + size_t{1});
    auto region = std::make_unique<CachedRegion>();
    region->layout = layout;
    region->chunk_shift = std::countr_zero(layout.chunk_bytes);
    region->chunks = std::vector<std::atomic<CachedChunk*>>(layout.chunk_count);
    table_bytes_ += sizeof(CachedRegion) + layout.chunk_count * sizeof(region->chunks[0]);
    regions_[layout.server] = std::move(region);
  }
}

SearchCache::~SearchCache() {
  for (CachedChunk* chunk : chunks_) {
    for (Slot& slot : chunk->slots) DestroyNode(slot.load());
    delete chunk;
  }
}

CachedNode* SearchCache::MakeNode(const ConstNode& node) {
  const size_t image_bytes = TrimmedImageBytes(node);
  const size_t children = node.dead() ? 0 : CachedNode::SlotsOf(node.level(), node.count());
  // A line of keys is looked at as a whole: there is no node that ends within one.
  const size_t bytes = std::max(CachedNode::BytesOf(image_bytes, children), kNodeBytesMin);
  void* memory = ::operator new(bytes, kNodeAlignment);
  auto* fresh = new (memory) CachedNode{static_cast<uint32_t>(image_bytes), node.level()};
  TrimImage(node, {fresh->image(), image_bytes});
  if (geometry_.layout == Layout::kFixed8) fresh->MakeGuide(internal::PageCount(fresh->image()));
  for (size_t i = 0; i < children; ++i) fresh->SetChildSlot(i, SlotFor(node.Child(i)));
  return fresh;
}

void SearchCache::DestroyNode(const CachedNode* node) {
  if (node) ::operator delete(const_cast<CachedNode*>(node), kNodeAlignment);
}

uint64_t SearchCache::ChargeOf(const CachedNode* node) {
  return AllocatedBytes(std::max(node->bytes(), kNodeBytesMin));
}

uint64_t SearchCache::RoomBytes() const {
  if (budget_bytes_ == 0) return UINT64_MAX;
  return budget_bytes_ - std::min(budget_bytes_, bytes());
}

const CachedNode* SearchCache::Load(GlobalAddress address) const {
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
    cached = new CachedChunk({address.server(), layout.ChunkOffset(chunk)},
                             layout.chunk_bytes / geometry_.node_bytes + 1);
    region.chunks[chunk].store(cached);
    chunks_.push_back(cached);
    table_bytes_ += sizeof(CachedChunk) + AllocatedBytes(cached->slots.size() * sizeof(Slot)) +
                    sizeof(CachedChunk*);
  }
  const uint64_t in_chunk = address.offset() - layout.ChunkOffset(chunk);
  return &cached->slots[in_chunk / geometry_.node_bytes];
}

bool SearchCache::IsNewer(const ConstNode& node, const CachedNode& cached) const {
  const uint64_t version = View(&cached).version();
  // What was learned of an old leaf may be wrong by now.
  const bool learned = cached.learned.load(std::memory_order_relaxed) > 0;
  return node.version() > version || (node.version() == version && learned);
}

void SearchCache::Install(GlobalAddress address, std::span<const std::byte> image) {
  const ConstNode node(geometry_, image);
  if (node.tree() != tree_ || node.is_leaf()) return;
  const CachedNode* replaced = nullptr;
  std::vector<const CachedNode*> evicted;
  {
    std::lock_guard lock(install_mutex_);
    Slot* slot = SlotFor(address);
    if (!slot) return;
    replaced = slot->load();
    if (replaced && !IsNewer(node, *replaced)) return;
    const CachedNode* fresh = MakeNode(node);
    Replace(slot, replaced, fresh);
    if (RoomBytes() == 0) {
      if (!replaced && fresh->level == 1) {
        fresh->guest = true;
        guests_.push_back(slot);
      }
      Evict(slot, &evicted);
    }
  }
  if (replaced) evicted.push_back(replaced);
  for (const CachedNode* gone : evicted) epochs_->Retire([gone] { DestroyNode(gone); });
}

void SearchCache::Replace(Slot* slot, const CachedNode* replaced, const CachedNode* fresh) {
  if (replaced) {
    fresh->uses.store(replaced->uses.load(std::memory_order_relaxed), std::memory_order_relaxed);
    fresh->guest = replaced->guest;
  }
  slot->store(fresh, std::memory_order_seq_cst);
  node_bytes_ += ChargeOf(fresh) - (replaced ? ChargeOf(replaced) : 0);
  nodes_ += replaced ? 0 : 1;
  level1_nodes_ += (fresh->level == 1) - (replaced && replaced->level == 1);
}

void SearchCache::Evict(const Slot* keep, std::vector<const CachedNode*>* evicted) {
  const uint64_t kept = keep->load(std::memory_order_relaxed)->level == 1 ? 1 : 0;
  const auto over = [&] { return RoomBytes() == 0 && level1_nodes_ > kept; };
  while (over() && guests_.size() > std::min(kGuestsMax, level1_nodes_ / 8)) {
    Slot* slot = guests_.front();
    guests_.pop_front();
    const CachedNode* node = slot->load(std::memory_order_relaxed);
    if (!node || !node->guest) continue;
    node->guest = false;
    const bool stays =
        slot == keep || node->uses.load(std::memory_order_relaxed) > 0 || random_.Below(8) == 0;
    if (!stays) TakeOut(slot, node, evicted);
  }
  // So often around, at most, until one is found that was not used.
  size_t slots_left = 0;
  for (const CachedChunk* chunk : chunks_)
    slots_left += (CachedNode::kUsesMax + 1) * chunk->slots.size();
  for (; over() && slots_left > 0; --slots_left) {
    if (hand_slot_ == chunks_[hand_chunk_]->slots.size()) {
      hand_slot_ = 0;
      hand_chunk_ = (hand_chunk_ + 1) % chunks_.size();
    }
    Slot& slot = chunks_[hand_chunk_]->slots[hand_slot_++];
    const CachedNode* node = slot.load(std::memory_order_relaxed);
    if (!node || node->level != 1 || node->guest || &slot == keep) continue;
    const uint8_t uses = node->uses.load(std::memory_order_relaxed);
    if (uses > 0) {
      node->uses.store(static_cast<uint8_t>(uses - 1), std::memory_order_relaxed);
    } else {
      TakeOut(&slot, node, evicted);
    }
  }
}

void SearchCache::TakeOut(Slot* slot, const CachedNode* node,
                          std::vector<const CachedNode*>* evicted) {
  slot->store(nullptr, std::memory_order_seq_cst);
  node_bytes_ -= ChargeOf(node);
  --nodes_;
  --level1_nodes_;
  evictions_.fetch_add(1, std::memory_order_relaxed);
  evicted->push_back(node);
}

std::vector<GlobalAddress> SearchCache::Chunks() {
  std::lock_guard lock(install_mutex_);
  std::vector<GlobalAddress> chunks;
  for (const CachedChunk* chunk : chunks_) chunks.push_back(chunk->address);
  return chunks;
}

uint64_t SearchCache::VersionOf(GlobalAddress address) const {
  const CachedNode* node = Load(address);
  return node ? View(node).version() : 0;
}

SearchCache::Path SearchCache::BeginFind(std::string_view key) const {
  Parent parent;
  Path path = Descend(key, Side::kAt, 1, &parent);
  if (!path.complete || path.level != 1) return path;
  path.cached = parent.node ? parent.node->Child(parent.entry) : Load(path.node);
  if (path.cached) path.cached->Prefetch(kNodePrefetchBytes);
  return path;
}

SearchCache::Turn SearchCache::TurnAt(const ConstNode& node, std::string_view key, Side side) {
  Turn turn;
  const bool at = side == Side::kAt;
  turn.past = at ? node.AtOrPastHigh(key) : node.PastHigh(key);
  if (node.geometry().layout == Layout::kFixed8) {
    turn.below = node.BelowLow(key) || (!at && node.LowEquals(key));
    if (!turn.below && !turn.past)
      turn.child = at ? node.ChildIndexFor(key) : node.ChildIndexBelow(key);
    return turn;
  }
  // The comparison with the low fence serves both.
  const internal::BytesPage page = BytesPageOf(node);
  const internal::BytesProbe probe = page.Probe(key);
  turn.below = probe.below_low || (!at && node.LowEquals(key));
  using Bound = internal::BytesPage::Bound;
  if (!turn.below && !turn.past)
    turn.child = page.Search(1, probe, at ? Bound::kUpper : Bound::kLower) - 1;
  return turn;
}

SearchCache::Path SearchCache::DescendFrom(Path path, std::string_view key, Side side, Level level,
                                           Parent* parent) const {
  const Level top_level = path.level;
  path.complete = false;
  if (path.stale) [[unlikely]]
    return path;
  int hops = 0;
  const CachedNode* cached = std::exchange(path.cached, nullptr);
  if (!cached && path.level > level) cached = Load(path.node);
  while (path.level > level) {
    if (!cached) return path;
    cached->Prefetch(kKeysPrefetchBytes);
    NoteUse(cached);
    const ConstNode node = View(cached);
    if (node.dead() || node.level() != path.level) [[unlikely]] {  // a dead one has no entries
      path.stale = true;
      return path;
    }
    const Turn turn = TurnAt(node, key, side);
    if (turn.below) [[unlikely]] {
      path.stale = true;
      return path;
    }
    if (turn.past) [[unlikely]] {
      // To the right of the root there is nothing: the tree has grown since.
      if ((path.level == top_level && path.parent.is_null()) || ++hops > kCachedHopsMax ||
          node.right().is_null()) {
        path.stale = true;
        return path;
      }
      path.node = node.right();
      cached = Load(path.node);
      continue;
    }
    const size_t i = turn.child;
    *parent = {cached, i};
    path.parent = path.node;
    path.parent_version = node.version();
    path.node = node.Child(i);
    --path.level;
    if (path.level > level) cached = cached->Child(i);
  }
  path.complete = true;
  return path;
}

SearchCache::Level1 SearchCache::FindLevel1(std::string_view key, Side side) const {
  if (geometry_.layout == Layout::kFixed8 && side == Side::kAt) {
    const Level1 straight = FindLevel1Fixed8(LoadBig64(key.data()));
    if (straight.cached) [[likely]]
      return straight;
  }
  const Path path = Find(key, side, 1);
  if (!path.complete || path.stale || root().level < 1) return {};
  Level1 at{Load(path.node), path.node};
  // The path may end one hop left of the node that covers the key.
  for (int hops = 0; at.cached && hops < kCachedHopsMax; ++hops) {
    at.cached->Prefetch(kKeysPrefetchBytes);
    NoteUse(at.cached);
    const ConstNode node = View(at.cached);
    if (node.dead() || node.level() != 1) return {};
    const Turn turn = TurnAt(node, key, side);
    if (turn.below) return {};
    if (!turn.past) {
      at.child = turn.child;
      return at;
    }
    at.node = node.right();
    at.cached = at.node.is_null() ? nullptr : Load(at.node);
  }
  return {};
}

SearchCache::Level1 SearchCache::LastLevel1() const {
  RootWord at = root();
  // Images of different ages may name each other as right siblings: bound the hops.
  for (int hops = 0; at.level >= 1 && hops < kCachedHopsMax;) {
    const CachedNode* cached = Load(at.address);
    if (!cached) return {};
    const ConstNode node = View(cached);
    if (node.dead() || node.level() != at.level) return {};
    if (node.has_high()) {
      ++hops;
      at.address = node.right();
      continue;
    }
    const size_t last = node.count() - 1;
    if (at.level == 1) return {cached, at.address, last};
    at = {node.Child(last), static_cast<Level>(at.level - 1)};
  }
  return {};
}

void SearchCache::AddLeaf(const ConstNode& node, size_t i, CachedLeaves* leaves) const {
  // One child may stand in a run of entries (index/blink/README.md): read it once.
  const GlobalAddress child = node.Child(i);
  if (!leaves->empty() && leaves->back().address == child) return;
  CachedLeaf& leaf = leaves->emplace_back(CachedLeaf{child});
  if (geometry_.leaf_layout == LeafLayout::kParted) {
    leaf.fence_digest = ChildFenceDigest(node, i, &leaf.range);
  }
}

void SearchCache::LeavesFrom(std::string_view from, std::optional<std::string_view> end, size_t max,
                             CachedLeaves* leaves) const {
  leaves->clear();
  if (root().level == 0) {
    leaves->push_back({root().address});
    return;
  }
  Level1 at = FindLevel1(from, Side::kAt);
  while (at.cached) {
    const ConstNode node = View(at.cached);
    for (size_t i = at.child; i < node.count() && leaves->size() < max; ++i) {
      if (!leaves->empty() && end && node.CompareKey(i, *end) >= 0) return;
      AddLeaf(node, i, leaves);
    }
    if (leaves->size() >= max || node.right().is_null()) return;
    const CachedNode* next = Load(node.right());
    if (!next) return;
    const ConstNode next_node = View(next);
    if (next_node.dead() || next_node.level() != 1 || !next_node.LowEquals(node.high())) return;
    NoteUse(next);
    at = {next, node.right(), 0};
  }
}

void SearchCache::LeavesBefore(std::optional<std::string_view> from, std::string_view start,
                               size_t max, CachedLeaves* leaves) const {
  leaves->clear();
  if (root().level == 0) {
    leaves->push_back({root().address});
    return;
  }
  Level1 at = from ? FindLevel1(*from, Side::kBefore) : LastLevel1();
  std::string low;
  while (at.cached) {
    const ConstNode node = View(at.cached);
    for (size_t i = at.child;; --i) {
      AddLeaf(node, i, leaves);
      if (leaves->size() >= max) return;
      if (!start.empty() && node.CompareKey(i, start) <= 0) return;
      if (i == 0) break;
    }
    if (!node.has_low()) return;
    low = node.low();
    at = FindLevel1(low, Side::kBefore);
  }
}

}  // namespace farleaf::index
