// MetricsText: Prometheus's text format, version 0.0.4, as one scrape answers it: families in the order of their
// names, each with its samples together, whoever added them.
//
// Thread rule: a value type with one owner.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farleaf::server {

struct MetricLabel {
  std::string_view name;
  std::string_view value;
};
using MetricLabels = std::vector<MetricLabel>;

/// Counts of a histogram by their upper bounds, which ascend; values above the last bound are in `count` alone.
struct HistogramSample {
  struct Bucket {
    double upper = 0;
    uint64_t up_to = 0;  ///< how many are no larger
  };
  std::vector<Bucket> buckets;
  uint64_t count = 0;
  double sum = 0;
};

class MetricsText {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// REQUIRES: the name ends in _total, and always comes with the same help.
  void Counter(std::string_view name, std::string_view help, const MetricLabels& labels,
               double value);
  void Gauge(std::string_view name, std::string_view help, const MetricLabels& labels,
             double value);
  void Histogram(std::string_view name, std::string_view help, const MetricLabels& labels,
                 const HistogramSample& sample);

  std::string ToString() const;

 private:
  struct Family {
    std::string_view type;
    std::string help;
    std::string samples;
  };
  Family& Of(std::string_view name, std::string_view type, std::string_view help);

  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace farleaf::server
