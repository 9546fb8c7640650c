// CheckPool: validates every tree of a pool, and accounts for every page of it.
//
// It reads the chunk tables and then all chunks in use, a window of whole chunks a round trip, and
// keeps a summary of each page in use (page_survey.h: some 200 bytes a page). From these each tree is
// walked from its root word, level by level along the right siblings (tree_walk.h):
//   - each image: checksum, both versions, tree, level, alive, Validate(); change counters;
//   - each level: the fences chain from "no low" to "no high" without gap (README.md, invariant 3);
//   - each entry of a parent names a live node of the level below with low <= separator (4), and
//     entries that name one child stand together. A node without a separator of its own is
//     counted, not an error: moving right finds it, and whoever does may complete it;
//   - each out-of-line value: block, unique id, length, CRC;
//   - each page in the pool's free lists is free, and listed once;
//   - each page in use is reached exactly once, by exactly one tree; what is reached is not free; what
//     is in use and not reached is leaked. Where a level's chain breaks, the pages of that tree are
//     counted as unjudged instead.
//
// It may run beside writers. A page that is locked or torn is read again for a while. Whatever is
// found makes the whole check run again, and only what two successive runs found is reported. On a
// quiescent pool the findings are exact; beside writers that keep changing one place, a finding
// there may still be false.
//
// Thread rule: a coroutine of one worker; it only reads, so that an observer can run it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/address.h"
#include "dsm/pool.h"
#include "dsm/region_layout.h"
#include "index/blink/catalog.h"

namespace farleaf::index {

struct CheckOptions {
  uint32_t findings_max = 100;                 ///< described at most; all are counted
  uint64_t window_bytes = uint64_t{32} << 20;  ///< read in one round trip; at least one chunk
  uint32_t looks_max = 6;  ///< at a page that is locked or torn, 1 ms to 32 ms apart
  uint32_t runs_max = 3;   ///< of the whole check while anything is found
};

enum class FindingKind : uint8_t {
  kPage,       ///< an image that fails its checksum, or cannot be a node
  kNode,       ///< contents in disorder
  kLock,       ///< a lock that stays
  kChain,      ///< root, siblings, fences, level, tree
  kSeparator,  ///< an entry of an internal node
  kValue,      ///< an out-of-line value
  kOwnership,  ///< reached twice, or free although reached
  kLeak,       ///< in use but not reached
  kCounter,    ///< a search page's change counter differs from its version
  kChunk,      ///< the chunk table
  kFreeList,   ///< a free list of the pool, or what it names
};
inline constexpr size_t kFindingKinds = 11;
std::string_view FindingKindName(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::kPage;
  dsm::GlobalAddress address;  ///< of the page; null: of a word of the catalog
  std::string text;            ///< names the page and what is wrong
};

/// What was found: all of it counted, the first findings_max described.
class Findings {
 public:
  explicit Findings(uint32_t described_max) : described_max_(described_max) {}
  void Add(FindingKind kind, dsm::GlobalAddress address, std::string text);
  uint64_t count() const { return count_; }
  uint64_t count(FindingKind kind) const { return by_kind_[static_cast<size_t>(kind)]; }
  const std::vector<Finding>& described() const { return described_; }
  /// Those of this run that `earlier`, the run before, had too. Where not all are described nothing
  /// is left out.
  Findings AlsoIn(const Findings& earlier) const;

 private:
  uint32_t described_max_;
  uint64_t count_ = 0;
  std::array<uint64_t, kFindingKinds> by_kind_{};
  std::vector<Finding> described_;
};

struct LevelReport {
  uint64_t nodes = 0;
  uint64_t entries = 0;
  uint64_t used_bytes = 0;          ///< by entries
  uint64_t capacity_bytes = 0;      ///< for entries
  uint64_t missing_separators = 0;  ///< nodes without an entry of their own in the level above
  double mean_fill() const {
    return capacity_bytes == 0 ? 0 : static_cast<double>(used_bytes) / capacity_bytes;
  }
};

struct TreeReport {
  TreeInfo info;
  std::vector<LevelReport> levels;  ///< from the leaves up; as many as the tree is high
  uint64_t values_out_of_line = 0;
  uint64_t value_block_bytes = 0;  ///< of blocks and extents, whole
  uint64_t unjudged_pages = 0;     ///< in use, of this tree, behind a break in a chain
  bool chains_whole = true;

  uint64_t keys() const { return levels.empty() ? 0 : levels[0].entries; }
  uint64_t leaves() const { return levels.empty() ? 0 : levels[0].nodes; }
  size_t height() const { return levels.size(); }
  uint64_t missing_separators() const;
  /// Pages and value blocks that the tree reaches.
  uint64_t pool_bytes() const;
  double pool_bytes_per_key() const {
    return keys() == 0 ? 0 : static_cast<double>(pool_bytes()) / keys();
  }
};

struct PageCounts {
  uint64_t in_use = 0;
  uint64_t free = 0;
  uint64_t never_used = 0;
};

struct ServerReport {
  dsm::RegionLayout layout;
  std::array<uint64_t, dsm::kChunkKindMax + 1> chunks{};   ///< by ChunkKind
  std::array<PageCounts, dsm::kChunkKindMax + 1> pages{};  ///< by ChunkKind; an extent is one page
  uint64_t listed_free_pages = 0;  ///< in the pool's lists; other free pages are held by members
  /// Free in nobody's name, and in no list. On a quiescent pool nobody will use them again, unless a
  /// RecoverMember finds them.
  uint64_t unlisted_free_pages = 0;
  /// Never used, and nobody carves their chunk, or will from so far in front. On a quiescent pool they are
  /// lost.
  uint64_t skipped_pages = 0;
  /// Owned, or held free, by a compute server that left without returning them; save values' extents.
  uint64_t chunks_of_the_gone = 0, free_pages_of_the_gone = 0;
};

struct CheckReport {
  std::vector<TreeReport> trees;
  std::vector<ServerReport> servers;
  Findings findings{0};
  uint32_t runs = 0;

  bool ok() const { return findings.count() == 0; }
  uint64_t keys() const;
  /// Of chunks that are taken, for whatever use.
  uint64_t chunk_bytes_taken() const;
};

/// A failure says that the check could not be made (a memory server is lost, the deadline came);
/// what the check finds is in the report.
Task<Result<CheckReport>> CheckPool(OpContext& op, dsm::Pool& pool, CheckOptions options);

}  // namespace farleaf::index
