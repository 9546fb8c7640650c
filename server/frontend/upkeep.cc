#include "server/frontend/upkeep.h"

namespace farleaf::server {

namespace {
constexpr uint64_t kPauseNs = 10 * kNsPerMs;
}  // namespace

dsm::Task<Status> KeepUpToTheEnd(TreeHost& host, dsm::OpContext& op) {
  for (;;) {
    Status kept = co_await host.Upkeep(op);
    if (kept.ok() || kept.code() == StatusCode::kFenced || op.expired()) co_return kept;
    co_await op.worker.Sleep(kPauseNs);
  }
}

}  // namespace farleaf::server
