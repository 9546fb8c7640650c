#include "server/frontend/memcached/service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>

namespace farleaf::server::memcached {

using dsm::Task;

std::string_view VersionText() { return "1.6.0-farleaf-" FARLEAF_VERSION; }

Service::Service(Deps deps)
    : Environment({deps.thread, &deps.keyspace->store, deps.authenticator, deps.slow_log},
                  deps.counters),
      deps_(std::move(deps)) {}

std::unique_ptr<server::Connection> Service::NewConnection() {
  auto connection = std::make_unique<Connection>(this, deps_.options.limits);
  if (deps_.thread->full()) {
    connection->RefuseAtOnce(
        "ERROR Too many open connections\r\n",
        Status::ResourceExhausted("the server has its connections, the limit (connections_max)"));
  }
  return connection;
}

uint64_t Service::DeadlineNs() {
  return deps_.thread->worker().clock().NowNs() + deps_.deadline_ms * kNsPerMs;
}

void Service::Tick() {
  if (deps_.house != nullptr) deps_.house->Tick(*deps_.thread);
}

Task<Status> Service::FlushAll(int64_t delay_s) {
  if (delay_s > 0) {
    deps_.keyspace->flush_at_ms.store(ExpiryMs(delay_s, store().NowMs()));
    co_return Status::Ok();
  }
  deps_.keyspace->flush_at_ms.store(0);
  dsm::FabricCounts counts;
  const Status flushed =
      co_await DeleteAll(WalkOn(*deps_.thread, counts, deps_.deadline_ms), store(), kUserKeySpace);
  Counters::Add(counters().round_trips, counts.round_trips);
  co_return flushed;
}

// ---- Statistics ----

bool Service::AppendStats(std::string_view argument, std::string* out) {
  if (argument.empty()) {
    AppendGeneralStats(out);
  } else if (argument == "settings") {
    AppendSettings(out);
  } else if (argument != "items" && argument != "slabs" && argument != "sizes") {
    return false;
  }
  return true;
}

void Service::AppendGeneralStats(std::string* out) {
  Facts facts;
  deps_.gather_facts(&facts);
  const Counters& counters = facts.counters;
  const auto line = [out](std::string_view name, uint64_t value) {
    fmt::format_to(std::back_inserter(*out), "STAT {} {}\r\n", name, value);
  };
  uint64_t sets = 0;
  for (Verb verb : {Verb::kSet, Verb::kAdd, Verb::kReplace, Verb::kAppend, Verb::kPrepend,
                    Verb::kCas, Verb::kMetaSet}) {
    sets += counters.of(verb);
  }
  line("pid", static_cast<uint64_t>(::getpid()));
  line("uptime", facts.uptime_s);
  line("time", store().NowMs() / 1'000);
  fmt::format_to(std::back_inserter(*out), "STAT version {}\r\n", VersionText());
  line("pointer_size", 8 * sizeof(void*));
  line("max_connections", facts.connections_max);
  line("curr_connections", facts.connections_open);
  line("total_connections", facts.connections_accepted);
  line("rejected_connections", facts.connections_refused);
  line("cmd_get", counters.keys_got);
  line("cmd_set", sets);
  line("cmd_flush", counters.of(Verb::kFlushAll));
  line("cmd_touch", counters.of(Verb::kTouch));
  line("cmd_meta", counters.of(Verb::kMetaGet) + counters.of(Verb::kMetaSet) +
                       counters.of(Verb::kMetaDelete) + counters.of(Verb::kMetaArithmetic) +
                       counters.of(Verb::kMetaNoop) + counters.of(Verb::kMetaDebug));
  line("get_hits", counters.get_hits);
  line("get_misses", counters.get_misses);
  line("delete_hits", counters.delete_hits);
  line("delete_misses", counters.delete_misses);
  line("incr_hits", counters.incr_hits);
  line("incr_misses", counters.incr_misses);
  line("decr_hits", counters.decr_hits);
  line("decr_misses", counters.decr_misses);
  line("cas_hits", counters.cas_hits);
  line("cas_misses", counters.cas_misses);
  line("cas_badval", counters.cas_badval);
  line("touch_hits", counters.touch_hits);
  line("touch_misses", counters.touch_misses);
  line("farleaf_failed", counters.failed);
  line("farleaf_round_trips", counters.round_trips);
  line("farleaf_swept_expired", facts.swept_expired);
  line("threads", facts.threads);
}

void Service::AppendSettings(std::string* out) {
  Facts facts;
  deps_.gather_facts(&facts);
  const Limits& limits = deps_.options.limits;
  fmt::format_to(std::back_inserter(*out),
                 "STAT maxconns {}\r\nSTAT num_threads {}\r\nSTAT item_size_max {}\r\n"
                 "STAT evictions off\r\nSTAT cas_enabled yes\r\nSTAT flush_enabled yes\r\n"
                 "STAT binding_protocol ascii\r\nSTAT farleaf_record_tree {}\r\n"
                 "STAT farleaf_line_bytes_max {}\r\nSTAT farleaf_out_bytes_max {}\r\n"
                 "STAT farleaf_expiry_sweep_s {}\r\n",
                 facts.connections_max, facts.threads, limits.value_bytes_max, facts.record_tree,
                 limits.line_bytes_max, limits.out_bytes_max, facts.expiry_sweep_s);
}

}  // namespace farleaf::server::memcached
