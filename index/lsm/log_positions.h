// LogPositions: a place in each of a store's logs; LogCuts: takes them all at one moment, once what is in front of them is there.
//
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <vector>

#include "index/lsm/event.h"
#include "index/lsm/log.h"

namespace farleaf::index::lsm {

inline constexpr size_t kLogsMax = 2;
/// A position in each log, in the order of the logs: the recovery log first.
using LogPositions = std::array<LogPosition, kLogsMax>;

class LogCuts {
 public:
  using Cuts = std::array<Log::Cut, kLogsMax>;
  explicit LogCuts(std::vector<Log*> logs) : logs_(std::move(logs)) {}

  /// Of each log, one after another: a commit in front of the first one's cut has its values in front of the others'. All that is in front
  /// of a cut is there when it ends. One at a time: who flips a log's phase has to see the old one at zero before anybody flips it back.
  dsm::Task<Cuts> Take(dsm::Worker& worker, std::array<Log::Upto, kLogsMax> upto);
  void Abandon() { cutting_.Abandon(); }

 private:
  const std::vector<Log*> logs_;
  CoroutineMutex cutting_;
};

}  // namespace farleaf::index::lsm
