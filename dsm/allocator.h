// Allocator: pages and blocks of pooled memory, on two levels. A chunk is taken by a CAS on its
// word in the region's chunk table, which names the owner; pages are carved from it locally. Freed
// pages go to this compute server's free list, above a watermark to a list in the pool, and come
// back from there before a new chunk is taken (RF-tree paper, 3.3.2 "Memory Management"; DESIGN:
// Allocation).
//
// Every page and block carries, while it is free, the word {kFreePage, holder} where its lock word
// is: the last 8 bytes of a leaf or search page, the first 8 bytes of a value block. A page that
// was never used is all zero. So a scan of the chunks finds every page's state (dsm/page_scan.h).
// The holder is 0 in the pool's lists, and whoever takes pages from there writes its name on them.
//
// The cost of a grant: none while this compute server has a page at hand; else 3 or 4 round trips
// bring a bundle of up to 61 pages from the pool's list, or 3 or 4 a new chunk.
//
// Invariants:
//   - a page is in exactly one place: carved-not-yet, in use, in a member's limbo or free list, in a
//     pool list;
//   - only the chunk's owner carves it; an owner that leaves in good order records how far it had
//     carved, and another member adopts the rest by CAS; a chunk that is carved up loses its owner
//     when all its pages have been written: a page that was not bears a name by its chunk alone;
//   - a page's version never decreases: a grant tells the version last written (0: never used).
//   - after a batch whose effect is unknown the pages it was to move are given up (a scan finds
//     them), never held twice. Who has given up something does not leave in good order: it is recovered
//     like one that died (index/blink/recover_member.h), which finds it.
// Thread rule: thread-safe; no lock is held across a co_await.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/member.h"
#include "dsm/op_context.h"
#include "dsm/page_class.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

struct FreeBundle;  // dsm/pages/free_bundle.h
struct FreePage;

struct PageGrant {
  GlobalAddress address;
  uint64_t version = 0;  ///< last version written to this page; 0 if never used
};

struct AllocatorOptions {
  uint64_t grace_ms = 5;  ///< between Retire and reuse
  /// Free pages that are kept, per class and server; more go to the pool's list, which costs round trips.
  /// Those that wait for the end of the grace period are among them: what replaces 200,000 values a second
  /// has 1,000 of those.
  uint32_t local_free_pages_max = 65'536;
  /// The same, in bytes; less in small regions, but 16 pages stay in any case.
  uint64_t local_free_bytes_max = uint64_t{8} << 20;

  /// The lesser of the two, in pages.
  size_t FreePagesMax(const PageClass& page_class, uint64_t region_bytes) const {
    constexpr uint64_t kSmallRegionBytes = uint64_t{128} << 10;
    const uint64_t bytes =
        std::min(local_free_bytes_max, std::max(region_bytes / 64, kSmallRegionBytes));
    const uint64_t by_bytes = std::max<uint64_t>(bytes / page_class.page_bytes, 16);
    return static_cast<size_t>(std::min<uint64_t>(local_free_pages_max, by_bytes));
  }
};

class Allocator {
 public:
  /// `layouts`: one per memory server of the pool, ids 0, 1, 2, …
  Allocator(MemberIdentity self, std::vector<RegionLayout> layouts, AllocatorOptions options);
  ~Allocator();
  Allocator(const Allocator&) = delete;

  /// A page on `preferred`, or, if that server is full, on another. ResourceExhausted: all are
  /// full; the message names the servers and their chunk counts. InvalidArgument: an observer
  /// asked. Waits for the end of a grace period if only that keeps a page from being granted.
  Task<Result<PageGrant>> Allocate(OpContext& op, PageClass page_class, ServerId preferred);
  /// Of every page granted, unless it is retired: all of its first write has landed, lock word or block
  /// word included. Until then who dies has left it in its chunk's name alone.
  void NoteWritten(PageClass page_class, GlobalAddress address);
  /// Gives back a page that was granted but never linked, or a page whose unlinking is complete.
  /// Its lock word (or block word) must already say {kFreePage, self}. It is granted again after
  /// the grace period at the earliest. No round trip; an overflow to the pool's list happens in
  /// Trim.
  void Retire(const Clock& clock, PageClass page_class, PageGrant page);
  /// Moves what is above the watermark to the pool's lists. Cheap when there is nothing to do.
  Task<Status> Trim(OpContext& op);

  /// `bytes` of contiguous chunks for a value larger than a chunk (or than any value block). Freed
  /// at once by FreeExtent, which any member may call.
  Task<Result<GlobalAddress>> AllocateExtent(OpContext& op, uint64_t bytes, ServerId preferred);
  Task<Status> FreeExtent(OpContext& op, GlobalAddress address, uint64_t bytes);

  /// This member's redo slots on `server`, RedoAreaSlots() of them, all zero when they are claimed,
  /// which happens on the first call.
  Task<Result<GlobalAddress>> RedoArea(OpContext& op, ServerId server);

  /// Where the next leaf goes: round-robin over the servers, weighted so that the numbers of leaves
  /// granted here (less those retired) stay within 10 % of each other, or within 2 leaves. A
  /// server that was found full is left out. `left`: a server that is preferred while balance
  /// allows (a right sibling beside its left needs one round trip less).
  ServerId NextServer(std::optional<ServerId> left);

  /// Something of the pool stands in this member's name, or was taken by it, and it does not know what or
  /// where: only a recovery of this member finds it.
  void GiveUp();
  bool has_given_up() const;

  /// Returns every free page to the pool's lists, releases the redo areas and leaves partly carved
  /// chunks for adoption. Waits for the last grace period. Nothing may be allocated afterwards.
  Task<Status> ReturnAll(OpContext& op);

  std::span<const RegionLayout> layouts() const { return layouts_; }
  const RegionLayout& layout(ServerId server) const;

 private:
  struct State;       // dsm/pages/allocator_state.h
  struct ClassPages;  // what is here of one class
  enum class Supply : uint8_t { kFound, kFull };

  ClassPages& PagesOf(const PageClass& page_class);
  PageGrant Granted(ClassPages& pages, ServerId server, uint64_t offset, uint64_t version);
  ChunkWord OwnedWord(const ClassPages& pages) const;

  Task<Result<PageGrant>> AllocateRemote(OpContext& op, ClassPages& pages, ServerId preferred);
  Task<Result<std::optional<PageGrant>>> AllocateOn(OpContext& op, ClassPages& pages,
                                                    ServerId server, bool ask_full);
  Task<Result<Supply>> FetchMore(OpContext& op, ClassPages& pages, ServerId server);
  Task<Result<Supply>> TakeChunk(OpContext& op, ClassPages& pages, ServerId server);
  Task<Status> SealCarvedUp(OpContext& op, ClassPages& pages, ServerId server);
  // dsm/pages/pool_lists.cc:
  Task<Result<Supply>> PopBundle(OpContext& op, ClassPages& pages, ServerId server);
  /// Writes this member's name to bundle.others; those that somebody else has taken are left out.
  Task<Status> NameHolder(OpContext& op, ClassPages& pages, ServerId server, FreeBundle& bundle);
  Task<Status> PushBundle(OpContext& op, ClassPages& pages, ServerId server,
                          std::vector<FreePage> free_pages);
  Task<Status> PushSurplus(OpContext& op, ClassPages& pages, ServerId server, size_t keep);
  Task<Status> ReturnClass(OpContext& op, ClassPages& pages, ServerId server);
  // dsm/pages/whole_chunks.cc:
  Task<Status> ReleaseRedoArea(OpContext& op, ServerId server);
  Status PoolIsFull() const;

  MemberIdentity self_;
  std::vector<RegionLayout> layouts_;
  AllocatorOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace farleaf::dsm
