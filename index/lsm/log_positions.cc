#include "index/lsm/log_positions.h"

#include "dsm/base/clock.h"

namespace farleaf::index::lsm {

namespace {
/// How long one looks whether all that is reserved is there, before others are let run; and for how long.
constexpr uint32_t kLooksMax = 2000;
constexpr uint64_t kLookAgainNs = 20 * kNsPerUs;
}  // namespace

dsm::Task<LogCuts::Cuts> LogCuts::Take(dsm::Worker& worker, std::array<Log::Upto, kLogsMax> upto) {
  const CoroutineMutex::Held held = co_await cutting_.Lock(worker);
  Cuts cuts{};
  for (size_t i = 0; i < logs_.size(); ++i) cuts[i] = logs_[i]->TakeCut(upto[i]);
  for (size_t i = 0; i < logs_.size(); ++i) {
    for (uint32_t looks = 0; !logs_[i]->Settled(cuts[i]); ++looks) {
      if (looks < kLooksMax) {
        __builtin_ia32_pause();
      } else {
        co_await worker.Sleep(kLookAgainNs);
      }
    }
  }
  co_return cuts;
}

}  // namespace farleaf::index::lsm
