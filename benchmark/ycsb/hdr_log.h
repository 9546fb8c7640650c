// HdrHistogram's log, version 1.3, as its HistogramLogWriter writes it and its plotters read it:
//
//   #[Histogram log format version 1.3]
//   #[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 15:24:39 UTC 2015]
//   "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
//   Tag=READ,0.000,1.000,12.345,HISTFAAA…
//
// A line for each interval and operation kind, or without intervals for each phase and kind. Times
// are in seconds, from StartTime on; Interval_Max is in ms, and the histograms' values are in ns.
// Tags are the kinds, those of a load phase behind "LOAD-".
//
// Thread rule: a pure function.
#pragma once

#include <ostream>
#include <span>

#include "benchmark/ycsb/measurement.h"

namespace farleaf::ycsb {

/// Phases in their order. One that does not know its time of day begins where the last ended, and
/// the first at 1970.
void WriteHdrLog(std::span<const PhaseResult> phases, std::ostream& out);

}  // namespace farleaf::ycsb
