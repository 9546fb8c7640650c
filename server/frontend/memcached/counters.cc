#include "server/frontend/memcached/counters.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace farleaf::server::memcached {

namespace {
using Count = Counters::Count;
constexpr std::pair<std::string_view, Count Counters::*> kNamed[] = {
    {"failed", &Counters::failed},
    {"keys_got", &Counters::keys_got},
    {"get_hits", &Counters::get_hits},
    {"get_misses", &Counters::get_misses},
    {"delete_hits", &Counters::delete_hits},
    {"delete_misses", &Counters::delete_misses},
    {"incr_hits", &Counters::incr_hits},
    {"incr_misses", &Counters::incr_misses},
    {"decr_hits", &Counters::decr_hits},
    {"decr_misses", &Counters::decr_misses},
    {"cas_hits", &Counters::cas_hits},
    {"cas_misses", &Counters::cas_misses},
    {"cas_badval", &Counters::cas_badval},
    {"touch_hits", &Counters::touch_hits},
    {"touch_misses", &Counters::touch_misses},
    {"round_trips", &Counters::round_trips},
};
}  // namespace

void Counters::AddTo(Counters* sum) const {
  for (size_t i = 0; i < kVerbCount; ++i) Add(sum->commands[i], commands[i].load());
  for (const auto& [name, count] : kNamed) Add(sum->*count, (this->*count).load());
}

void Counters::AppendTo(std::string* text) const {
  auto out = std::back_inserter(*text);
  for (const auto& [name, count] : kNamed) {
    fmt::format_to(out, "memcached.{} {}\n", name, (this->*count).load());
  }
}

void Counters::AppendMetrics(MetricsText* out) const {
  const auto by_outcome = [&](std::string_view command, const Count& hits, const Count& misses) {
    constexpr std::string_view kName = "farleaf_memcached_lookups_total";
    constexpr std::string_view kHelp = "Keys that commands of memcached's protocol looked for.";
    out->Counter(kName, kHelp, {{"command", command}, {"outcome", "hit"}},
                 static_cast<double>(hits.load()));
    out->Counter(kName, kHelp, {{"command", command}, {"outcome", "miss"}},
                 static_cast<double>(misses.load()));
  };
  by_outcome("get", get_hits, get_misses);
  by_outcome("delete", delete_hits, delete_misses);
  by_outcome("incr", incr_hits, incr_misses);
  by_outcome("decr", decr_hits, decr_misses);
  by_outcome("cas", cas_hits, cas_misses);
  by_outcome("touch", touch_hits, touch_misses);
}

}  // namespace farleaf::server::memcached
