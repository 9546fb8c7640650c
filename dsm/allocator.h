// Allocator: pages and blocks of pooled memory, on two levels. A chunk is taken by a CAS on its word
// in the region's chunk table, which names the owner; pages are carved from it locally. Freed pages
// go to this compute server's free list, above a watermark to a list in the pool, and come back from
// there before a new chunk is taken (RF-tree paper, 3.3.2 "Memory Management"; DESIGN: Allocation).
//
// A page class is (kind, page size, tree); pages of one class are interchangeable. Search-layer
// pages belong to one tree; leaf pages and value blocks of one size serve every tree.
//
// Every page and block carries, while it is free, the word {kFreePage, holder} where its lock word
// is: the last 8 bytes of a leaf or search page, the first 8 bytes of a value block. A page that was
// never used is all zero. So a scan of the chunks finds every page's state (index/blink/check).
//
// Layout of a search chunk: u64 change counter for each page, in page order, padded to a whole
// number of pages; then the pages. Other chunks: pages from the first byte on; what is left at the
// end is unused. (index/blink owns the meaning of the counters; page_offset() hides the rest.)
//
// Invariants:
//   - a page is in exactly one place: carved-not-yet, in use, in a member's limbo or free list, in a
//     pool list;
//   - only the chunk's owner carves it; an owner that leaves in good order records how far it had
//     carved, and another member adopts the rest by CAS;
//   - a page's version never decreases: a grant tells the version last written (0: never used).
// Thread rule: thread-safe; no lock is held across a co_await.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/result.h"
#include "dsm/member.h"
#include "dsm/op_context.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

struct PageClass {
  ChunkKind kind = ChunkKind::kUnused;  ///< kLeaf, kSearch or kValue
  uint32_t page_bytes = 0;              ///< a multiple of 64; for kValue one of ValueBlockBytes()
  uint16_t tree = 0;                    ///< kSearch only
  auto operator<=>(const PageClass&) const = default;
};

struct PageGrant {
  GlobalAddress address;
  uint64_t version = 0;  ///< last version written to this page; 0 if never used
};

/// Offset in its chunk of page `index` of a chunk of class `page_class`, and how many fit.
uint64_t PageOffsetInChunk(const PageClass& page_class, uint64_t chunk_bytes, uint64_t index);
uint64_t PagesPerChunk(const PageClass& page_class, uint64_t chunk_bytes);
/// Index of the page at `offset_in_chunk`; nullopt if no page begins there.
std::optional<uint64_t> PageIndexInChunk(const PageClass& page_class, uint64_t chunk_bytes,
                                         uint64_t offset_in_chunk);

/// The smallest value block that holds `bytes` (block header included): 128 B to chunk_bytes in
/// steps of at most a quarter. nullopt above chunk_bytes: that takes an extent.
std::optional<uint32_t> ValueBlockBytes(uint64_t bytes, uint64_t chunk_bytes);

struct AllocatorOptions {
  uint64_t grace_ms = 5;              ///< between Retire and reuse
  uint32_t local_free_pages_max = 512;  ///< per class and server; more go to the pool's list
};

class Allocator {
 public:
  /// `layouts`: one per memory server of the pool, ascending id.
  Allocator(MemberIdentity self, std::vector<RegionLayout> layouts, AllocatorOptions options);
  ~Allocator();

  /// A page on `preferred`, or, if that server is full, on another. ResourceExhausted: all are full;
  /// the message names the servers and their chunk counts.
  Task<Result<PageGrant>> Allocate(OpContext& op, PageClass page_class, ServerId preferred);
  /// Gives back a page that was granted but never linked, or a page whose unlinking is complete. Its
  /// lock word (or block word) must already say {kFreePage, self}. It is granted again after the
  /// grace period at the earliest. No round trip; an overflow to the pool's list happens in Trim.
  void Retire(const Clock& clock, PageClass page_class, PageGrant page);
  /// Moves what is above the watermark to the pool's lists. Cheap when there is nothing to do.
  Task<Status> Trim(OpContext& op);

  /// `bytes` of contiguous chunks for a value larger than a chunk. Freed at once by FreeExtent.
  Task<Result<GlobalAddress>> AllocateExtent(OpContext& op, uint64_t bytes, ServerId preferred);
  Task<Status> FreeExtent(OpContext& op, GlobalAddress address, uint64_t bytes);

  /// A redo chunk on `server` for this member (claimed on the first call).
  Task<Result<GlobalAddress>> RedoChunk(OpContext& op, ServerId server);

  /// Where the next leaf goes: round-robin over the servers, weighted so that the numbers of pages
  /// granted here stay within 10 % of each other. `left`: a server that is preferred while balance
  /// allows (a right sibling beside its left needs one round trip less).
  ServerId NextServer(std::optional<ServerId> left);

  /// Returns every free page to the pool's lists, releases the redo chunks and leaves partly carved
  /// chunks for adoption. Nothing may be allocated afterwards.
  Task<Status> ReturnAll(OpContext& op);

  std::span<const RegionLayout> layouts() const { return layouts_; }
  const RegionLayout& layout(ServerId server) const;

 private:
  struct State;
  MemberIdentity self_;
  std::vector<RegionLayout> layouts_;
  AllocatorOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace farleaf::dsm
