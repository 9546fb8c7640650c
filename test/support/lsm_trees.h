// LsmTrees: the trees of an LSM store in memory behind a front end, small enough that its parts turn over all the time.
//
// Thread rule: thread-safe once made. It outlives the servers that use it.
#pragma once

#include <memory>
#include <utility>

#include "server/lsm/lsm_tree_host.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {

class LsmTrees {
 public:
  LsmTrees() { Load(); }

  server::LsmTreeHost& host() { return *host_; }
  LsmHost& store() { return store_; }
  /// REQUIRES: nothing uses the trees.
  void OpenAgain() {
    host_ = nullptr;
    store_.Close();
    store_.Open();
    Load();
  }

 private:
  void Load() {
    auto host = server::LsmTreeHost::Load(
        {&store_.store(), &store_.storage(), "memory",
         [this]() -> Result<std::unique_ptr<dsm::Worker>> { return store_.OpenWorker(); }});
    FARLEAF_CHECK(host.ok(), host.status());
    host_ = std::move(*host);
  }

  LsmHost store_{{.store = LsmHost::SmallStore(), .flush_every_us = 5'000}};
  std::unique_ptr<server::LsmTreeHost> host_;
};

}  // namespace farleaf::test
