// EntryChange: one change of one key of a leaf, on its way. Whoever holds the leaf's lock may
// make it in its author's place (combining), along with its own and in one write-back.
//
// Thread rule: lives in its author's frame; used by one thread at a time (dsm/local_lock.h, Work).
#pragma once

#include <string>
#include <string_view>

#include "dsm/local_lock.h"
#include "index/blink/part_window.h"
#include "index/range_index.h"

namespace farleaf::index {

class BlinkTree;

/// Changes that one write-back carries.
inline constexpr size_t kCombinedMax = 128;

struct EntryChange : dsm::LocalLockTable::Work {
  EntryChange(const BlinkTree* of, std::string_view changed, const ModifyFunction& function,
              CurrentValue looks_at)
      : tree(of), key(changed), modify(&function), use(looks_at) {}

  const BlinkTree* tree;  ///< a page that was freed may be waited for by changes of two
  std::string_view key;
  const ModifyFunction* modify;
  CurrentValue use;
  // Of a parted leaf:
  uint64_t number = 0;        ///< the key
  uint64_t fence_digest = 0;  ///< of the leaf that it was led to; 0: of none
  PartMask window = 0;        ///< what it expects to need of that leaf

  bool decided = false;  ///< `modify` was called, and its answer is here:
  std::string replacement;
  ModifyResult result;
  // Of a leaf that is not parted:
  bool alone =
      false;  ///< not to be made along with others: it needs a block, frees one, or the leaf has no room
  bool merges = false;  ///< made by another, it has left the leaf too empty
  /// It is decided anew, under another lock.
  void Forget() {
    decided = false;
    replacement.clear();
    merges = false;
    status = Status::Ok();
  }
  Status status;  ///< InvalidArgument: the replacement; else how the write-back ended
};

}  // namespace farleaf::index
