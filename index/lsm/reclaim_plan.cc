#include "index/lsm/reclaim_plan.h"

#include <algorithm>

namespace farleaf::index::lsm {

namespace {

bool CoversAll(const std::vector<RangeDelete>& fragments, const TableRef& ref) {
  const RangeDelete* const range = NewestCovering(fragments, ref.first(), kSequenceMax);
  return range && ref.file->info().largest < range->end;
}

/// Of keys and values, in the table or in the value log.
uint64_t HeldBytes(const TableFile& file) { return file.info().content_bytes + file.named_bytes(); }

}  // namespace

// While a snapshot is open a range delete may be newer than it, and a deletion may be what it sees: then these have to wait. What has expired
// need not, since `now_ms` is no later than the snapshot's time.
std::optional<DeadTable> ReclaimPlan::LookAt(const Version& version, size_t run,
                                             const TableRef& ref) const {
  const TableInfo& info = ref.file->info();
  const bool behind_all = run + 1 == version.runs.size();
  DeadTable dead{version.runs[run].place, info.id()};
  const bool may_be_whole = !oldest && ref.from.empty();
  if (!oldest) {
    for (size_t newer = 0; newer < run; ++newer) {
      if (!CoversAll(version.runs[newer].range_deletes, ref)) continue;
      dead.whole = may_be_whole;
      return dead;
    }
  }
  const uint64_t expired = info.expiry.ExpiredBytes(now_ms);
  const bool deletes_go = behind_all && (!oldest || info.sequence_max <= *oldest);
  const uint64_t deletes = deletes_go ? info.deletes : 0;
  const bool enough = expired > 0 && 2 * expired >= HeldBytes(*ref.file);
  if (!enough && (deletes == 0 || 2 * deletes < info.entries)) return std::nullopt;
  // Of tables of old it is not known.
  const bool known = expired > 0 && expired == info.expiry.all_bytes();
  const bool all_expired = info.expiring == 0 || known;
  dead.whole = behind_all && may_be_whole && all_expired && deletes + info.expiring == info.entries;
  return dead;
}

std::vector<DeadTable> ReclaimPlan::DeadTables(const Version& version) const {
  std::vector<DeadTable> tables;
  uint64_t read = 0;
  size_t whole = 0;
  for (size_t run = version.runs.size(); run-- > 0;) {
    const Run& each = version.runs[run];
    if (each.kept || each.place.kind == RunKind::kSinking) continue;
    if ((levels_passed >> each.place.level & 1) != 0) continue;
    for (const TableRef& ref : each.tables) {
      const auto dead = LookAt(version, run, ref);
      if (!dead || tables_passed.contains(dead->table)) continue;
      whole += dead->whole;
      if (!dead->whole) read += ref.file->info().bytes;
      if (whole > kWholeMax || (read > kReadBytes && !tables.empty())) return tables;
      tables.push_back(*dead);
    }
  }
  return tables;
}

// A flush costs what it would cost later, and one more run until the next merge: so a good part of a memtable is to be dead, while others write.
bool ReclaimPlan::FlushPays(const Memtable& memtable, const Version& version, bool idle) const {
  const uint64_t expired = memtable.ExpiredBytes(now_ms);
  if (expired > 0 && expired >= memtable_bytes / (idle ? 64 : 4)) return true;
  if (!memtable.has_ranges() || oldest) return false;
  const std::vector<RangeDelete> fragments = Fragments(memtable.Ranges(), {});
  uint64_t covered = 0;
  for (const Run& run : version.runs) {
    if (run.kept || run.place.kind == RunKind::kSinking) continue;
    for (const TableRef& ref : run.tables) {
      if (CoversAll(fragments, ref)) covered += HeldBytes(*ref.file);
    }
  }
  return covered > 0 && covered >= memtable_bytes / (idle ? 64 : 1);
}

}  // namespace farleaf::index::lsm
