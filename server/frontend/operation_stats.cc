#include "server/frontend/operation_stats.h"

#include <fmt/format.h>

#include <iterator>

namespace farleaf::server {

void OperationStats::AppendTo(std::string* text) const {
  auto out = std::back_inserter(*text);
  for (size_t i = 0; i < kOpcodes.size(); ++i) {
    const Kind& kind = kinds_[i];
    if (kind.count == 0) continue;
    const auto name = OpcodeName(kOpcodes[i]);
    kind.Counts().AppendTo(name, text);
    for (const auto& [label, quantile] :
         {std::pair{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}}) {
      fmt::format_to(out, "{}.latency_us.{} {}\n", name, label, kind.latency_us.Quantile(quantile));
    }
    fmt::format_to(out, "{}.latency_us.max {}\n", name, kind.latency_us.max());
  }
}

CommandCounts OperationStats::Kind::Counts() const {
  CommandCounts sum;
  sum.count = count;
  sum.failed = failed;
  sum.spent = counts;
  sum.latency_ns = latency_us.sum() * 1'000;
  uint64_t below = 0;
  for (size_t i = 0; i < kLatencyBounds; ++i) {
    const uint64_t up_to = latency_us.CountBelow(LatencyBoundUs(i));
    sum.latencies[i] = up_to - below;
    below = up_to;
  }
  sum.latencies[kLatencyBounds] = latency_us.count() - below;
  return sum;
}

void OperationStats::AppendMetrics(MetricsText* out) const {
  for (size_t i = 0; i < kOpcodes.size(); ++i) {
    kinds_[i].Counts().AppendMetrics("native", OpcodeName(kOpcodes[i]), out);
  }
}

std::string OperationStats::Summary() const {
  std::string text;
  for (size_t i = 0; i < kOpcodes.size(); ++i) {
    const Kind& kind = kinds_[i];
    if (kind.count == 0) continue;
    fmt::format_to(std::back_inserter(text),
                   "{}{} {}, {} failed, {:.2f} round trips each, p99 {} us",
                   text.empty() ? "" : "; ", OpcodeName(kOpcodes[i]), kind.count, kind.failed,
                   static_cast<double>(kind.counts.round_trips) / static_cast<double>(kind.count),
                   kind.latency_us.Quantile(0.99));
  }
  return text.empty() ? "no operations" : text;
}

}  // namespace farleaf::server
