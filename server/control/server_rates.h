// What a compute server did between two looks at its counters.
//
// Thread rule: pure functions and value types.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace farleaf::server {

using StatLines = std::vector<std::pair<std::string, std::string>>;

/// One kind of operation, as counted since the server started.
struct KindCounts {
  uint64_t count = 0, failed = 0, round_trips = 0, bytes_read = 0, bytes_written = 0;
  std::map<uint64_t, uint64_t> below;  ///< how many took less than so many microseconds
};

/// A server's counters at some instant.
struct ServerLook {
  uint64_t time_ns = 0;
  std::map<std::string, KindCounts> kinds;   ///< "get", "memcached.set"
  std::map<std::string, uint64_t> others;    ///< numbers that are not of a kind
  std::map<std::string, std::string> texts;  ///< what is no number
  std::string text(const std::string& name) const {
    const auto at = texts.find(name);
    return at == texts.end() ? std::string() : at->second;
  }
  uint64_t number(const std::string& name) const {
    const auto at = others.find(name);
    return at == others.end() ? 0 : at->second;
  }
};
ServerLook ParseLook(const StatLines& lines, uint64_t time_ns);

/// Of one kind, in the time between two looks.
struct KindRate {
  std::string name;
  uint64_t count = 0, failed = 0;
  double per_s = 0, failed_per_s = 0;
  double round_trips_each = 0, bytes_each = 0;
  double p50_us = 0, p99_us = 0;  ///< within a factor of two, as the counters are
};
/// Those that occurred, the most frequent first. Empty if the server was started anew between the looks.
std::vector<KindRate> RatesBetween(const ServerLook& before, const ServerLook& after);

/// What the caches of a server's trees, or its store's, did in the time between two looks, and hold at the second one.
struct CacheRate {
  /// Of trees: searches that the cached nodes have led to their end, and nodes that they lacked. Of a store: blocks.
  uint64_t hits = 0, misses = 0;
  uint64_t evictions = 0, bytes = 0;
};
CacheRate CacheBetween(const ServerLook& before, const ServerLook& after);
/// Both, of a server.
struct ServerRates {
  std::vector<KindRate> kinds;
  CacheRate cache;
};

nlohmann::ordered_json CacheJson(const CacheRate& rate);
/// One line.
std::string CacheText(const CacheRate& rate, const std::string& indent);

/// The latency that `quantile` (0..1) of `count` operations were below, by straight lines between the bounds.
double LatencyQuantile(const std::map<uint64_t, uint64_t>& below, uint64_t count, double quantile);

nlohmann::ordered_json RatesJson(const std::vector<KindRate>& rates);
/// A table with a line of headings; `indent` stands in front of each line.
std::string RatesTable(const std::vector<KindRate>& rates, const std::string& indent);

}  // namespace farleaf::server
