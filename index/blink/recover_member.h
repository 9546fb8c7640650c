// RecoverMember: what a compute server that is gone has left in a pool, found by a scan and returned.
//
// REQUIRES, of all of it: the member is fenced at every memory server of the pool.
//
// Thread rule: coroutines of one worker.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/member.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// What tells the size of a page: the leaves' level, or one of the others.
Level LowestLevelOf(const dsm::PageClass& page_class);
bool MayBeOf(const TreeInfo& tree, const dsm::PageClass& page_class);
/// Of a page that was half-written the version's first place may hold a later one, by a write or two.
inline constexpr uint64_t kUnseenVersionsMax = 4;

/// Takes over every lock that `dead` holds in pages of these trees, which are all trees of the pool, and
/// finishes what it had begun under them. Returns how many there were. DeadlineExceeded: some are left.
Task<Result<uint64_t>> RecoverLocks(OpContext& op, dsm::Pool& pool,
                                    std::span<BlinkTree* const> trees, dsm::MemberIdentity dead);

/// What was returned.
struct MemberRecovered {
  uint64_t locks = 0;           ///< taken over
  uint64_t free_pages = 0;      ///< that it held, pages and blocks
  uint64_t unused_pages = 0;    ///< of its chunks, that it had not written yet
  uint64_t given_up_pages = 0;  ///< written, perhaps in part, and in no tree
  uint64_t value_blocks = 0;    ///< that no leaf names
  uint64_t extents = 0;         ///< of them, those of whole chunks
  uint64_t chunks = 0;          ///< left to be carved on by others
  uint64_t redo_areas = 0;
  std::array<std::pair<std::string_view, uint64_t>, 8> Counts() const {
    return {{{"locks", locks},
             {"free_pages", free_pages},
             {"unused_pages", unused_pages},
             {"given_up_pages", given_up_pages},
             {"value_blocks", value_blocks},
             {"extents", extents},
             {"chunks", chunks},
             {"redo_areas", redo_areas}}};
  }
  bool claim_taken_over = false;  ///< of somebody who died at a recovery
  bool was_member = false;  ///< false: it had left, or was recovered before, and nothing was done
};

struct RecoverMemberOptions {
  TreeOptions tree;
  /// What nothing names, a value block or a free page, may be about to be named by a member that is alive:
  /// one who has just overwritten the value, or is taking the page from a list of the pool. It is looked
  /// at again after so long, which is to be longer than any round trip, and than the lease.
  uint64_t settle_ms = 10'000;
  std::function<void(const std::string&)> progress;  ///< may be empty; a line each
  std::function<bool()> cancelled;                   ///< may be empty; asked while it waits
};

/// Returns all that `dead`, the newest incarnation under its id, holds in the pool, and gives its id back.
/// Unavailable: a memory server has not cut it off (yet). One member of the pool does this at a time; the
/// others wait. If it fails half-way, or who runs it dies, it is run again, by anybody.
Task<Result<MemberRecovered>> RecoverMember(OpContext& op, dsm::Pool& pool,
                                            dsm::MemberIdentity dead, RecoverMemberOptions options);

}  // namespace farleaf::index
