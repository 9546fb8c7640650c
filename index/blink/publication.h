// Publication: the one change that structure modifications make to a parent level. It sets the
// routing of the keys [low, high) to `child`, which is locked by whoever publishes.
//
//   split            child = the new right node, replaced = its left
//   merge            child = the surviving left node, replaced = the dead right one
//   missing separator  child = the node found by moving right, replaced = none
//
// Thread rule: lives in the publisher's frame.
#pragma once

#include <optional>
#include <string>

#include "index/blink/geometry.h"
#include "index/blink/page.h"

namespace farleaf::index {

struct Publication {
  Level level = 1;                  ///< of the parents
  std::string low;                  ///< first key of the range
  std::optional<std::string> high;  ///< nullopt: to the last key
  GlobalAddress child;
  GlobalAddress replaced;            ///< of a merge, entries behind the range that still name it
                                     ///< are redirected
  bool insert_missing = false;       ///< add a separator at `low` if there is none
  LockedPage* child_lock = nullptr;  ///< unlocked when the publication is complete
  LockedPage* parent = nullptr;      ///< locked already, perhaps: the one that covers `low`
  bool child_changed = false;        ///< child_lock's buffer is written back with its unlock
  PartMask child_parts = 0;          ///< ... in these parts only, if it is a parted leaf
  Status child_status;               ///< out: of the child's write-back and unlock
  std::string underfull_key;         ///< out: a key of a parent that became underfull
  bool parent_underfull = false;     ///< out
  bool root_has_one_child = false;   ///< out
};

/// The entry that made a leaf overflow, where it belongs into the right one: it is added to that with its unlock.
struct LateEntry {
  const PendingEntry* pending = nullptr;
  const PageBuffer* leaf = nullptr;  ///< the right leaf with it, of one that stands as its node
};

/// What one parent's edit came to.
struct ParentEdit {
  bool changed = false;
  bool overflow = false;  ///< the separator does not fit: split the parent with it
  bool goes_on =
      false;  ///< the range, or the replaced node's entries, may go on in the next parent
};

/// Edits the part of `publication` that falls to `parent`, which covers `position`: publication.low,
/// or the high fence of the parent edited before. Afterwards no entry of the parent in [position,
/// high) names anything but `child`; the keys [low, high) lead to `child` (or, where an entry is
/// missing and not to be added, to what stands in front); entries directly behind that name `replaced`
/// are gone; and all else leads where it led. Pure; index/blink/README.md has the argument.
ParentEdit EditParent(Node& parent, std::string_view position, const Publication& publication);

}  // namespace farleaf::index
