// StoreState: what the manifest says of a store: which segments there are, and what for. Edits change it.
//
// An edit is what becomes true at once: one record of the manifest (manifest.h). The state itself, too, is
// written as an edit of an empty one.
//
// Thread rule: value types.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "index/lsm/range_deletes.h"
#include "index/lsm/table_info.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

/// Corruption: an edit that the state it is applied to contradicts.
inline Status Misfit(const std::string& what) { return Status::Corruption("manifest: " + what); }

/// L1 is level 0 here. With a growth factor of 4 and memtables of 64 MiB the last one holds 4 TiB.
inline constexpr size_t kLevelsMax = 8;

/// kFresh, of level 0 only: what a flush has made of a memtable.
enum class RunKind : uint8_t { kGrowing = 0, kSinking = 1, kFresh = 2 };
std::string_view NameOf(RunKind kind);

struct RunPlace {
  uint8_t level = 0;
  RunKind kind = RunKind::kGrowing;
  /// kFresh: the last sequence of its memtable, by which it is told from the others: the higher, the newer. Else 0.
  Sequence through = 0;
  auto operator<=>(const RunPlace&) const = default;
};
constexpr RunPlace FreshPlace(Sequence through) { return {0, RunKind::kFresh, through}; }

/// Keys in [start, end).
struct KeyRange {
  std::string start, end;
  bool operator==(const KeyRange&) const = default;
};

/// Names a table for as long as the store lives: its first segment.
using TableId = SegmentId;

struct TableState {
  TableInfo table;
  std::string from;  ///< what is in front of this key does not count; empty: all counts
};
struct RunTables {
  std::vector<TableState> tables;          ///< ascending
  std::vector<RangeDelete> range_deletes;  ///< fragments
};
/// What was set aside, since part of a table cannot be read (README.md, Damage): all that a run held of some ranges. In front of
/// it stands whatever else its tables hold.
struct KeptTables : RunTables {
  std::vector<KeyRange> ranges;
};

/// What a store has written since it was made; of an edit: what comes on top. Told when a memtable is flushed: what is in none yet is not in it.
struct WrittenBytes {
  uint64_t user = 0;                 ///< keys and values of changes, as they were asked for
  uint64_t values = 0;               ///< records of the value log, moved ones included
  uint64_t recovery = 0;             ///< segments of the recovery log, as wholes
  uint64_t flushed = 0, merged = 0;  ///< tables
  uint64_t device() const { return values + recovery + flushed + merged; }
  void Add(const WrittenBytes& more);
  bool operator==(const WrittenBytes&) const = default;
};

struct StateEdit {
  struct TableAt {
    RunPlace place;
    TableInfo table;
    std::string from;  ///< what is in front of this key does not count; empty: all counts
  };
  struct TableCut {
    RunPlace place;
    TableId table;
    std::string from;
  };
  // In this order:
  std::vector<uint8_t> sunk;  ///< levels whose growing run becomes the sinking one. There was none
  std::vector<std::pair<RunPlace, TableId>> dropped;
  std::vector<TableCut> cut;
  std::vector<TableAt> added;
  std::vector<std::pair<RunPlace, std::vector<RangeDelete>>>
      range_deletes;  ///< in place of what was there
  /// What is kept behind the first one comes behind the second, in front of what is there.
  std::vector<std::pair<RunPlace, RunPlace>> kept_moved;
  /// Goes behind these runs, in front of what is kept there, in this order.
  std::vector<std::pair<RunPlace, KeptTables>> kept;
  std::vector<SegmentId> recovery_granted, recovery_dropped;
  std::vector<SegmentId> values_granted, values_dropped;
  std::vector<SegmentId> values_torn;     ///< see StoreState
  std::map<SegmentId, uint64_t> garbage;  ///< bytes that became it
  Sequence flushed_through = 0;           ///< 0: as before. All commits up to here are in tables
  uint64_t flush_bytes = 0;               ///< 0: as before. See StoreState
  uint64_t segments_end =
      0;  ///< 0: as before. No segment with this number or a higher one was ever made
  Sequence durable_through = 0;  ///< 0: as before. All commits up to here were durable
  WrittenBytes written;

  bool changes_tables() const {
    return !(sunk.empty() && dropped.empty() && cut.empty() && added.empty() &&
             range_deletes.empty() && kept_moved.empty() && kept.empty());
  }
  std::string Encode() const;
  static Result<StateEdit> Decode(std::span<const std::byte> bytes);
};

struct StoreState {
  using TableState = lsm::TableState;
  struct RunState : RunTables {
    /// Behind the rest, the newest first. Fresh runs have none.
    std::vector<KeptTables> kept = {};
    bool empty() const { return tables.empty() && range_deletes.empty() && kept.empty(); }
  };
  uint64_t epoch = 0;                                      ///< of the store: drawn when it was made
  std::map<Sequence, RunState, std::greater<>> fresh;      ///< by RunPlace::through; none is empty
  std::array<std::array<RunState, 2>, kLevelsMax> levels;  ///< by level and RunKind
  std::vector<SegmentId> recovery_log;      ///< in the order in which they are filled
  std::map<SegmentId, uint64_t> value_log;  ///< garbage bytes of each
  /// Of the value log, those that were being filled when a process ended: some of their records may be lost, none of which
  /// anything names, and others behind them not.
  std::set<SegmentId> torn;
  Sequence flushed_through = 0;
  /// Commits up to here that are in no table are in the recovery log, or it is damaged: no crash takes them away.
  Sequence durable_through = 0;
  /// What the flush of a full memtable writes, the mean of some of them; 0: none was flushed.
  uint64_t flush_bytes = 0;
  uint64_t segments_end = 1;
  WrittenBytes written;

  /// Makes a fresh run that is not there.
  RunState& run(RunPlace place);
  /// Empty: or it is not there.
  const RunState& run(RunPlace place) const;
  /// Whether the edit may add to this run: it is there, or a fresh one, newer than all, which the edit makes.
  bool MayAdd(RunPlace place, const StateEdit& edit) const;
  /// Those that are not empty, in the order in which versions of a key shadow one another; what is kept behind a run comes behind it, under
  /// its place.
  std::vector<std::pair<RunPlace, const RunTables*>> runs() const;
  /// Corruption: the edit does not fit the state.
  Status Check(const StateEdit& edit) const;
  /// The same of an edit that does not fit; the state is then half changed.
  Status Apply(const StateEdit& edit);
  /// The edit that makes this state of an empty one.
  StateEdit AsEdit() const;
};

}  // namespace farleaf::index::lsm
