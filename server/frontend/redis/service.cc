#include "server/frontend/redis/service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "server/metrics/process_metrics.h"

namespace farleaf::server::redis {

using dsm::Task;

Service::Service(Deps deps)
    : Environment({deps.thread, &deps.keyspace->store, deps.authenticator, deps.slow_log},
                  deps.counters),
      deps_(std::move(deps)) {}

std::unique_ptr<server::Connection> Service::NewConnection() {
  auto connection = std::make_unique<Connection>(this, deps_.options.limits, deps_.connection_id());
  if (deps_.thread->full()) {
    connection->RefuseAtOnce(
        Status::ResourceExhausted("the server has its connections, the limit (connections_max)"));
  }
  return connection;
}

uint64_t Service::DeadlineNs() {
  return deps_.thread->worker().clock().NowNs() + deps_.deadline_ms * kNsPerMs;
}

Task<Status> Service::FlushAll() {
  dsm::FabricCounts counts;
  const Status flushed =
      co_await DeleteAll(WalkOn(*deps_.thread, counts, deps_.deadline_ms), store(), kUserKeySpace);
  Counters::Add(counters().round_trips, counts.round_trips);
  co_return flushed;
}

namespace {

/// As Redis shows a number of bytes to people.
std::string HumanBytes(uint64_t bytes) {
  constexpr std::string_view kUnits = "BKMGTP";
  if (bytes < 1'024) return fmt::format("{}B", bytes);
  size_t unit = 0;
  auto shown = static_cast<double>(bytes);
  for (; shown >= 1'024 && unit + 1 < kUnits.size(); ++unit) shown /= 1'024;
  return fmt::format("{:.2f}{}", shown, kUnits[unit]);
}

void AppendMemory(std::string* out) {
  const ProcessMemory memory = ReadProcessMemory();
  const auto line = [out](std::string_view name, uint64_t bytes) {
    fmt::format_to(std::back_inserter(*out), "{}:{}\r\n{}_human:{}\r\n", name, bytes, name,
                   HumanBytes(bytes));
  };
  out->append("# Memory\r\n");
  line("used_memory", memory.own_bytes);
  line("used_memory_rss", memory.resident_bytes);
  line("total_system_memory", memory.machine_bytes);
  line("maxmemory", 0);
  out->append("maxmemory_policy:noeviction\r\n");
}

}  // namespace

// Redis has a line for each database with its keys. Here only a walk over all of them can count them, which DBSIZE does;
// what the sweep has counted as it came by has other names, lest it be taken for what is there now.
void Service::AppendKeyspace(const Facts& facts, std::string* out) const {
  out->append("# Keyspace\r\n");
  if (!facts.swept_keys) return;
  const uint64_t now_ns = deps_.thread->worker().clock().NowNs();
  const uint64_t ended_ns = std::min(facts.swept_keys->ended_ns, now_ns);
  fmt::format_to(std::back_inserter(*out),
                 "farleaf_swept_keys:{}\r\nfarleaf_swept_expires:{}\r\n"
                 "farleaf_swept_seconds_ago:{}\r\n",
                 facts.swept_keys->keys, facts.swept_keys->expiring,
                 (now_ns - ended_ns) / kNsPerSecond);
}

void Service::AppendInfo(std::string_view section, std::string* out) {
  Facts facts;
  deps_.gather_facts(&facts);
  auto to = std::back_inserter(*out);
  if (section == "server") {
    fmt::format_to(to,
                   "# Server\r\nredis_version:{}\r\nfarleaf_version:{}\r\nredis_mode:standalone\r\n"
                   "process_id:{}\r\nuptime_in_seconds:{}\r\nfarleaf_threads:{}\r\n"
                   "farleaf_record_tree:{}\r\n",
                   kSpokenRelease, FARLEAF_VERSION, ::getpid(), facts.uptime_s, facts.threads,
                   facts.record_tree);
  } else if (section == "clients") {
    fmt::format_to(to, "# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n",
                   facts.connections_open, facts.connections_max);
  } else if (section == "memory") {
    AppendMemory(out);
  } else if (section == "stats") {
    fmt::format_to(
        to,
        "# Stats\r\ntotal_connections_received:{}\r\nrejected_connections:{}\r\n"
        "total_commands_processed:{}\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\n"
        "expired_keys:{}\r\nevicted_keys:0\r\nfarleaf_refused:{}\r\nfarleaf_failed:{}\r\n"
        "farleaf_round_trips:{}\r\n",
        facts.connections_accepted, facts.connections_refused, facts.commands,
        facts.counters.key_hits.load(), facts.counters.key_misses.load(), facts.swept_expired,
        facts.counters.refused.load(), facts.counters.failed.load(),
        facts.counters.round_trips.load());
  } else if (section == "replication") {
    out->append("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
  } else if (section == "cluster") {
    out->append("# Cluster\r\ncluster_enabled:0\r\n");
  } else if (section == "keyspace") {
    AppendKeyspace(facts, out);
  }
}

std::vector<std::pair<std::string, std::string>> Service::Settings() {
  Facts facts;
  deps_.gather_facts(&facts);
  const Limits& limits = deps_.options.limits;
  return {{"appendonly", "no"},
          {"databases", "1"},
          {"maxclients", std::to_string(facts.connections_max)},
          {"maxmemory", "0"},
          {"maxmemory-policy", "noeviction"},
          {"proto-max-bulk-len", std::to_string(limits.value_bytes_max)},
          {"redis-out-bytes-max", std::to_string(limits.out_bytes_max)},
          {"redis-reply-bytes-max", std::to_string(limits.reply_bytes_max)},
          {"redis-request-bytes-max", std::to_string(limits.request_bytes_max)},
          {"save", ""}};
}

}  // namespace farleaf::server::redis
