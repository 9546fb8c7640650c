// Catalog: the named trees of a pool, in the catalog area of memory server 0.
//
// Entry 0 is not a tree: its first word locks the catalog while a tree is created, its second one names
// who recovers a member of the pool (recover_member.h); both are LockWords that are given once.
// Entry i (1..127) is tree i, 512 bytes:
//
//   offset  bytes  what
//   0       8      state: 0 unused, 1 a tree
//   8       8      RootWord (search_cache.h): changed by CAS when the root grows or shrinks
//   16      4      CRC32C of bytes [20, 32 + name length)
//   20      1      layout
//   21      1      name length, 1..255
//   22      1      format of the entry and of the tree's pages: 4; another one is refused
//   23      1      leaf layout: 1 sorted, 2 parted
//   24      2      leaf bytes: of a leaf's page
//   26      2      node bytes: of an internal node's page
//   28      2      key bytes max
//   30      2      inline value bytes max
//   32      ...    name
//
// Thread rule: thread-safe; functions only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/pool.h"
#include "index/blink/geometry.h"
#include "index/range_index.h"

namespace farleaf::index {

inline constexpr TreeId kTreeIdMax = dsm::kCatalogEntries - 1;
inline constexpr size_t kTreeNameBytesMax = 255;
inline constexpr uint64_t kRecoveryClaimOffset = dsm::kCatalogOffset + 8;

struct TreeInfo {
  TreeId id = 0;
  std::string name;
  Geometry geometry;

  /// Of the root word, on the catalog server.
  uint64_t root_word_offset() const {
    return dsm::kCatalogOffset + uint64_t{id} * dsm::kCatalogEntryBytes + 8;
  }
};

/// AlreadyExists if the name is taken; ResourceExhausted if the catalog or the pool is full;
/// DeadlineExceeded, naming the compute server, if another holds the catalog's lock for too long.
Task<Result<TreeInfo>> CreateTree(OpContext& op, dsm::Pool& pool, std::string name,
                                  Geometry geometry);
/// A word for the catalog's lock, or for a claim: it names this member, and is never given again.
uint64_t NewCatalogWord(dsm::Pool& pool);
/// Lets go the catalog's lock where this member has lost sight of it, since connections broke, and this
/// worker can (dsm/unresolved_locks.h). Ok: nothing is left for it. No round trip if nothing was.
Task<Status> SettleCatalogLock(OpContext& op, dsm::Pool& pool);
/// NotFound, listing the names there are, if there is no such tree.
Task<Result<TreeInfo>> OpenTree(OpContext& op, dsm::Pool& pool, std::string name);
Task<Result<std::vector<TreeInfo>>> ListTrees(OpContext& op, dsm::Pool& pool);

}  // namespace farleaf::index
