#include "server/control/region_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/region_views.h"
#include "server/control/text_form.h"

namespace farleaf::server {

using membership::kNoNode;
using membership::NodeEntry;
using membership::NodeId;
using membership::RegionEntry;
using membership::RegionState;

namespace {

using Row = std::vector<std::string>;

/// Columns of their widest cell, two blanks apart.
std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// "-": none. A key of that name is quoted, as all are.
std::string KeyCell(std::string_view key, bool is_none) {
  return is_none ? "-" : '"' + PrintBytes(key, TextForm::kText) + '"';
}
std::string NodeCell(NodeId node) { return node == kNoNode ? "-" : std::to_string(node); }
std::string NodesCell(const std::vector<NodeId>& nodes) {
  return nodes.empty() ? "-" : fmt::format("{}", fmt::join(nodes, ","));
}

struct Load {
  size_t primaries = 0, replicas = 0, filling = 0;
};
std::map<NodeId, Load> Loads(const RegionListing& listing) {
  std::map<NodeId, Load> loads;
  for (const RegionEntry& region : listing.regions) {
    if (region.primary != kNoNode) ++loads[region.primary].primaries;
    for (const NodeId node : region.in_sync) ++loads[node].replicas;
    for (const NodeId node : region.filling) ++loads[node].filling;
  }
  return loads;
}

const char* StateOf(const RegionListing& listing, NodeId node) {
  if (cluster::Contains(listing.leaving, node)) return "leaving";
  return "there";
}

std::string JsonKey(std::string_view key) { return JsonString(PrintBytes(key, TextForm::kText)); }

}  // namespace

std::string RegionsText(const RegionListing& listing) {
  std::vector<Row> regions = {{"region", "first key", "end", "view", "primary", "in sync",
                               "filling", "successor", "assigned", "split at"}};
  for (const RegionEntry& region : listing.regions) {
    regions.push_back({std::to_string(static_cast<uint32_t>(region.id)),
                       KeyCell(region.start, false), KeyCell(region.end, region.end.empty()),
                       std::to_string(region.view), NodeCell(region.primary),
                       NodesCell(region.in_sync), NodesCell(region.filling),
                       NodeCell(region.successor), NodesCell(region.assigned),
                       KeyCell(region.split_at, region.split_at.empty())});
  }
  std::vector<Row> nodes = {
      {"node", "state", "incarnation", "primaries", "in sync", "filling", "clients", "memory"}};
  std::map<NodeId, Load> loads = Loads(listing);
  const auto add = [&](NodeId id, const char* state, const std::string& incarnation,
                       const NodeEntry& node) {
    const Load load = loads[id];
    loads.erase(id);
    nodes.push_back({std::to_string(id), state, incarnation, std::to_string(load.primaries),
                     std::to_string(load.replicas), std::to_string(load.filling),
                     node.native_endpoints.empty()
                         ? "-"
                         : fmt::format("{}", fmt::join(node.native_endpoints, ",")),
                     node.fabric_endpoint.empty() ? "-" : node.fabric_endpoint});
  };
  for (const NodeEntry& node : listing.nodes) {
    add(node.id, StateOf(listing, node.id), std::to_string(node.incarnation), node);
  }
  // Who is gone, and is still a member of something.
  while (!loads.empty()) add(loads.begin()->first, "gone", "-", NodeEntry());
  return Table(regions) + "\n" + Table(nodes);
}

std::string RegionsJson(const RegionListing& listing) {
  std::vector<std::string> regions, nodes;
  for (const RegionEntry& region : listing.regions) {
    regions.push_back(fmt::format(
        "{{\"id\":{},\"start\":{},\"end\":{},\"view\":{},\"moves\":{},\"state\":\"{}\","
        "\"primary\":{},\"in_sync\":[{}],\"filling\":[{}],\"successor\":{},\"assigned\":[{}],"
        "\"split_at\":{}}}",
        static_cast<uint32_t>(region.id), JsonKey(region.start),
        region.end.empty() ? "null" : JsonKey(region.end), region.view, region.moves,
        region.state == RegionState::kServing ? "serving" : "headless",
        region.primary == kNoNode ? "null" : std::to_string(region.primary),
        fmt::join(region.in_sync, ","), fmt::join(region.filling, ","),
        region.successor == kNoNode ? "null" : std::to_string(region.successor),
        fmt::join(region.assigned, ","),
        region.split_at.empty() ? "null" : JsonKey(region.split_at)));
  }
  std::map<NodeId, Load> loads = Loads(listing);
  for (const NodeEntry& node : listing.nodes) {
    std::vector<std::string> natives;
    for (const std::string& native : node.native_endpoints) natives.push_back(JsonString(native));
    const Load load = loads[node.id];
    nodes.push_back(fmt::format(
        "{{\"id\":{},\"state\":\"{}\",\"incarnation\":{},\"primaries\":{},\"in_sync\":{},"
        "\"filling\":{},\"native_endpoints\":[{}],\"fabric_endpoint\":{}}}",
        node.id, StateOf(listing, node.id), node.incarnation, load.primaries, load.replicas,
        load.filling, fmt::join(natives, ","),
        node.fabric_endpoint.empty() ? "null" : JsonString(node.fabric_endpoint)));
  }
  return fmt::format("{{\"map_version\":{},\"regions\":[{}],\"nodes\":[{}]}}\n",
                     listing.map_version, fmt::join(regions, ","), fmt::join(nodes, ","));
}

}  // namespace farleaf::server
