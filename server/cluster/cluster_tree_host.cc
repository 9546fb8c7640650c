#include "server/cluster/cluster_tree_host.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/lsm/catalog_entry.h"
#include "server/membership/counters.h"
#include "server/membership/path.h"

namespace farleaf::server::cluster {

using dsm::OpContext;
using dsm::Task;
using dsm::Worker;
using index::PrefixedIndex;
using membership::Watch;

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string TreePath(std::string_view name) {
  std::string path = ClusterTreeHost::kTreesPath;
  path += '/';
  for (const char each : name) {
    const auto byte = static_cast<uint8_t>(each);
    path += kHexDigits[byte >> 4];
    path += kHexDigits[byte & 15];
  }
  return path;
}

/// nullopt: no entry of a tree.
std::optional<std::string> NameOfEntry(std::string_view hex) {
  if (hex.empty() || hex.size() % 2 != 0) return std::nullopt;
  std::string name;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const size_t high = kHexDigits.find(hex[i]), low = kHexDigits.find(hex[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    name += static_cast<char>(high << 4 | low);
  }
  return name;
}

Status NoTree(std::string_view name) {
  return Status::NotFound("tree \"" + std::string(name) + "\" does not exist");
}

Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= ClusterTreeHost::kNameBytesMax) return Status::Ok();
  return Status::InvalidArgument("a tree's name of " + std::to_string(name.size()) +
                                 " bytes; 1 to " + std::to_string(ClusterTreeHost::kNameBytesMax) +
                                 " are allowed in a cluster");
}

}  // namespace

ClusterTreeHost::ClusterTreeHost(Deps deps, Options options)
    : deps_(std::move(deps)), options_(std::move(options)), peers_(options_.peers, deps_.clock) {}

uint32_t ClusterTreeHost::view() const {
  const auto table = deps_.routes->Now();
  return table == nullptr ? 1 : table->view;
}

void ClusterTreeHost::GetRangeMap(uint32_t* view,
                                  std::vector<protocol::ServedRange>* ranges) const {
  const auto table = deps_.routes->Now();
  ranges->clear();
  if (table == nullptr) {
    *view = 1;
    ranges->push_back({});
    return;
  }
  *view = table->view;
  for (const Route& route : table->routes) {
    const std::string& url = route.primary == membership::kNoNode ? std::string() : route.url;
    if (ranges->empty() || ranges->back().url != url) ranges->push_back({route.start, url});
  }
}

HostedTree ClusterTreeHost::FindName(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto number = numbers_.find(name);
  if (number == numbers_.end()) return {};
  const Tree& tree = trees_.at(number->second);
  return {tree.info, tree.index.get()};
}

HostedTree ClusterTreeHost::Find(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto at = trees_.find(id);
  return at == trees_.end() ? HostedTree{} : HostedTree{at->second.info, at->second.index.get()};
}

// Two that keep the same entry at once keep one tree.
Result<HostedTree> ClusterTreeHost::Keep(std::string_view name, std::string_view entry_bytes) {
  const auto entry = ParseCatalogEntry(name, entry_bytes);
  if (!entry.ok()) return entry.status();
  std::lock_guard lock(mutex_);
  Tree& tree = trees_[entry->number];
  if (!tree.index) {
    tree.info = InfoOf(*entry, name);
    tree.index = std::make_unique<RoutedIndex>(
        deps_.routes, &peers_,
        RoutedIndex::Tree{std::string(name), entry->number, LimitsOf(*entry)}, options_.routing);
    numbers_.emplace(std::string(name), entry->number);
  } else if (tree.info.name != name) {
    return Status::Corruption("the membership has number " + std::to_string(entry->number) +
                              " for two trees, \"" + tree.info.name + "\" and \"" +
                              std::string(name) + "\"");
  }
  return HostedTree{tree.info, tree.index.get()};
}

// A session may read what was there before another one's change; not behind a change of its own. So what is not there is looked up behind
// one that changes nothing.
Task<Result<std::string>> ClusterTreeHost::ReadEntry(Worker& worker, std::string path) {
  auto entry = co_await deps_.session->Get(worker, path, Watch::kNothing);
  if (entry.status().code() == StatusCode::kNotFound) {
    auto caught_up = co_await deps_.session->Set(worker, kTreesPath, "", std::nullopt);
    if (!caught_up.ok()) co_return caught_up.status();  // NotFound: there is no tree at all
    entry = co_await deps_.session->Get(worker, path, Watch::kNothing);
  }
  if (!entry.ok()) co_return entry.status();
  co_return std::move(entry->bytes);
}

Task<Result<HostedTree>> ClusterTreeHost::Open(OpContext& op, std::string_view name) {
  const HostedTree known = FindName(name);
  if (known.index != nullptr) co_return known;
  if (!CheckName(name).ok()) co_return NoTree(name);
  const std::string path = TreePath(name);
  auto entry = co_await ReadEntry(op.worker, path);
  if (entry.status().code() == StatusCode::kNotFound) co_return NoTree(name);
  if (!entry.ok()) co_return entry.status();
  co_return Keep(name, *entry);
}

Task<Result<uint16_t>> ClusterTreeHost::TakeNumber(Worker& worker) {
  auto number = co_await membership::NextNumber(worker, *deps_.session, kNextTreePath);
  if (!number.ok()) co_return number.status();
  if (*number >= PrefixedIndex::kNumberEnd) {
    co_return Status::ResourceExhausted(
        "this cluster has had 65534 trees, which is all there can be");
  }
  co_return static_cast<uint16_t>(*number);
}

Task<Result<HostedTree>> ClusterTreeHost::Create(OpContext& op, const NewTree& tree) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckName(tree.name));
  auto entry = NewCatalogEntry(tree.layout, tree.geometry.key_bytes_max);
  if (!entry.ok()) co_return entry.status();
  // A taken name costs no number.
  const Status exists = Status::AlreadyExists("tree \"" + tree.name + "\" exists");
  const auto opened = co_await Open(op, tree.name);
  if (opened.ok()) co_return exists;
  if (opened.status().code() != StatusCode::kNotFound) co_return opened.status();
  const Status made = co_await membership::CreatePath(op.worker, *deps_.session, kTreesPath);
  if (!made.ok()) co_return made;
  const auto number = co_await TakeNumber(op.worker);
  if (!number.ok()) co_return number.status();
  entry->number = *number;
  const std::string path = TreePath(tree.name), bytes = EncodeCatalogEntry(*entry);
  const membership::CreateOptions persistent;
  const auto created = co_await deps_.session->Create(op.worker, path, bytes, persistent);
  if (created.status().code() == StatusCode::kAlreadyExists) co_return exists;
  if (!created.ok()) co_return created.status();
  co_return Keep(tree.name, bytes);
}

Task<Result<std::vector<protocol::TreeInfo>>> ClusterTreeHost::List(OpContext& op) {
  std::vector<protocol::TreeInfo> all;
  auto entries = co_await deps_.session->Children(op.worker, kTreesPath, Watch::kNothing);
  if (entries.status().code() == StatusCode::kNotFound) co_return all;
  if (!entries.ok()) co_return entries.status();
  for (const std::string& entry : *entries) {
    const auto name = NameOfEntry(entry);
    if (!name) co_return Status::Corruption("entry " + entry + " of trees names none");
    auto tree = co_await Open(op, *name);
    if (!tree.ok()) co_return tree.status();
    all.push_back(tree->info);
  }
  std::ranges::sort(all, {}, &protocol::TreeInfo::name);
  co_return all;
}

void ClusterTreeHost::AppendStats(std::string* text) const {
  const PeerLink::Counts& counts = peers_.counts();
  const auto line = [text](std::string_view name, uint64_t value) {
    *text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  line("view", view());
  line("forwarded", counts.requests.load());
  line("forwarded_unreachable", counts.unreachable.load());
}

void ClusterTreeHost::AppendMetrics(MetricsText* out) const {
  const PeerLink::Counts& counts = peers_.counts();
  out->Gauge("farleaf_cluster_view", "Of the map by which this node routes.", {}, view());
  out->Counter("farleaf_cluster_forwarded_total", "Requests sent to the nodes that have the keys.",
               {}, counts.requests.load());
  out->Counter("farleaf_cluster_forward_connections_total", "Made to these nodes.", {},
               counts.connects.load());
  out->Counter("farleaf_cluster_forward_unreachable_total",
               "Requests to nodes that could not be reached, to be routed again.", {},
               counts.unreachable.load());
}

}  // namespace farleaf::server::cluster
