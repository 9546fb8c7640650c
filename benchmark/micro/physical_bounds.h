// What the machine itself takes for the least that a piece has to do, and the table that puts each piece beside it.
//
// A bound is a benchmark as well, so that a share is of two lines of one run: a READ over shared memory is at least a
// copy from a random place, one over TCP at least a round trip of as many bytes over loopback between two threads that
// do nothing else, a search at least the load of a line that no cache has, a codec at least a copy of its bytes.
//
// Thread rule: one thread; Google Benchmark calls the reporter from the one that runs the benchmarks.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace farleaf::micro {

/// Of 512 MiB: random_load, random_copy/BYTES, random_store/BYTES, random_fetch_add; of the nearest cache
/// near_copy/BYTES; loopback_round_trip/BYTES, both ends awake.
void RegisterPhysicalBounds();

/// Google Benchmark's lines as they come, and behind them, of every piece that has a bound and ran beside it:
/// ns of both, and the bound's share of the piece's.
class BoundReporter final : public benchmark::ConsoleReporter {
 public:
  /// In colours where standard output is a terminal.
  BoundReporter();
  void ReportRuns(const std::vector<Run>& reports) override;
  /// To be called when all have run. Prints nothing if no piece ran beside its bound.
  void PrintBounds(std::ostream& out) const;
  /// Whether one of them ended with an error.
  bool any_failed() const { return any_failed_; }

 private:
  bool any_failed_ = false;
  std::map<std::string, double> ns_;  // by the benchmark's name
};

}  // namespace farleaf::micro
