// LsmTrees: the trees of an LSM store in memory behind a front end, small enough that its parts turn over all the time.
//
// Thread rule: thread-safe once made. It outlives the servers that use it.
#pragma once

#include <memory>

#include "server/lsm/lsm_tree_host.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {

class LsmTrees {
 public:
  LsmTrees() : LsmTrees({.store = LsmHost::SmallStore(), .flush_every_us = 5'000}) {}
  explicit LsmTrees(LsmHost::Options options);
  ~LsmTrees();

  server::LsmTreeHost& host() { return *host_; }
  LsmHost& store() { return store_; }
  /// REQUIRES: nothing uses the trees.
  void OpenAgain();

 private:
  void Load();

  LsmHost store_;
  std::unique_ptr<server::LsmTreeHost> host_;
};

}  // namespace farleaf::test
