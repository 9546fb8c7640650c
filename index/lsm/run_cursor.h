// RunCursor: walks the tables of a run as one, by way of the cache, and respects their cuts.
//
// Like the cursors of tables it never suspends: a step that lacks a block says so; when it was fetched, and is kept pinned, Retry goes
// on with that step.
//
// Thread rule: one owner. The run and the cache outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/table_cursor.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

class RunCursor {
 public:
  RunCursor(const Run* run, BlockCache* cache) : run_(run), cache_(cache) {}

  /// To the first entry that does not come before (key, sequence).
  CursorStep Seek(std::string_view key, Sequence sequence);
  /// To the last entry that comes before all versions of the key; nullopt: to the last of all.
  CursorStep SeekBefore(std::optional<std::string_view> key);
  /// REQUIRES of both: it stands on an entry.
  CursorStep Next();
  CursorStep Prev();
  /// REQUIRES: the last step was kMissing, and was fetched.
  CursorStep Retry();

  /// Past what is missing, which cannot be read. REQUIRES: the last step was kMissing.
  CursorStep PassMissing(TableCursor::Direction direction);

  /// Good until the next step. REQUIRES: the last step was kEntry.
  const Entry& entry() const { return cursor_->entry(); }
  /// REQUIRES: the last step was kMissing.
  const Table& table() const { return run_->tables[at_].file->table(); }
  const MissingBlock& missing() const { return cursor_->missing(); }
  /// Leaves that come next and are not in the cache either (TableCursor::Upcoming).
  void Upcoming(TableCursor::Direction direction, size_t count,
                std::vector<MissingBlock>* missing) const {
    cursor_->Upcoming(direction, count, missing);
  }

 private:
  enum class Doing : uint8_t { kSeek, kSeekBefore, kNext, kPrev };
  CursorStep Step();
  /// To the next table that is there, if the cursor's has ended.
  CursorStep GoOn(CursorStep step);
  bool OpenTable(size_t at);
  CursorStep Begin(Doing doing);

  const Run* run_;
  BlockCache* cache_;
  size_t at_ = 0;
  std::optional<TableCursor> cursor_;
  Doing doing_ = Doing::kSeek;
  std::string target_;
  Sequence target_sequence_ = 0;
  bool to_last_ = false;  // kSeekBefore: of the table's last entry, rather than of target_
};

}  // namespace farleaf::index::lsm
