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
    {"sweep_turns", &Counters::sweep_turns},
    {"swept_records", &Counters::swept_records},
    {"swept_expired", &Counters::swept_expired},
};
}  // namespace

void Counters::AddTo(Counters* sum) const {
  for (size_t i = 0; i < kVerbCount; ++i) Add(sum->commands[i], commands[i].load());
  for (const auto& [name, count] : kNamed) Add(sum->*count, (this->*count).load());
}

void Counters::AppendTo(std::string* text) const {
  auto out = std::back_inserter(*text);
  for (size_t i = 1; i < kVerbCount; ++i) {
    const uint64_t count = commands[i].load();
    if (count > 0) {
      fmt::format_to(out, "memcached.{}.count {}\n", VerbName(static_cast<Verb>(i)), count);
    }
  }
  for (const auto& [name, count] : kNamed) {
    fmt::format_to(out, "memcached.{} {}\n", name, (this->*count).load());
  }
}

}  // namespace farleaf::server::memcached
