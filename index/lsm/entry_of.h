// The entry of a memtable that a change of a commit becomes.
//
// Thread rule: a pure function.
#pragma once

#include "index/lsm/commit_record.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

/// REQUIRES: it is no kDeleteRange. Views are the change's.
inline Entry EntryOf(const Change& change, Sequence sequence) {
  Entry entry{.key = change.key, .sequence = sequence};
  if (change.kind == ChangeKind::kPut) {
    entry.kind = EntryKind::kValue;
    entry.value = change.value;
    entry.expires_ms = change.expires_ms;
  } else if (change.kind == ChangeKind::kPutPointer) {
    entry.kind = EntryKind::kPointer;
    entry.pointer = change.pointer;
    entry.expires_ms = change.expires_ms;
  }
  return entry;
}

}  // namespace farleaf::index::lsm
