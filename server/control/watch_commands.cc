// The commands that show what a pool and a compute server are doing: status, stats, slow-log.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "server/control/control.h"
#include "server/control/member_text.h"
#include "server/control/server_rates.h"

namespace farleaf::server {

using Json = nlohmann::ordered_json;

namespace {

/// A memory server's lines of Store::PoolStatus, under their names without its own.
using ServerLines = std::map<std::string, std::string>;

std::map<uint64_t, ServerLines> ByMemoryServer(const StatLines& lines) {
  constexpr std::string_view kPrefix = "memory_server.";
  std::map<uint64_t, ServerLines> servers;
  for (const auto& [name, value] : lines) {
    if (!name.starts_with(kPrefix)) continue;
    const size_t dot = name.find('.', kPrefix.size());
    if (dot == std::string::npos) continue;
    servers[std::stoull(name.substr(kPrefix.size()))][name.substr(dot + 1)] = value;
  }
  return servers;
}

double UsedShare(const ServerLines& server) {
  const auto number = [&server](const std::string& name) {
    const auto at = server.find(name);
    return at == server.end() ? 0.0 : std::stod(at->second);
  };
  const double all = number("chunks");
  return all > 0 ? (all - number("chunks.unused")) / all : 0;
}

void PrintMemoryServers(const std::map<uint64_t, ServerLines>& servers) {
  fmt::print("memory servers\n  {:>4} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8}\n", "id", "memory",
             "used", "leaf", "search", "value", "redo");
  for (const auto& [id, server] : servers) {
    const auto text = [&](const std::string& name) {
      const auto at = server.find(name);
      return at == server.end() ? std::string("?") : at->second;
    };
    fmt::print("  {:>4} {:>10} {:>5.1f} % {:>8} {:>8} {:>8} {:>8}\n", id, text("bytes"),
               100 * UsedShare(server), text("chunks.leaf"), text("chunks.search"),
               text("chunks.value"), text("chunks.redo"));
  }
}

std::string LeaseText(const PoolMember& member) {
  return member.watched_by.empty()
             ? std::string("no leases")
             : fmt::format("leases at {} memory servers", member.watched_by.size());
}

/// Whether the server keeps its trees in a store on its own disk.
bool HasStore(const ServerLook& look) { return look.others.contains("lsm.segments"); }

void PrintStore(const ServerLook& look) {
  const auto mib = [&look](const char* name) {
    return static_cast<double>(look.number(name)) / (1 << 20);
  };
  fmt::print("store on its disk\n  {:.1f} MiB in segments, {:.1f} MiB free\n  levels, MiB:",
             2.0 * static_cast<double>(look.number("lsm.segments")), mib("lsm.device_bytes_free"));
  for (int level = 1;; ++level) {
    const std::string name = fmt::format("lsm.level{}_bytes", level);
    if (level > 1 && !look.others.contains(name)) break;
    fmt::print(" {:.1f}", mib(name.c_str()));
  }
  fmt::print("; memtable {:.1f} MiB; cache {:.1f} of {:.1f} MiB\n", mib("lsm.memtable_bytes"),
             mib("lsm.cache_bytes"), mib("lsm.cache_budget_bytes"));
  const std::string failure = look.text("lsm.writing_failure");
  fmt::print("  writing: {}{}{}\n", look.text("lsm.writing"), failure.empty() ? "" : ": ",
             PrintBytes(failure, TextForm::kText));
}

}  // namespace

Result<int> Control::Stats() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto lines = store_->Status();
  if (!lines.ok()) return lines.status();
  size_t width = 0;
  for (const auto& [name, value] : *lines) width = std::max(width, name.size());
  std::string json;
  for (const auto& [name, value] : *lines) {
    if (!arguments_.json) fmt::print("{:<{}}  {}\n", name, width, value);
    json += fmt::format("{}{}: {}", json.empty() ? "" : ", ", JsonString(name), JsonString(value));
  }
  if (arguments_.json) fmt::print("{{{}}}\n", json);
  return kDone;
}

Result<int> Control::SlowLog() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto text = store_->SlowLog();
  if (!text.ok()) return text.status();
  if (arguments_.json) {
    fmt::print("{}", *text);
    return kDone;
  }
  const Json entries = Json::parse(*text, nullptr, false);
  if (!entries.is_array()) return farleaf::Status::Corruption("the slow log is no JSON array");
  fmt::print("{:>6} {:>14} {:>12} {:>6} {:<10} {:<16} {:<24} {}\n", "id", "time ms", "took us",
             "trips", "protocol", "command", "client", "key");
  for (const Json& each : entries) {
    fmt::print("{:>6} {:>14} {:>12} {:>6} {:<10} {:<16} {:<24} {}{}\n",
               each.value("id", uint64_t{0}), each.value("time_ms", uint64_t{0}),
               each.value("duration_us", uint64_t{0}), each.value("round_trips", uint64_t{0}),
               each.value("protocol", ""), each.value("command", ""), each.value("client", ""),
               each.value("key", ""), each.value("failed", false) ? "  (failed)" : "");
  }
  return kDone;
}

Result<ServerLook> Control::Look() {
  const auto lines = store_->Status();
  if (!lines.ok()) return lines.status();
  return ParseLook(*lines, clock_.NowNs());
}

Result<int> Control::Status() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto trees = store_->ListTrees();
  if (!trees.ok()) return trees.status();
  ServerRates rates;
  ServerLook look;
  if (on_server()) {
    const auto before = Look();
    if (!before.ok()) return before.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments_.interval_ms));
    auto after = Look();
    if (!after.ok()) return after.status();
    rates = {RatesBetween(*before, *after), CacheBetween(*before, *after)};
    look = std::move(*after);
  }
  // A compute server may be reached from where its pool may not.
  const auto pool = store_->PoolStatus();
  if (!pool.ok() && !on_server()) return pool.status();
  const auto members =
      pool.ok() ? store_->Members(0) : Result<std::vector<PoolMember>>(pool.status());
  if (arguments_.json) {
    PrintStatusJson(*trees, pool, members, look, rates);
    return kDone;
  }
  if (pool.ok()) {
    PrintMemoryServers(ByMemoryServer(*pool));
  } else if (HasStore(look)) {
    PrintStore(look);
  } else {
    fmt::print("the pool is not reached from here: {}\n", pool.status().ToString());
  }
  if (members.ok()) {
    fmt::print("compute servers\n");
    for (const PoolMember& member : *members) {
      if (!member.live) continue;
      fmt::print("  {:>4} incarnation {}, {}, {}\n", member.identity.id,
                 member.identity.incarnation, StateText(member), LeaseText(member));
    }
  }
  fmt::print("trees\n");
  for (const client::TreeInfo& tree : *trees) {
    fmt::print("  {:>4} {:<7} {}\n", tree.id, TreeLayoutName(tree.layout),
               PrintBytes(tree.name, TextForm::kText));
  }
  if (!on_server()) return kDone;
  const std::string name =
      HasStore(look) ? std::string("engine lsm")
                     : fmt::format("compute server {} (incarnation {})", look.number("pool.member"),
                                   look.number("pool.incarnation"));
  fmt::print("{}, {}\n  {} connections, {} accepted, {} refused\n{}{}", arguments_.servers.front(),
             name, look.number("connections.open"), look.number("connections.accepted"),
             look.number("connections.refused"), RatesTable(rates.kinds, "  "),
             CacheText(rates.cache, "  "));
  return kDone;
}

void Control::PrintStatusJson(const std::vector<client::TreeInfo>& trees,
                              const Result<StatLines>& pool,
                              const Result<std::vector<PoolMember>>& members,
                              const ServerLook& look, const ServerRates& rates) const {
  Json json;
  if (pool.ok()) {
    Json& servers = json["memory_servers"] = Json::array();
    for (const auto& [id, lines] : ByMemoryServer(*pool)) {
      Json server = {{"id", id}, {"used", UsedShare(lines)}};
      for (const auto& [name, value] : lines) server[name] = value;
      servers.push_back(std::move(server));
    }
  } else if (HasStore(look)) {
    for (const auto& [name, value] : look.others) {
      if (name.starts_with("lsm.")) json["store"][name.substr(4)] = value;
    }
  } else {
    json["pool_error"] = pool.status().ToString();
  }
  if (members.ok()) {
    Json& all = json["compute_servers"] = Json::array();
    for (const PoolMember& member : *members) {
      if (member.live) all.push_back(Json::parse(MemberJson(member)));
    }
  }
  Json& all_trees = json["trees"] = Json::array();
  for (const client::TreeInfo& tree : trees) all_trees.push_back(Json::parse(TreeJson(tree)));
  if (on_server()) {
    Json& server = json["server"];
    server["url"] = arguments_.servers.front();
    for (const char* name : {"pool.member", "pool.incarnation", "pool.joins", "connections.open",
                             "connections.accepted", "connections.refused"}) {
      server[name] = look.number(name);
    }
    server["rates"] = RatesJson(rates.kinds);
    server["cache"] = CacheJson(rates.cache);
  }
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace farleaf::server
