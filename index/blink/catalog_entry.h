// What writing the catalog takes: its lock, and an entry's bytes (catalog.h).
//
// Thread rule: thread-safe; functions only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dsm/pool.h"
#include "index/blink/catalog.h"

namespace farleaf::index {

using dsm::Batch;

using CatalogEntry = std::array<std::byte, dsm::kCatalogEntryBytes>;
inline constexpr uint64_t kCatalogStateTree =
    1;  ///< an entry's first word; the root word is the second
inline constexpr size_t kCatalogRootAt = 8;
/// How often something that others wait for is tried again where connections break, ever more slowly: for a
/// quarter of a second, besides what the attempts take.
inline constexpr int kCatalogAttemptsMax = 8;

CatalogEntry EncodeCatalogEntry(const TreeInfo& info, uint64_t root_word);

/// Geometry::digest_key of all trees of the pool: Mix64 of the incarnation of the memory server that has the catalog,
/// which is drawn at random and lasts as long as the catalog does.
uint64_t DigestKeyOf(const dsm::Pool& pool);

/// A member's lock words name slots of its redo area, so it claims one on every memory server before
/// it opens a tree. No round trip after the first time.
Task<Status> ClaimRedoAreas(OpContext& op, dsm::Pool& pool);

/// DeadlineExceeded: somebody else has it for long. After any failure it is not held, and undone as far as
/// it may have been had.
Task<Status> LockCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word);
/// The lock is let go, or an attempt at it whose outcome is unknown undone. A swap that succeeds is the
/// last word: this worker has a connection then on which nothing of earlier attempts can land any more,
/// and nobody is ever given this word again. Where none succeeds, the lock is this member's to settle.
Task<void> ReleaseCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word);

}  // namespace farleaf::index
