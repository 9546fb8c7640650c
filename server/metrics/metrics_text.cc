#include "server/metrics/metrics_text.h"

#include <fmt/format.h>

#include <iterator>

#include "dsm/base/check.h"

namespace farleaf::server {

namespace {

void AppendEscaped(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (c == '\\' || c == '"') out->push_back('\\');
    if (c == '\n') {
      out->append("\\n");
    } else {
      out->push_back(c);
    }
  }
}

/// `{a="1",b="2"}`, or nothing.
void AppendLabels(const MetricLabels& labels, std::string* out) {
  char before = '{';
  for (const MetricLabel& label : labels) {
    fmt::format_to(std::back_inserter(*out), "{}{}=\"", before, label.name);
    AppendEscaped(label.value, out);
    out->push_back('"');
    before = ',';
  }
  if (!labels.empty()) out->push_back('}');
}

}  // namespace

MetricsText::Family& MetricsText::Of(std::string_view name, std::string_view type,
                                     std::string_view help) {
  auto at = families_.find(name);
  if (at == families_.end()) {
    at = families_.emplace(name, Family{type, std::string(help), {}}).first;
  }
  FARLEAF_CHECK(at->second.type == type && at->second.help == help, name);
  return at->second;
}

void MetricsText::Counter(std::string_view name, std::string_view help, const MetricLabels& labels,
                          double value) {
  FARLEAF_DCHECK(name.ends_with("_total"), name);
  std::string& out = Of(name, "counter", help).samples;
  out.append(name);
  AppendLabels(labels, &out);
  fmt::format_to(std::back_inserter(out), " {}\n", value);
}

void MetricsText::Gauge(std::string_view name, std::string_view help, const MetricLabels& labels,
                        double value) {
  std::string& out = Of(name, "gauge", help).samples;
  out.append(name);
  AppendLabels(labels, &out);
  fmt::format_to(std::back_inserter(out), " {}\n", value);
}

void MetricsText::Histogram(std::string_view name, std::string_view help,
                            const MetricLabels& labels, const HistogramSample& sample) {
  std::string& out = Of(name, "histogram", help).samples;
  MetricLabels with_bound = labels;
  with_bound.push_back({"le", ""});
  const auto bucket = [&](std::string_view upper, uint64_t up_to) {
    with_bound.back().value = upper;
    out.append(name).append("_bucket");
    AppendLabels(with_bound, &out);
    fmt::format_to(std::back_inserter(out), " {}\n", up_to);
  };
  for (const auto& [upper, up_to] : sample.buckets) bucket(fmt::format("{}", upper), up_to);
  bucket("+Inf", sample.count);
  out.append(name).append("_sum");
  AppendLabels(labels, &out);
  fmt::format_to(std::back_inserter(out), " {}\n", sample.sum);
  out.append(name).append("_count");
  AppendLabels(labels, &out);
  fmt::format_to(std::back_inserter(out), " {}\n", sample.count);
}

std::string MetricsText::ToString() const {
  std::string text;
  for (const auto& [name, family] : families_) {
    fmt::format_to(std::back_inserter(text), "# HELP {} {}\n# TYPE {} {}\n{}", name, family.help,
                   name, family.type, family.samples);
  }
  return text;
}

}  // namespace farleaf::server
