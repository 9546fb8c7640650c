#include "index/lsm/store_iterator.h"

#include <utility>

#include "index/lsm/wary_cursor.h"

namespace farleaf::index::lsm {

namespace {
/// Keys that are passed because they are deleted, before others have their turn.
constexpr uint32_t kHiddenTogether = 1024;
}  // namespace

void StoreIterator::Copy::Take(const Entry& from) {
  there = true;
  key.assign(from.key);
  value.assign(from.value);
  entry = from;
  entry.key = key;
  entry.value = value;
}

StoreIterator::StoreIterator(std::shared_ptr<const ReadView> view, LookupPlaces places,
                             Sequence snapshot)
    : view_(std::move(view)),
      places_(places),
      snapshot_(snapshot),
      now_ms_(places.wall->NowNs() / kNsPerMs) {
  AddSource(view_->active.get());
  if (view_->flushing) AddSource(view_->flushing.get());
  for (const Run& run : view_->version->runs) {
    Source& source = sources_.emplace_back();
    source.in_run.emplace(&run, places_.cache);
    source.run = &run;
    all_bytes_ += run.bytes;
  }
}

void StoreIterator::AddSource(const Memtable* memtable) {
  Source& source = sources_.emplace_back();
  source.memtable = memtable;
  source.in_memory.emplace(memtable);
}

void StoreIterator::Stand(Source& source, CursorStep step) {
  source.step = step;
  if (step == CursorStep::kEntry) {
    source.entry = source.in_run ? source.in_run->entry() : source.in_memory->entry();
  }
}

void StoreIterator::SeekTo(std::string_view start) {
  backward_ = in_key_ = false;
  for (Source& source : sources_) {
    if (source.in_run) {
      Stand(source, source.in_run->Seek(start, kSequenceMax));
    } else {
      source.in_memory->Seek(start, kSequenceMax);
      Stand(source, source.in_memory->valid() ? CursorStep::kEntry : CursorStep::kEnd);
    }
  }
}

void StoreIterator::SeekBefore(std::optional<std::string_view> end) {
  backward_ = true;
  in_key_ = false;
  for (Source& source : sources_) {
    source.newest.there = false;
    if (source.in_run) {
      Stand(source, source.in_run->SeekBefore(end));
    } else {
      if (end) {
        source.in_memory->SeekBefore(*end, kSequenceMax);
      } else {
        source.in_memory->SeekLast();
      }
      Stand(source, source.in_memory->valid() ? CursorStep::kEntry : CursorStep::kEnd);
    }
  }
}

bool StoreIterator::Advance(Source& source) {
  if (source.in_run) {
    Stand(source, source.in_run->Next());
  } else {
    source.in_memory->Next();
    Stand(source, source.in_memory->valid() ? CursorStep::kEntry : CursorStep::kEnd);
  }
  return source.step != CursorStep::kMissing;
}

bool StoreIterator::Retreat(Source& source) {
  if (source.in_run) {
    Stand(source, source.in_run->Prev());
  } else {
    source.in_memory->Previous();
    Stand(source, source.in_memory->valid() ? CursorStep::kEntry : CursorStep::kEnd);
  }
  return source.step != CursorStep::kMissing;
}

// Steps that lacked a block are tried again: all of them, so that what they lack next is fetched together, too.
bool StoreIterator::Ready() {
  bool ready = true;
  for (Source& source : sources_) {
    if (source.step != CursorStep::kMissing) continue;
    Stand(source, source.in_run->Retry());
    ready &= source.step != CursorStep::kMissing;
  }
  return ready;
}

CursorStep StoreIterator::Next() {
  entry_ = nullptr;
  if (!Ready()) return CursorStep::kMissing;
  return backward_ ? NextBackward() : NextForward();
}

// Whether no range delete of this place or of a newer one hides the version, and it is there at all.
bool StoreIterator::Visible(size_t number, const Entry& entry) const {
  for (size_t i = 0; i <= number; ++i) {
    if (const Memtable* const memtable = sources_[i].memtable) {
      if (!memtable->has_ranges()) continue;
      const Sequence covered = memtable->CoveredAt(entry.key, snapshot_);
      if (covered != 0 && (i < number || covered > entry.sequence)) return false;
      continue;
    }
    const std::vector<RangeDelete>& deletes = sources_[i].run->range_deletes;
    if (deletes.empty()) continue;
    const RangeDelete* const range = NewestCovering(deletes, entry.key, snapshot_);
    if (range && (i < number || range->sequence > entry.sequence)) return false;
  }
  if (entry.kind == EntryKind::kDeleted) return false;
  return entry.expires_ms == 0 || entry.expires_ms > now_ms_;
}

// Whatever it is interrupted in, it finds out anew from where the sources stand: those at key_ are behind. It is, when all sources
// have gone on as far as they can: what they lack is fetched together.
CursorStep StoreIterator::NextForward() {
  for (uint32_t hidden = 0; hidden < kHiddenTogether; ++hidden) {
    bool missing = false;
    std::optional<size_t> first;
    for (size_t i = 0; i < sources_.size(); ++i) {
      Source& source = sources_[i];
      while (source.step == CursorStep::kEntry &&
             ((in_key_ && source.entry.key == key_) || source.entry.sequence > snapshot_)) {
        missing |= !Advance(source);
      }
      if (source.step != CursorStep::kEntry) continue;
      if (!first || source.entry.key < sources_[*first].entry.key) first = i;
    }
    if (missing) return CursorStep::kMissing;
    pins_.clear();  // all sources stand, and hold what they stand on
    if (!first) return CursorStep::kEnd;
    const Entry& entry = sources_[*first].entry;
    key_.assign(entry.key);
    in_key_ = true;
    if (!Visible(*first, entry)) continue;
    entry_ = &entry;
    return CursorStep::kEntry;
  }
  return CursorStep::kMissing;
}

// Versions of a key come with the oldest first: all of them are passed, and the newest visible one of each source is kept.
CursorStep StoreIterator::NextBackward() {
  for (uint32_t hidden = 0; hidden < kHiddenTogether; ++hidden) {
    if (!in_key_) {
      const Source* last = nullptr;
      for (const Source& source : sources_) {
        if (source.step != CursorStep::kEntry) continue;
        if (!last || source.entry.key > last->entry.key) last = &source;
      }
      if (!last) return CursorStep::kEnd;
      key_.assign(last->entry.key);
      in_key_ = true;
    }
    bool missing = false;
    for (Source& source : sources_) {
      while (source.step == CursorStep::kEntry && source.entry.key == key_) {
        if (source.entry.sequence <= snapshot_) source.newest.Take(source.entry);
        missing |= !Retreat(source);
      }
    }
    if (missing) return CursorStep::kMissing;
    in_key_ = false;
    pins_.clear();
    std::optional<size_t> newest;
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (std::exchange(sources_[i].newest.there, false) && !newest) newest = i;
    }
    if (!newest || !Visible(*newest, sources_[*newest].newest.entry)) continue;
    entry_ = &sources_[*newest].newest.entry;
    return CursorStep::kEntry;
  }
  return CursorStep::kMissing;
}

dsm::Task<Status> StoreIterator::Fetch(dsm::Worker& worker, size_t ahead) {
  const auto direction =
      backward_ ? TableCursor::Direction::kBackward : TableCursor::Direction::kForward;
  // Of all sources at once: there may be many fresh runs.
  std::vector<BlockOfTable> missing, needed;
  for (Source& source : sources_) {
    if (source.step != CursorStep::kMissing) continue;
    const RunCursor& cursor = *source.in_run;
    const MissingBlock first = cursor.missing();
    missing.push_back({&cursor.table(), first});
    needed.push_back(missing.back());
    // Of a fresh run's leaves each may have many of other runs beside it.
    const bool fresh = source.run->place.kind == RunKind::kFresh;
    const size_t ahead_here = fresh ? ahead * source.run->bytes / all_bytes_ : ahead;
    if (ahead_here == 0 || first.level > 0) continue;
    std::vector<MissingBlock> upcoming;
    cursor.Upcoming(direction, ahead_here, &upcoming);
    for (const MissingBlock& block : upcoming) {
      if (block.place.at != first.place.at) missing.push_back({&cursor.table(), block});
    }
  }
  if (missing.empty()) {
    co_await worker.Sleep(0);
    co_return Status::Ok();
  }
  const std::span<const BlockOfTable> all = missing, least = needed;
  Status fetched = co_await Table::FetchAll(worker, *places_.cache, all, pins_, BlockUse::kOnce);
  if (fetched.ok() || missing.size() == needed.size()) co_return fetched;
  // Of what nobody may ever ask for a failure is no matter.
  fetched = co_await Table::FetchAll(worker, *places_.cache, least, pins_, BlockUse::kOnce);
  co_return fetched;
}

dsm::Task<Status> StoreIterator::PassOver(dsm::Worker& worker) {
  const auto direction =
      backward_ ? TableCursor::Direction::kBackward : TableCursor::Direction::kForward;
  for (Source& source : sources_) {
    if (source.step != CursorStep::kMissing) continue;
    const Table& table = source.in_run->table();
    const MissingBlock missing = source.in_run->missing();
    Result<BlockCache::Handle> pin =
        co_await table.Fetch(worker, *places_.cache, missing, BlockUse::kOnce);
    if (pin.ok()) {
      pins_.push_back(std::move(*pin));
    } else if (IsUnreadable(pin.status())) {
      Stand(source, source.in_run->PassMissing(direction));
    } else {
      co_return pin.status();
    }
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
