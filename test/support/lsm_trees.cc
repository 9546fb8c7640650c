#include "test/support/lsm_trees.h"

#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

LsmTrees::LsmTrees(LsmHost::Options options) : store_(std::move(options)) { Load(); }

LsmTrees::~LsmTrees() = default;

void LsmTrees::OpenAgain() {
  host_ = nullptr;
  store_.Close();
  store_.Open();
  Load();
}

void LsmTrees::Load() {
  auto host = server::LsmTreeHost::Load(
      {&store_.store(), &store_.storage(), "memory",
       [this]() -> Result<std::unique_ptr<dsm::Worker>> { return store_.OpenWorker(); }});
  FARLEAF_CHECK(host.ok(), host.status());
  host_ = std::move(*host);
}

}  // namespace farleaf::test
