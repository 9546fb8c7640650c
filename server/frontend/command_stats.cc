#include "server/frontend/command_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace farleaf::server {

CommandCounts& CommandCounts::operator+=(const CommandCounts& other) {
  count += other.count;
  failed += other.failed;
  spent += other.spent;
  latency_ns += other.latency_ns;
  for (size_t i = 0; i < latencies.size(); ++i) latencies[i] += other.latencies[i];
  return *this;
}

void CommandCounts::AppendMetrics(std::string_view protocol, std::string_view operation,
                                  MetricsText* out) const {
  const MetricLabel by_protocol{"protocol", protocol}, by_operation{"operation", operation};
  const MetricLabels labels = {by_protocol, by_operation};
  const auto count_by = [&](std::string_view name, std::string_view help, MetricLabel by,
                            uint64_t value) {
    out->Counter(name, help, {by_protocol, by_operation, by}, static_cast<double>(value));
  };
  constexpr std::string_view kOperations = "farleaf_operations_total";
  constexpr std::string_view kOperationsHelp = "Requests of clients that have ended.";
  count_by(kOperations, kOperationsHelp, {"outcome", "ok"}, count - std::min(failed, count));
  count_by(kOperations, kOperationsHelp, {"outcome", "failed"}, failed);
  out->Counter("farleaf_round_trips_total", "Waits for memory servers on behalf of requests.",
               labels, static_cast<double>(spent.round_trips));
  constexpr std::string_view kVerbs = "farleaf_verbs_total";
  constexpr std::string_view kVerbsHelp = "Verbs posted to memory servers on behalf of requests.";
  count_by(kVerbs, kVerbsHelp, {"verb", "read"}, spent.reads);
  count_by(kVerbs, kVerbsHelp, {"verb", "write"}, spent.writes);
  count_by(kVerbs, kVerbsHelp, {"verb", "atomic"}, spent.atomics);
  constexpr std::string_view kBytes = "farleaf_fabric_bytes_total";
  constexpr std::string_view kBytesHelp = "Payload to and from memory servers for requests.";
  count_by(kBytes, kBytesHelp, {"direction", "read"}, spent.bytes_read);
  count_by(kBytes, kBytesHelp, {"direction", "written"}, spent.bytes_written);
  HistogramSample sample;
  for (size_t i = 0; i < latencies.size(); ++i) {
    sample.count += latencies[i];
    if (i < kLatencyBounds) {
      sample.buckets.push_back({static_cast<double>(LatencyBoundUs(i)) * 1e-6, sample.count});
    }
  }
  sample.sum = static_cast<double>(latency_ns) * 1e-9;
  out->Histogram("farleaf_operation_duration_seconds",
                 "From the arrival of a request to its answer.", labels, sample);
}

void CommandCounts::AppendTo(std::string_view prefix, std::string* text) const {
  auto out = std::back_inserter(*text);
  const auto line = [&](std::string_view name, uint64_t value) {
    fmt::format_to(out, "{}.{} {}\n", prefix, name, value);
  };
  line("count", count);
  line("failed", failed);
  line("round_trips", spent.round_trips);
  line("bytes_read", spent.bytes_read);
  line("bytes_written", spent.bytes_written);
  line("verbs", spent.verbs());
  uint64_t up_to = 0;
  for (size_t i = 0; i < latencies.size(); ++i) {
    if (latencies[i] == 0) continue;
    up_to += latencies[i];
    if (i < kLatencyBounds) {
      fmt::format_to(out, "{}.latency_us.below.{} {}\n", prefix, LatencyBoundUs(i), up_to);
    }
  }
}

CommandCounts CommandStats::Counts(size_t command) const {
  const Cell& cell = cells_[command];
  CommandCounts counts;
  counts.count = cell.count.load();
  counts.failed = cell.failed.load();
  counts.spent = {cell.round_trips.load(), cell.reads.load(),      cell.writes.load(),
                  cell.atomics.load(),     cell.bytes_read.load(), cell.bytes_written.load()};
  counts.latency_ns = cell.latency_ns.load();
  for (size_t i = 0; i < counts.latencies.size(); ++i) {
    counts.latencies[i] = cell.latencies[i].load();
  }
  return counts;
}

}  // namespace farleaf::server
