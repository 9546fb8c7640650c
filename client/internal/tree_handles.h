// TreeHandles: the numbers by which operations name trees. All sessions of one client share them, so that an operation
// may go to any of its servers; each of these knows a tree under an id of its own.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "client/operation.h"
#include "dsm/base/check.h"

namespace farleaf::client::internal {

class TreeHandles {
 public:
  /// That of the tree's name; a new one if it has none.
  uint32_t HandleOf(const TreeInfo& tree) {
    for (uint32_t handle = 0; handle < trees_.size(); ++handle) {
      if (trees_[handle].name == tree.name) return handle;
    }
    trees_.push_back(tree);
    return static_cast<uint32_t>(trees_.size() - 1);
  }
  /// As it was when the handle was given.
  const TreeInfo& tree(uint32_t handle) const {
    FARLEAF_CHECK(handle < trees_.size(), "a tree of another session", handle);
    return trees_[handle];
  }

 private:
  std::vector<TreeInfo> trees_;
};

}  // namespace farleaf::client::internal
