#include "benchmark/ycsb/hdr_log.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <ctime>
#include <string>

#include "benchmark/ycsb/hdr_codec.h"

namespace farleaf::ycsb {

namespace {

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

/// As Java prints a Date.
std::string DateOf(uint64_t unix_ns) {
  const auto seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  std::tm date{};
  ::gmtime_r(&seconds, &date);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%a %b %d %H:%M:%S UTC %Y", &date));
}

void WriteLine(std::string_view tag, uint64_t begin_ns, uint64_t length_ns,
               const SparseHistogram& latency_ns, std::ostream& out) {
  fmt::print(out, "Tag={},{:.3f},{:.3f},{:.3f},{}\n", tag, Seconds(begin_ns), Seconds(length_ns),
             static_cast<double>(latency_ns.max) * 1e-6, EncodeHistogram(latency_ns));
}

void WritePhase(const PhaseResult& phase, uint64_t begin_ns, std::ostream& out) {
  const std::string prefix = phase.phase == Phase::kLoad ? "LOAD-" : "";
  std::vector<std::string> tags;
  for (size_t i = 0; i < kOpKinds; ++i) {
    tags.push_back(prefix + std::string(OpKindName(static_cast<OpKind>(i))));
  }
  if (!phase.series) {
    for (size_t i = 0; i < kOpKinds; ++i) {
      if (phase.kinds[i].operations() == 0) continue;
      WriteLine(tags[i], begin_ns, phase.elapsed_ns, phase.kinds[i].latency_ns.Sparse(), out);
    }
    return;
  }
  const TimeSeries& series = *phase.series;
  for (size_t interval = 0; interval < series.intervals.size(); ++interval) {
    for (size_t i = 0; i < kOpKinds; ++i) {
      if (!series.Has(static_cast<OpKind>(i))) continue;
      WriteLine(tags[i], begin_ns + series.begin_ns(interval), series.length_ns(interval),
                series.intervals[interval][i].latency_ns, out);
    }
  }
}

}  // namespace

void WriteHdrLog(std::span<const PhaseResult> phases, std::ostream& out) {
  const uint64_t start_ns = phases.empty() ? 0 : phases.front().start_unix_ns;
  fmt::print(out, "#[Histogram log format version 1.3]\n");
  fmt::print(out, "#[StartTime: {:.3f} (seconds since epoch), {}]\n", Seconds(start_ns),
             DateOf(start_ns));
  fmt::print(out,
             "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
             "\"Interval_Compressed_Histogram\"\n");
  uint64_t begin_ns = 0;
  for (const PhaseResult& phase : phases) {
    if (phase.start_unix_ns > start_ns) begin_ns = phase.start_unix_ns - start_ns;
    WritePhase(phase, begin_ns, out);
    begin_ns += phase.elapsed_ns;
  }
}

}  // namespace farleaf::ycsb
