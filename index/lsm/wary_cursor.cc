#include "index/lsm/wary_cursor.h"

#include <utility>

namespace farleaf::index::lsm {

dsm::Task<Status> WaryCursor::Next(dsm::Worker& worker) {
  lost_ = Status::Ok();
  CursorStep step = begun_ ? cursor_.Next() : cursor_.Seek(ref_.from);
  while (step == CursorStep::kMissing) {
    const MissingBlock missing = cursor_.missing();
    Result<BlockCache::Handle> pin =
        co_await ref_.file->table().Fetch(worker, *cache_, missing, BlockUse::kOnce);
    if (pin.ok()) {
      step = begun_ ? cursor_.Next() : cursor_.Seek(ref_.from);
    } else if (IsUnreadable(pin.status())) {
      lost_ = pin.status();
      begun_ = true;
      step = cursor_.PassMissing(TableCursor::Direction::kForward);
    } else {
      co_return pin.status();
    }
  }
  begun_ |= step == CursorStep::kEntry;
  ended_ = step == CursorStep::kEnd;
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
