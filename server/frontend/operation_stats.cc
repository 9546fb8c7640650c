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
    fmt::format_to(out, "{}.count {}\n{}.failed {}\n", name, kind.count, name, kind.failed);
    fmt::format_to(out, "{}.round_trips {}\n{}.bytes_read {}\n{}.bytes_written {}\n", name,
                   kind.counts.round_trips, name, kind.counts.bytes_read, name,
                   kind.counts.bytes_written);
    fmt::format_to(out, "{}.verbs {}\n", name, kind.counts.verbs());
    for (const auto& [label, quantile] :
         {std::pair{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}}) {
      fmt::format_to(out, "{}.latency_us.{} {}\n", name, label, kind.latency_us.Quantile(quantile));
    }
    fmt::format_to(out, "{}.latency_us.max {}\n", name, kind.latency_us.max());
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
