// SearchCache: a compute server's copy of the search layer (the paper's SLC, 3.3.3), shared by its
// threads. It mirrors the pool: one slot for each page of each search chunk, holding the newest
// image seen of that page, trimmed to what it uses (trimmed_node.h).
//
// A stale copy is normal: it leads to a node from which moving right, or a refresh, finds the key.
// Nodes are immutable once installed and replaced whole (copy-on-write); readers take no lock.
//
// With a budget, level-1 nodes are evicted when a new one would exceed it; a search that wants one reads it
// again, which costs it a round trip. What is above level 1, a fiftieth of all or less, stays, and so does
// the node that was installed last, for the scan that goes through it. Which ones: a new node is a guest
// first, one of a few; the oldest guest goes if it was not used again, save one in eight. What stays is
// up to a clock that counts uses. So nodes that are wanted once do not drive out those that are wanted
// often.
//
// Invariants:
//   - every image in the cache was valid (checksum, versions) when it was read, and belongs to this tree;
//     behind the entries of children that were found split stand those of their right halves (LearnSplit);
//   - a slot's version never decreases while the slot is not empty, and a dead image stays until the
//     page is reused or the budget wants its room. What an evicted node is followed by may be older: it
//     is then stale, as any copy may be;
//   - a pointer read from a slot is used only until the thread's next quiescent point, hence never
//     across a co_await (dsm/epoch.h).
// Thread rule: thread-safe. Find and the like REQUIRE that the calling worker is online.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/random.h"
#include "dsm/epoch.h"
#include "dsm/region_layout.h"
#include "index/blink/cached_node.h"
#include "index/blink/geometry.h"
#include "index/blink/leaf_homes.h"
#include "index/blink/node.h"

namespace farleaf::index {

/// The root of a tree in one word of the catalog: its address, and its level in the low 6 bits
/// (pages are aligned to 64 bytes).
struct RootWord {
  GlobalAddress address;
  Level level = 0;

  uint64_t Encode() const { return address.word() | level; }
  static RootWord Decode(uint64_t word) {
    return {GlobalAddress::FromWord(word & ~uint64_t{63}), static_cast<Level>(word & 63)};
  }
  bool operator==(const RootWord&) const = default;
};

/// Which node a search wants: the one that covers the key, or the one that covers what comes just
/// before the key (low < key <= high).
enum class Side : uint8_t { kAt, kBefore };

/// The digest of the node's own fences.
uint64_t FenceDigestOf(const ConstNode& node);
/// The digest of the fences that an internal node gives the child of entry i, as FindLeaf has it.
uint64_t ChildFenceDigest(const ConstNode& node, size_t i);
/// The same of fixed8 keys, and these fences, if there are both.
uint64_t ChildFenceDigest(const ConstNode& node, size_t i, LeafRange* range);

/// A leaf that the cache names, and what it says of the leaf's fences.
struct CachedLeaf {
  GlobalAddress address;
  uint64_t fence_digest = 0;
  LeafRange range;
};
using CachedLeaves = std::pmr::vector<CachedLeaf>;

/// A parent that led to a node.
struct CachedParent {
  GlobalAddress node;
  uint64_t version = 0;  ///< that named the node
};

class SearchCache {
 public:
  /// `budget_bytes`: the most that bytes() is to be, 0 for no bound.
  SearchCache(const Geometry& geometry, TreeId tree, std::span<const dsm::RegionLayout> layouts,
              dsm::EpochDomain* epochs, uint64_t budget_bytes = 0);
  ~SearchCache();

  RootWord root() const { return RootWord::Decode(root_.load(std::memory_order_acquire)); }
  void set_root(RootWord root) { root_.store(root.Encode(), std::memory_order_release); }

  /// Where the cached nodes lead.
  struct Path {
    GlobalAddress node;  ///< a node at `level`: wanted if complete, else the first not cached
    Level level = 0;
    GlobalAddress parent;  ///< the cached node that named it; null if it is the root
    uint64_t parent_version = 0;
    bool complete = false;
    bool stale = false;  ///< a cached node did not cover the key: refresh from the root
    const CachedNode* cached = nullptr;  ///< `node`, as BeginFind has met it
  };
  Path Find(std::string_view key, Side side, Level level) const {
    Parent parent;
    return Descend(key, side, level, &parent);
  }
  /// Find(key, Side::kAt, 0) in two steps, so that searches for several keys overlap: the first ends at the level-1 node, and
  /// begins to fetch it. Between the two no coroutine is suspended.
  Path BeginFind(std::string_view key) const;
  Path EndFind(std::string_view key, const Path& begun) const {
    Parent parent;
    return DescendFrom(begun, key, Side::kAt, 0, &parent);
  }

  /// The leaf that the cached nodes name for a key, and the FenceDigest (fence_digest.h) of the fences
  /// that they give it: its separator and the next one, or the node's own fences at its ends. Entries in
  /// a run that name one child count as one. Equal to the digest of the leaf's own fences, the cache is
  /// not stale there.
  struct LeafPath : Path {
    uint64_t fence_digest = 0;  ///< 0 unless complete
    LeafRange range;            ///< of fixed8: those fences, if they are two
  };
  LeafPath FindLeaf(std::string_view key) const;

  /// Leaves, as FindLeaf has them (fences and digest of parted ones only), in key order from the one that covers
  /// `from`, or the one before `from` and those left of it (nullopt: from the last). At most `max`; fewer where
  /// the cache ends. Forward stops before a leaf whose separator is >= `end`, reverse behind one whose separator
  /// is <= `start`.
  void LeavesFrom(std::string_view from, std::optional<std::string_view> end, size_t max,
                  CachedLeaves* leaves) const;
  void LeavesBefore(std::optional<std::string_view> from, std::string_view start, size_t max,
                    CachedLeaves* leaves) const;

  /// Puts an image that ConstNode::Open accepted into its slot, unless the slot holds a newer one, or the same
  /// with nothing learned.
  void Install(GlobalAddress address, std::span<const std::byte> image);
  /// A leaf that the cached `parent` names has split since, as the leaf's image says: puts what went to its
  /// right sibling into the cached image. False: the image says nothing that fits in there.
  bool LearnSplit(GlobalAddress parent, GlobalAddress address, const ConstNode& leaf);
  /// How often something was to be learned of the cached node's children since it was read.
  uint8_t LearnedOf(GlobalAddress parent) const;
  /// The chunks that hold nodes which are, or were, cached.
  std::vector<GlobalAddress> Chunks();
  /// The version in the slot, 0 if empty.
  uint64_t VersionOf(GlobalAddress address) const;

  uint64_t nodes() const { return nodes_.load(std::memory_order_relaxed); }
  /// All memory that the cache takes: nodes as an allocator rounds them, slots and tables.
  uint64_t bytes() const {
    return table_bytes_.load(std::memory_order_relaxed) +
           node_bytes_.load(std::memory_order_relaxed);
  }
  uint64_t budget_bytes() const { return budget_bytes_; }
  /// What a further image may take before others have to go; UINT64_MAX without a budget.
  uint64_t RoomBytes() const;
  /// Nodes given up for the budget so far.
  uint64_t evictions() const { return evictions_.load(std::memory_order_relaxed); }

 private:
  using Slot = CachedNode::Slot;
  struct CachedChunk {
    CachedChunk(GlobalAddress chunk, size_t pages) : address(chunk), slots(pages) {}
    const GlobalAddress address;
    std::vector<Slot> slots;
  };
  struct CachedRegion {
    dsm::RegionLayout layout;
    int chunk_shift = 0;
    std::vector<std::atomic<CachedChunk*>> chunks;
  };

  /// The cached node, and its entry, that a descent took last.
  struct Parent {
    const CachedNode* node = nullptr;  ///< null: the root itself was wanted
    size_t entry = 0;
  };
  Path Descend(std::string_view key, Side side, Level level, Parent* parent) const {
    const RootWord top = root();
    return DescendFrom({top.address, top.level}, key, side, level, parent);
  }
  /// Which way a node leads: to the left of it, to its right, or to the child of an entry.
  struct Turn {
    bool below = false, past = false;
    size_t child = 0;
  };
  static Turn TurnAt(const ConstNode& node, std::string_view key, Side side);
  Path DescendFrom(Path path, std::string_view key, Side side, Level level, Parent* parent) const;
  const CachedNode* Load(GlobalAddress address) const;
  /// A cached level-1 node, its address, and the entry whose child covers the key that was looked for.
  struct Level1 {
    const CachedNode* cached = nullptr;  ///< null: there is none
    GlobalAddress node;
    size_t child = 0;
  };
  /// Of fixed8, where the cached nodes lead straight there: none if a node is missing, or does not cover the key.
  Level1 FindLevel1Fixed8(uint64_t key) const;
  /// FindLeaf of fixed8, the same: false, and nothing is said.
  bool FindLeafFixed8(uint64_t key, LeafPath* path) const;
  ConstNode View(const CachedNode* node) const {
    return ConstNode(geometry_, {node->image(), node->image_bytes});
  }
  void NoteUse(const CachedNode* node) const {
    if (budget_bytes_ == 0) return;
    // Two threads at once may count one use for two: what is wanted often is seen all the same.
    const uint8_t uses = node->uses.load(std::memory_order_relaxed);
    if (uses < CachedNode::kUsesMax) {
      node->uses.store(static_cast<uint8_t>(uses + 1), std::memory_order_relaxed);
    }
  }
  /// Whether what was read is to take the place of what is cached.
  bool IsNewer(const ConstNode& node, const CachedNode& cached) const;
  /// REQUIRES: install_mutex_ held.
  CachedNode* MakeNode(const ConstNode& node);
  /// Puts `fresh` in the place of `replaced`, with what is known of how often it is used.
  /// REQUIRES: install_mutex_ held.
  void Replace(Slot* slot, const CachedNode* replaced, const CachedNode* fresh);
  static void DestroyNode(const CachedNode* node);
  /// What a node takes of the budget.
  static uint64_t ChargeOf(const CachedNode* node);
  /// The slot of a page; null if the address is in no chunk. REQUIRES: install_mutex_ held.
  Slot* SlotFor(GlobalAddress address);
  /// Takes level-1 nodes other than `keep`'s out of their slots until the budget is kept, or no other is
  /// left. REQUIRES: install_mutex_ held.
  void Evict(const Slot* keep, std::vector<const CachedNode*>* evicted);
  void TakeOut(Slot* slot, const CachedNode* node, std::vector<const CachedNode*>* evicted);
  /// The cached level-1 node that leads to `key`; none if the path is not cached.
  Level1 FindLevel1(std::string_view key, Side side) const;
  /// The last one, and its last entry.
  Level1 LastLevel1() const;
  /// Adds the child of entry i, unless it is there already.
  void AddLeaf(const ConstNode& node, size_t i, CachedLeaves* leaves) const;

  Geometry geometry_;
  TreeId tree_;
  dsm::EpochDomain* epochs_;
  std::vector<std::unique_ptr<CachedRegion>> regions_;  // index: server id
  std::atomic<uint64_t> root_{0};
  const uint64_t budget_bytes_;
  std::atomic<uint64_t> nodes_{0}, node_bytes_{0}, table_bytes_{0}, evictions_{0};
  std::mutex install_mutex_;          // serialises writers of slots and chunks, guards what follows
  std::vector<CachedChunk*> chunks_;  // all there are, for the hand
  size_t hand_chunk_ = 0, hand_slot_ = 0;
  std::deque<Slot*> guests_;  // oldest first; a slot may have been emptied, or filled anew, since
  Random random_{1};
  uint64_t level1_nodes_ = 0;
};

}  // namespace farleaf::index
