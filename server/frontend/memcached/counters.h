// What the memcached front end counts, for each thread.
//
// Thread rule: written by one thread, read by any; sums are not a snapshot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "dsm/fabric_counts.h"
#include "server/frontend/command_stats.h"
#include "server/frontend/memcached/command.h"

namespace farleaf::server::memcached {

struct Counters : RecordCounters {
  Counters() : RecordCounters(kVerbCount) {}
  std::array<Count, kVerbCount> commands{};  ///< by verb
  Count keys_got{0}, get_hits{0}, get_misses{0};
  Count delete_hits{0}, delete_misses{0}, incr_hits{0}, incr_misses{0}, decr_hits{0},
      decr_misses{0};
  Count cas_hits{0}, cas_misses{0}, cas_badval{0}, touch_hits{0}, touch_misses{0};

  /// Adds all but `stats` to `sum`.
  void AddTo(Counters* sum) const;
  uint64_t of(Verb verb) const { return commands[static_cast<size_t>(verb)].load(); }
  /// Lines `memcached.get_hits 5`, of all but `stats` and `commands`.
  void AppendTo(std::string* text) const;
  /// Likewise.
  void AppendMetrics(MetricsText* out) const;
};

}  // namespace farleaf::server::memcached
