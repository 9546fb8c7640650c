// StoreIterator: what a reader at a snapshot sees of a view, key by key, in order or against it.
//
// It never suspends: a step that lacks a block says so, and is repeated when the block was fetched.
//
// Thread rule: one owner, which pins the view.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/lookup.h"
#include "index/lsm/run_cursor.h"

namespace farleaf::index::lsm {

class StoreIterator {
 public:
  StoreIterator(std::shared_ptr<const ReadView> view, LookupPlaces places, Sequence snapshot);

  /// Before the first key that is not less than `start`. Next goes forward from there.
  void SeekTo(std::string_view start);
  /// Behind the last key that is less than `end`, if there is an end. Next goes backward from there.
  void SeekBefore(std::optional<std::string_view> end);

  /// kEntry: stands on the next key, which is neither deleted nor expired. kMissing: Fetch, then Next again. (It is said as well after
  /// many keys that are deleted: then Fetch lets others run.)
  CursorStep Next();
  /// Pointers are not resolved. Good until the next step.
  const Entry& entry() const { return *entry_; }
  /// Reads what is missing, if anything is, and up to `ahead` leaves that will be.
  dsm::Task<Status> Fetch(dsm::Worker& worker, size_t ahead);
  /// Where Fetch has failed: past what cannot be read.
  dsm::Task<Status> PassOver(dsm::Worker& worker);

 private:
  /// A version that had to be copied, because its cursor has gone on.
  struct Copy {
    bool there = false;
    Entry entry;
    std::string key, value;
    void Take(const Entry& from);
  };
  struct Source {
    const Memtable* memtable = nullptr;  ///< or:
    const Run* run = nullptr;
    std::optional<Memtable::Cursor> in_memory;
    std::optional<RunCursor> in_run;
    CursorStep step = CursorStep::kEnd;  ///< the last one's outcome
    Entry entry;                         ///< kEntry
    Copy newest;                         ///< backward: the newest visible version of key_ so far
  };

  void AddSource(const Memtable* memtable);
  void Stand(Source& source, CursorStep step);
  bool Advance(Source& source);
  bool Retreat(Source& source);
  bool Ready();
  CursorStep NextForward();
  CursorStep NextBackward();
  bool Visible(size_t number, const Entry& entry) const;

  const std::shared_ptr<const ReadView> view_;
  const LookupPlaces places_;
  const Sequence snapshot_;
  const uint64_t now_ms_;
  std::vector<Source> sources_;  // the newest first
  uint64_t all_bytes_ = 0;       // of all runs
  bool backward_ = false;
  bool in_key_ = false;  // key_ is what Next is at, or was at last
  std::string key_;
  const Entry* entry_ = nullptr;
  std::vector<BlockCache::Handle> pins_;  // of what was fetched since all sources stood
};

}  // namespace farleaf::index::lsm
