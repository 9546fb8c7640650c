#include "server/control/server_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace farleaf::server {

namespace {

std::optional<uint64_t> NumberOf(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr std::pair<std::string_view, uint64_t KindCounts::*> kFields[] = {
    {".count", &KindCounts::count},
    {".failed", &KindCounts::failed},
    {".round_trips", &KindCounts::round_trips},
    {".bytes_read", &KindCounts::bytes_read},
    {".bytes_written", &KindCounts::bytes_written}};

/// Whether the line is of a kind of operation, which it is then added to.
bool AddToKind(const std::string& name, uint64_t value, std::map<std::string, KindCounts>* kinds) {
  constexpr std::string_view kBelow = ".latency_us.below.";
  const size_t below = name.find(kBelow);
  if (below != std::string::npos) {
    const auto bound = NumberOf(name.substr(below + kBelow.size()));
    if (bound) (*kinds)[name.substr(0, below)].below[*bound] = value;
    return bound.has_value();
  }
  for (const auto& [suffix, field] : kFields) {
    if (!name.ends_with(suffix)) continue;
    const std::string kind = name.substr(0, name.size() - suffix.size());
    // A kind's first line is its count; others' names may end alike.
    if (suffix != ".count" && !kinds->contains(kind)) return false;
    (*kinds)[kind].*field = value;
    return true;
  }
  return false;
}

/// How many were below `bound`, where bounds that nothing fell between are left out.
uint64_t UpTo(const std::map<uint64_t, uint64_t>& below, uint64_t bound) {
  const auto after = below.upper_bound(bound);
  return after == below.begin() ? 0 : std::prev(after)->second;
}

}  // namespace

ServerLook ParseLook(const StatLines& lines, uint64_t time_ns) {
  ServerLook look;
  look.time_ns = time_ns;
  for (const auto& [name, text] : lines) {
    const auto value = NumberOf(text);
    if (!value) look.texts[name] = text;
    if (value && !AddToKind(name, *value, &look.kinds)) look.others[name] = *value;
  }
  return look;
}

double LatencyQuantile(const std::map<uint64_t, uint64_t>& below, uint64_t count, double quantile) {
  if (count == 0 || below.empty()) return 0;
  const double wanted =
      std::clamp(quantile * static_cast<double>(count), 1.0, static_cast<double>(count));
  uint64_t lower = 0;
  for (const auto& [upper, up_to] : below) {
    if (static_cast<double>(up_to) >= wanted) {
      // Buckets are powers of two: the one that ends here begins at half of it.
      const auto begin = static_cast<double>(upper == 1 ? 0 : upper / 2);
      const auto inside = static_cast<double>(up_to - lower);
      const double share = inside > 0 ? (wanted - static_cast<double>(lower)) / inside : 1;
      return begin + share * (static_cast<double>(upper) - begin);
    }
    lower = up_to;
  }
  return static_cast<double>(below.rbegin()->first);
}

std::vector<KindRate> RatesBetween(const ServerLook& before, const ServerLook& after) {
  std::vector<KindRate> rates;
  const double seconds = static_cast<double>(after.time_ns - before.time_ns) * 1e-9;
  for (const auto& [name, now] : after.kinds) {
    const auto at = before.kinds.find(name);
    const KindCounts then = at == before.kinds.end() ? KindCounts() : at->second;
    if (now.count < then.count) return {};
    if (now.count == then.count || seconds <= 0) continue;
    KindRate rate;
    rate.name = name;
    rate.count = now.count - then.count;
    rate.failed = now.failed - std::min(then.failed, now.failed);
    const auto each = [&rate](uint64_t spent) {
      return static_cast<double>(spent) / static_cast<double>(rate.count);
    };
    rate.per_s = static_cast<double>(rate.count) / seconds;
    rate.failed_per_s = static_cast<double>(rate.failed) / seconds;
    rate.round_trips_each = each(now.round_trips - then.round_trips);
    rate.bytes_each =
        each(now.bytes_read + now.bytes_written - then.bytes_read - then.bytes_written);
    std::map<uint64_t, uint64_t> below;
    for (const auto& [bound, up_to] : now.below) below[bound] = up_to - UpTo(then.below, bound);
    rate.p50_us = LatencyQuantile(below, rate.count, 0.5);
    rate.p99_us = LatencyQuantile(below, rate.count, 0.99);
    rates.push_back(std::move(rate));
  }
  std::sort(rates.begin(), rates.end(),
            [](const KindRate& a, const KindRate& b) { return a.count > b.count; });
  return rates;
}

CacheRate CacheBetween(const ServerLook& before, const ServerLook& after) {
  constexpr std::pair<std::string_view, uint64_t CacheRate::*> kCounters[] = {
      {"cache_hits", &CacheRate::hits},
      {"cache_misses", &CacheRate::misses},
      {"cache_evictions", &CacheRate::evictions}};
  CacheRate rate;
  for (const auto& [name, now] : after.others) {
    // tree.NAME.cache_hits, of which a name may have any dots; lsm.cache_hits_KIND.
    const bool of_tree = name.starts_with("tree.");
    if (!of_tree && !name.starts_with("lsm.")) continue;
    const std::string_view what =
        of_tree ? std::string_view(name).substr(name.rfind('.') + 1)
                : std::string_view(name).substr(4, std::max(name.rfind('_'), size_t{4}) - 4);
    for (const auto& [counter, count] : kCounters) {
      // One that was started anew in between has done all of it since.
      const uint64_t then = before.number(name);
      if (what == counter) rate.*count += now < then ? now : now - then;
    }
    if (name == "lsm.cache_bytes" || (of_tree && what == "cache_bytes")) rate.bytes += now;
  }
  return rate;
}

nlohmann::ordered_json CacheJson(const CacheRate& rate) {
  return {{"hits", rate.hits},
          {"misses", rate.misses},
          {"evictions", rate.evictions},
          {"bytes", rate.bytes}};
}

std::string CacheText(const CacheRate& rate, const std::string& indent) {
  return fmt::format("{}cache: {} hits, {} misses, {} evictions; {:.1f} MiB\n", indent, rate.hits,
                     rate.misses, rate.evictions, static_cast<double>(rate.bytes) / (1 << 20));
}

nlohmann::ordered_json RatesJson(const std::vector<KindRate>& rates) {
  auto all = nlohmann::ordered_json::array();
  for (const KindRate& rate : rates) {
    all.push_back({{"operation", rate.name},
                   {"count", rate.count},
                   {"failed", rate.failed},
                   {"per_s", rate.per_s},
                   {"failed_per_s", rate.failed_per_s},
                   {"round_trips_each", rate.round_trips_each},
                   {"bytes_each", rate.bytes_each},
                   {"p50_us", rate.p50_us},
                   {"p99_us", rate.p99_us}});
  }
  return all;
}

std::string RatesTable(const std::vector<KindRate>& rates, const std::string& indent) {
  std::string text =
      fmt::format("{}{:<26} {:>10} {:>9} {:>9} {:>10} {:>10} {:>10}\n", indent, "operation", "/s",
                  "failed/s", "trips/op", "bytes/op", "p50 us", "p99 us");
  for (const KindRate& rate : rates) {
    fmt::format_to(std::back_inserter(text),
                   "{}{:<26} {:>10.0f} {:>9.0f} {:>9.2f} {:>10.0f} {:>10.0f} {:>10.0f}\n", indent,
                   rate.name, rate.per_s, rate.failed_per_s, rate.round_trips_each, rate.bytes_each,
                   rate.p50_us, rate.p99_us);
  }
  if (rates.empty()) text += indent + "(no operations)\n";
  return text;
}

}  // namespace farleaf::server
