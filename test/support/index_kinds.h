// Every index there is, each so small that what is rare in practice is frequent.
#pragma once

#include <vector>

#include "test/support/index_host.h"
#include "test/support/lsm_host.h"
#include "test/support/prefixed_host.h"

namespace farleaf::test {

inline std::vector<IndexKind> AllIndexKinds() {
  std::vector<IndexKind> kinds = MapAndTreeKinds();
  LsmHost::Options restless{.store = LsmHost::SmallStore(), .flush_every_us = 5000};
  kinds.push_back(PrefixedKind());
  kinds.push_back(LsmKind("LsmInMemory", {.store = LsmHost::SmallStore()}));
  kinds.push_back(LsmKind("Lsm", restless));
  restless.io_delay_ns = 20'000;
  kinds.push_back(LsmKind("LsmSlowDevice", restless));
  restless.store.durability = index::lsm::Durability::kSynced;
  kinds.push_back(LsmKind("LsmSynced", restless));
  return kinds;
}

}  // namespace farleaf::test
