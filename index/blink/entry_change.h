// EntryChange: one change of one key of a parted leaf, on its way. Whoever holds the leaf's lock may
// make it in its author's place (combining), along with its own and in one write-back.
//
// Thread rule: lives in its author's frame; used by one thread at a time (dsm/local_lock.h, Work).
#pragma once

#include <string>
#include <string_view>

#include "dsm/base/bytes.h"
#include "dsm/local_lock.h"
#include "index/blink/part_window.h"
#include "index/range_index.h"

namespace farleaf::index {

/// Changes that one write-back carries.
inline constexpr size_t kCombinedMax = 128;

struct EntryChange : dsm::LocalLockTable::Work {
  EntryChange(std::string_view changed, const ModifyFunction& function)
      : key(changed), number(LoadBig64(changed.data())), modify(&function) {}

  std::string_view key;
  uint64_t number;  ///< the key
  const ModifyFunction* modify;
  bool may_create = true;     ///< an absent key may be stored
  uint64_t fence_digest = 0;  ///< of the leaf that it was led to; 0: of none
  PartMask window = 0;        ///< what it expects to need of that leaf

  bool decided = false;  ///< `modify` was called, and its answer is here:
  std::string replacement;
  ModifyResult result;
  /// It is decided anew, under another lock.
  void Forget() {
    decided = false;
    replacement.clear();
    status = Status::Ok();
  }
  Status status;  ///< InvalidArgument: the replacement; else how the write-back ended
};

}  // namespace farleaf::index
