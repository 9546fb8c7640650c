// Page scan: what every chunk and page of a memory server is used for, read from the pool in large
// READs. A checker sets this beside what its trees reach; the accounting of free pages needs nothing
// else.
//
// The scan takes no locks. Its answer is exact if nothing changes meanwhile; on a pool in use each
// word is right for some moment of the scan.
//
// Thread rule: coroutines of one worker; the visitor is called on its thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dsm/address.h"
#include "dsm/op_context.h"
#include "dsm/page_class.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"

namespace farleaf::dsm {

enum class ChunkUse : uint8_t {
  kFree,
  kPages,       ///< pages of `page_class` follow, each in a call of OnPage
  kClearing,    ///< claimed for pages by someone who has not cleared it yet; no page is used
  kExtent,      ///< one call of OnPage follows; `run_chunks` chunks from here on
  kExtentRest,  ///< a further chunk of the extent before it
  kRedo,
  kOrphan,   ///< a part of an extent that is not whole: its owner died between two steps
  kInvalid,  ///< a word that this program does not understand
};

struct ScannedChunk {
  GlobalAddress address;
  ChunkWord word;
  uint64_t raw_word = 0;
  ChunkUse use = ChunkUse::kFree;
  std::optional<PageClass> page_class;  ///< kPages, kClearing
  uint64_t run_chunks = 1;              ///< kExtent
};

enum class PageState : uint8_t {
  kNeverUsed,  ///< carved or not, but never written: lock word and version are 0
  kFree,  ///< the lock word says so; `lock.owner` is the holder, 0: the pool or a taker from it
  kInUse,
};

struct ScannedPage {
  GlobalAddress address;
  PageClass page_class;  ///< of an extent: {kExtent, 0}
  PageState state = PageState::kNeverUsed;
  uint64_t lock_word = 0;  ///< the block word, of a value block or an extent
  LockWord lock;           ///< lock_word decoded, of a leaf or search page or what is free
  uint64_t version = 0;    ///< of a page of a tree
  /// The page as it was read (torn, if it was being written); the first 64 bytes of an extent.
  /// Valid during the call only.
  std::span<const std::byte> image;
};

/// A page named by a free list of the pool.
struct ListedPage {
  GlobalAddress address;
  PageClass page_class;
  uint64_t version = 0;
  uint32_t list = 0;
};

class PageVisitor {
 public:
  virtual ~PageVisitor() = default;
  virtual void OnChunk(const ScannedChunk& chunk) = 0;  ///< every chunk, in ascending order
  virtual void OnPage(const ScannedPage& page) = 0;     ///< behind its chunk, in ascending order
};

/// Bytes of one READ of the scan, unless a single page is longer.
inline constexpr uint64_t kScanReadBytes = 1 << 20;

/// All chunks and pages of one memory server.
Task<Status> ScanPages(OpContext& op, const RegionLayout& layout, PageVisitor& visitor);

class ListVisitor {
 public:
  virtual ~ListVisitor() = default;
  virtual void OnListedPage(const ListedPage& page) = 0;
};

/// The pages of the class's list, from its head as it is now. Corruption: as of ScanFreeLists.
Task<Status> ScanFreeList(OpContext& op, const RegionLayout& layout, const PageClass& page_class,
                          ListVisitor& visitor);

/// All pages in one memory server's free lists. Corruption: a list that cannot be followed to its
/// end; on a pool in use that may also be because it changed.
Task<Status> ScanFreeLists(OpContext& op, const RegionLayout& layout, ListVisitor& visitor);

}  // namespace farleaf::dsm
