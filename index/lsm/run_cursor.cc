#include "index/lsm/run_cursor.h"

#include <algorithm>

namespace farleaf::index::lsm {

bool RunCursor::OpenTable(size_t at) {
  at_ = at;
  cursor_.reset();
  if (at >= run_->tables.size()) return false;
  cursor_.emplace(&run_->tables[at].file->table(), cache_);
  return true;
}

CursorStep RunCursor::Seek(std::string_view key, Sequence sequence) {
  const auto& tables = run_->tables;
  const auto at = std::lower_bound(
      tables.begin(), tables.end(), key,
      [](const TableRef& each, std::string_view k) { return each.file->info().largest < k; });
  target_.assign(key);
  target_sequence_ = sequence;
  if (!OpenTable(static_cast<size_t>(at - tables.begin()))) return CursorStep::kEnd;
  return Begin(Doing::kSeek);
}

CursorStep RunCursor::SeekBefore(std::optional<std::string_view> key) {
  const auto& tables = run_->tables;
  to_last_ = !key;
  auto end = tables.end();
  if (key) {
    target_.assign(*key);
    end = std::partition_point(tables.begin(), tables.end(),
                               [&](const TableRef& each) { return each.first() < *key; });
  }
  if (end == tables.begin()) return CursorStep::kEnd;
  OpenTable(static_cast<size_t>(end - tables.begin()) - 1);
  return Begin(Doing::kSeekBefore);
}

CursorStep RunCursor::Begin(Doing doing) {
  doing_ = doing;
  return Step();
}

CursorStep RunCursor::Next() { return Begin(Doing::kNext); }
CursorStep RunCursor::Prev() { return Begin(Doing::kPrev); }
CursorStep RunCursor::Retry() { return Step(); }

CursorStep RunCursor::PassMissing(TableCursor::Direction direction) {
  doing_ = direction == TableCursor::Direction::kForward ? Doing::kNext : Doing::kPrev;
  return GoOn(cursor_->PassMissing(direction));
}

CursorStep RunCursor::Step() {
  CursorStep step = CursorStep::kEnd;
  switch (doing_) {
    case Doing::kSeek: {
      const std::string& from = run_->tables[at_].from;
      step = from > target_ ? cursor_->Seek(from) : cursor_->Seek(target_, target_sequence_);
      break;
    }
    case Doing::kSeekBefore:
      step = to_last_ ? cursor_->SeekToLast() : cursor_->SeekForPrev(target_, kSequenceMax);
      break;
    case Doing::kNext:
      step = cursor_->Next();
      break;
    case Doing::kPrev:
      step = cursor_->Prev();
      break;
  }
  return GoOn(step);
}

CursorStep RunCursor::GoOn(CursorStep step) {
  const bool backward = doing_ == Doing::kSeekBefore || doing_ == Doing::kPrev;
  if (step == CursorStep::kEntry && backward && cursor_->entry().key < run_->tables[at_].from) {
    step = CursorStep::kEnd;
  }
  if (step != CursorStep::kEnd) return step;
  // On to the neighbour: all of it lies on the right side of where we were.
  if (backward) {
    if (at_ == 0) return step;
    OpenTable(at_ - 1);
    doing_ = Doing::kSeekBefore;
    to_last_ = true;
  } else {
    if (!OpenTable(at_ + 1)) return step;
    doing_ = Doing::kSeek;
  }
  return Step();
}

}  // namespace farleaf::index::lsm
