// MemberHoldings: what a scan of a memory server finds in the name of one compute server, and the return
// of it when that one is gone.
//
// REQUIRES, of the return: the member is fenced at that memory server, no lock word there is its, and
// nobody else returns its things at the same time (index/blink/recover_member.h claims that).
//
// Returned pages go to the allocator of who returns them, by CAS from the word that names the dead member
// to one that names the returner: if that one dies too, they are found in its name.
//
// Thread rule: coroutines of one worker.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dsm/allocator.h"
#include "dsm/member.h"
#include "dsm/op_context.h"
#include "dsm/page_class.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

struct HeldPage {
  GlobalAddress address;
  PageClass page_class;
  uint64_t word = 0;  ///< its lock word, or block word
  uint64_t version = 0;
};

struct MemberHoldings {
  struct Chunk {
    uint64_t chunk = 0;
    ChunkWord word;
    uint64_t carved = 0;  ///< pages up to the last one that was ever used
    uint64_t pages = 0;
  };
  std::vector<HeldPage> free_pages;  ///< they say so
  /// Free in nobody's name: in a list of the pool, or on the way from or to one, perhaps of the member.
  std::vector<HeldPage> nobodys;
  std::vector<HeldPage> unused_pages;  ///< carved, perhaps, and never used; of its chunks
  std::vector<HeldPage>
      unlocked;  ///< in use, of its chunks, and not locked: in a tree, or given up
  /// Value blocks that it wrote, or may have been about to free, and extents that it claimed.
  std::vector<HeldPage> blocks;
  std::vector<HeldPage> free_extents;  ///< extents whose block word says that it has freed them
  std::vector<Chunk> chunks;           ///< that it carves
  std::vector<Chunk> whole_chunks;     ///< redo areas, and parts of extents that are not whole
  uint64_t redo_areas = 0;
};

/// Value blocks, and their unique ids.
using BlockNames = std::map<GlobalAddress, uint64_t>;
/// The blocks that the member may have been about to free: those that its redo records name. It may have
/// freed them, or not have come to write what the record is about.
Task<Status> ScanRedoBlocks(OpContext& op, const RegionLayout& layout, MemberIdentity member,
                            BlockNames* blocks);

/// `named_blocks`: taken for the member's, if they hold these values, whoever wrote them.
Task<Result<MemberHoldings>> ScanHoldings(OpContext& op, const RegionLayout& layout,
                                          MemberIdentity member, const BlockNames& named_blocks);

/// The word by which `self` holds a free page.
inline uint64_t FreeWordOf(const MemberIdentity& self) {
  return LockWord{.state = LockWord::State::kFreePage,
                  .owner = self.id,
                  .incarnation = self.short_incarnation()}
      .Encode();
}
/// Leaves only those that no free list of the pool names. The number of those of which that is not known,
/// since a list changed each time that it was read: they are left out too.
Task<Result<uint64_t>> RemoveListed(OpContext& op, const RegionLayout& layout,
                                    std::vector<HeldPage>* pages);
/// Swaps each page's word from what was found to one that says free and names `self`. Those where that
/// succeeded.
Task<Result<std::vector<HeldPage>>> TakePages(OpContext& op, MemberIdentity self,
                                              const std::vector<HeldPage>& pages);
/// Leaves the member's partly carved chunks for adoption, and frees its whole ones.
Task<Status> ReturnChunks(OpContext& op, const RegionLayout& layout,
                          const MemberHoldings& holdings);

}  // namespace farleaf::dsm
