#include "index/lsm/compaction_plan.h"

#include <algorithm>

namespace farleaf::index::lsm {

// Not below a sixteenth of a memtable: a time of tiny flushes, of large values, may not make all levels sink at once.
uint64_t CompactionPlan::TargetBytes(uint8_t level) const {
  const uint64_t flush = flush_bytes != 0 ? flush_bytes : memtable_bytes / 2;
  uint64_t bytes = kFreshFew * std::max(flush, memtable_bytes / 16);
  for (int i = 0; i <= level; ++i) bytes *= growth_factor;
  return bytes;
}

// A growing run that is full is left alone, to become the sinking one, as soon as there is none. While a merge of the sinking run
// goes on there is one, also when all of it is used up already: what the merge's edits say of a sinking run is said of that one.
bool CompactionPlan::Sinks(const Version& version, uint8_t level) const {
  const Run& growing = version.run({level, RunKind::kGrowing});
  if (level + 1u == kLevelsMax || !version.run({level, RunKind::kSinking}).empty()) return false;
  if ((merging >> (level + 1) & 1) != 0) return false;
  return growing.bytes >= TargetBytes(level) || (eager && !growing.empty());
}

// Not what is at the bottom: of that nothing can be dropped.
bool CompactionPlan::SinksForRoom(const Version& version, uint8_t level) const {
  const Run& growing = version.run({level, RunKind::kGrowing});
  if (!full || growing.empty() || version.NothingBelow(level)) return false;
  CompactionPlan soon = *this;
  soon.eager = true;
  return soon.Sinks(version, level);
}

bool CompactionPlan::IsDue(const Version& version, uint8_t into) const {
  if (into > 0) {
    return !version.run({static_cast<uint8_t>(into - 1), RunKind::kSinking}).empty();
  }
  if (version.fresh >= kFreshMany || ((eager || full) && version.fresh > 0)) return true;
  uint64_t bytes = 0, value_bytes = 0;
  for (size_t i = 0; i < version.fresh; ++i) {
    bytes += version.runs[i].bytes;
    value_bytes += version.runs[i].value_bytes;
  }
  const uint64_t written_anew = version.run({0, RunKind::kGrowing}).bytes;
  if (version.fresh >= kFreshFew && bytes >= written_anew / 2) return true;
  // Where entries are few and values large, a merge costs little, and tells of much garbage.
  return static_cast<double>(value_bytes) >=
         Memtable::kValuesToBytes * static_cast<double>(memtable_bytes);
}

std::vector<RunPlace> SourcesOf(const Version& version, uint8_t into) {
  std::vector<RunPlace> sources;
  if (into == 0) {
    for (size_t i = 0; i < version.fresh; ++i) sources.push_back(version.runs[i].place);
  } else {
    sources.push_back({static_cast<uint8_t>(into - 1), RunKind::kSinking});
  }
  sources.push_back({into, RunKind::kGrowing});
  return sources;
}

}  // namespace farleaf::index::lsm
