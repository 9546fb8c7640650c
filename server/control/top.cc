// The command top: a live table of what compute servers do.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/control/control.h"
#include "server/control/server_rates.h"
#include "server/control/terminal.h"

namespace farleaf::server {

using Json = nlohmann::ordered_json;

namespace {

/// A compute server that is watched; one that cannot be reached is looked for again at each turn.
struct Watched {
  std::string url;
  std::unique_ptr<Store> store;
  std::optional<ServerLook> before, now;
  Status status;

  ServerRates rates() const {
    if (!before || !now) return {};
    return {RatesBetween(*before, *now), CacheBetween(*before, *now)};
  }
};

void LookAt(Watched* server, const client::Options& options, const Clock* clock) {
  server->before = std::exchange(server->now, std::nullopt);
  if (!server->store) {
    auto opened = OpenServerStore(server->url, options, clock);
    server->status = opened.status();
    if (!opened.ok()) return;
    server->store = std::move(*opened);
  }
  const auto lines = server->store->Status();
  server->status = lines.status();
  if (lines.ok()) server->now = ParseLook(*lines, clock->NowNs());
}

void PrintTable(const std::vector<Watched>& servers) {
  for (const Watched& server : servers) {
    if (!server.status.ok()) {
      fmt::print("{}  {}\n\n", server.url, server.status.ToString());
      continue;
    }
    const auto rates = server.rates();
    double all = 0;
    for (const KindRate& rate : rates.kinds) all += rate.per_s;
    fmt::print("{}  {:.0f} operations/s, {} connections\n{}{}\n", server.url, all,
               server.now->number("connections.open"), RatesTable(rates.kinds, "  "),
               CacheText(rates.cache, "  "));
  }
}

void PrintJson(const std::vector<Watched>& servers) {
  Json json = Json::array();
  for (const Watched& server : servers) {
    Json& each = json.emplace_back(Json{{"server", server.url}});
    if (server.status.ok()) {
      each["connections"] = server.now->number("connections.open");
      const ServerRates rates = server.rates();
      each["rates"] = RatesJson(rates.kinds);
      each["cache"] = CacheJson(rates.cache);
    } else {
      each["error"] = server.status.ToString();
    }
  }
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Result<int> Control::Top() {
  if (!on_server()) {
    return farleaf::Status::InvalidArgument(
        "top watches compute servers, of which a pool does not know the addresses: give --server "
        "URL, once for each");
  }
  const auto options = ClientOptions();
  if (!options.ok()) return options.status();
  auto terminal = Terminal::Open();
  if (!terminal.ok()) return terminal.status();
  std::vector<Watched> servers(arguments_.servers.size());
  for (size_t i = 0; i < servers.size(); ++i) servers[i].url = arguments_.servers[i];
  for (Watched& server : servers) {
    LookAt(&server, *options, &clock_);
    // Before the first table a server that cannot be reached is a mistake; later it may come back.
    if (!server.status.ok()) return server.status;
  }
  do {
    if ((*terminal)->WaitForQuit(arguments_.interval_ms)) break;
    for (Watched& server : servers) LookAt(&server, *options, &clock_);
    if (arguments_.json) {
      PrintJson(servers);
      continue;
    }
    (*terminal)->Clear();
    PrintTable(servers);
    if (!arguments_.once) fmt::print("every {} ms; q ends it\n", arguments_.interval_ms);
  } while (!arguments_.once);
  return kDone;
}

}  // namespace farleaf::server
