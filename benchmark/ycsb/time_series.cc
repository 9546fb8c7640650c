#include "benchmark/ycsb/time_series.h"

#include <algorithm>

#include "benchmark/ycsb/hdr_codec.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

bool TimeSeries::Has(OpKind kind) const {
  return std::any_of(intervals.begin(), intervals.end(), [kind](const IntervalByKind& interval) {
    return interval[static_cast<size_t>(kind)].operations() > 0;
  });
}

void IntervalRecorder::MoveTo(uint64_t ended_ns) {
  if (current_end_ns_ != 0) CloseCurrent();
  current_ = std::min((ended_ns - 1) / interval_ns_, kIntervalsMax - 1);
  current_end_ns_ = current_ == kIntervalsMax - 1 ? UINT64_MAX : (current_ + 1) * interval_ns_;
}

void IntervalRecorder::CloseCurrent() {
  Closed& closed = closed_.emplace_back(Closed{.interval = current_, .kinds = {}});
  for (size_t i = 0; i < kOpKinds; ++i) {
    closed.kinds[i].failures = std::exchange(current_failures_[i], 0);
    if (!current_latency_ns_[i]) continue;
    closed.kinds[i].latency_ns = current_latency_ns_[i]->Sparse();
    current_latency_ns_[i]->Clear();
  }
}

TimeSeries MergeIntervals(std::span<IntervalRecorder* const> recorders, uint64_t interval_ns,
                          uint64_t elapsed_ns) {
  TimeSeries series{.interval_ns = interval_ns, .elapsed_ns = elapsed_ns, .intervals = {}};
  if (elapsed_ns == 0) return series;
  series.intervals.resize(std::min((elapsed_ns - 1) / interval_ns + 1, kIntervalsMax));
  std::vector<size_t> next(recorders.size(), 0);
  for (IntervalRecorder* recorder : recorders) recorder->CloseCurrent();
  std::array<Histogram, kOpKinds> together;
  for (size_t interval = 0; interval < series.intervals.size(); ++interval) {
    IntervalByKind& kinds = series.intervals[interval];
    for (size_t r = 0; r < recorders.size(); ++r) {
      const auto& closed = recorders[r]->closed_;
      if (next[r] == closed.size() || closed[next[r]].interval != interval) continue;
      for (size_t i = 0; i < kOpKinds; ++i) {
        kinds[i].failures += closed[next[r]].kinds[i].failures;
        together[i].Merge(closed[next[r]].kinds[i].latency_ns);
      }
      ++next[r];
    }
    for (size_t i = 0; i < kOpKinds; ++i) {
      kinds[i].latency_ns = together[i].Sparse();
      together[i].Clear();
    }
  }
  for (size_t r = 0; r < recorders.size(); ++r) {
    // An operation that ended after the phase would be a fault of ours.
    FARLEAF_CHECK(next[r] == recorders[r]->closed_.size(), next[r], recorders[r]->closed_.size());
  }
  return series;
}

namespace {

using Json = nlohmann::ordered_json;

Json IntervalToJson(const TimeSeries& series, size_t interval, const IntervalStats& stats) {
  const uint64_t operations = stats.operations(), length_ns = series.length_ns(interval);
  Json json;
  json["second"] = static_cast<double>(series.begin_ns(interval)) / 1e9;
  json["operations"] = operations;
  json["ops_per_s"] =
      length_ns ? static_cast<double>(operations) * 1e9 / static_cast<double>(length_ns) : 0;
  json["failures"] = stats.failures;
  Histogram latency_ns;
  latency_ns.Merge(stats.latency_ns);
  const bool any = latency_ns.count() > 0;
  const auto us = [any](uint64_t ns) { return any ? Json(static_cast<double>(ns) / 1e3) : Json(); };
  json["p50_us"] = us(latency_ns.Quantile(0.5));
  json["p99_us"] = us(latency_ns.Quantile(0.99));
  json["p999_us"] = us(latency_ns.Quantile(0.999));
  json["max_us"] = us(latency_ns.max());
  if (any) json["histogram"] = EncodeHistogram(stats.latency_ns);
  return json;
}

}  // namespace

Json SeriesToJson(const TimeSeries& series) {
  Json json;
  json["interval_s"] = static_cast<double>(series.interval_ns) / 1e9;
  if (series.intervals.empty()) return json;
  json["last_interval_s"] =
      static_cast<double>(series.length_ns(series.intervals.size() - 1)) / 1e9;
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (!series.Has(kind)) continue;
    Json& rows = json[std::string(OpKindName(kind))] = Json::array();
    for (size_t interval = 0; interval < series.intervals.size(); ++interval) {
      rows.push_back(IntervalToJson(series, interval, series.intervals[interval][i]));
    }
  }
  return json;
}

}  // namespace farleaf::ycsb
