#include "server/pool_tree_host.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "dsm/base/log.h"
#include "index/blink/catalog.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;

static_assert(static_cast<int>(protocol::TreeLayout::kFixed8) ==
                      static_cast<int>(index::Layout::kFixed8) &&
                  static_cast<int>(protocol::TreeLayout::kBytes) ==
                      static_cast<int>(index::Layout::kBytes),
              "the layouts' numbers are converted by a cast");

namespace {

protocol::TreeInfo Describe(const index::TreeInfo& tree) {
  protocol::TreeInfo info;
  info.id = tree.id;
  info.layout = static_cast<protocol::TreeLayout>(tree.geometry.layout);
  info.key_bytes_max = tree.geometry.key_bytes_max;
  const bool fixed8 = tree.geometry.layout == index::Layout::kFixed8;
  info.value_bytes_max = fixed8 ? 8 : static_cast<uint32_t>(index::kValueBytesMax);
  info.leaf_layout = static_cast<protocol::LeafLayout>(tree.geometry.leaf_layout);
  info.leaf_bytes = tree.geometry.leaf_bytes;
  info.node_bytes = tree.geometry.node_bytes;
  info.name = tree.name;
  return info;
}

}  // namespace

index::Geometry GeometryOf(protocol::TreeLayout layout, const protocol::TreeGeometry& wanted) {
  const auto keys = static_cast<index::Layout>(layout);
  const index::LeafLayout leaves = wanted.leaf_layout == protocol::LeafLayout::kDefault
                                       ? index::Geometry::DefaultLeaves(keys)
                                       : static_cast<index::LeafLayout>(wanted.leaf_layout);
  index::Geometry geometry = index::Geometry::DefaultOf(keys, leaves);
  geometry.leaf_layout = leaves;
  if (wanted.leaf_bytes != 0) geometry.leaf_bytes = wanted.leaf_bytes;
  if (wanted.node_bytes != 0) geometry.node_bytes = wanted.node_bytes;
  if (wanted.key_bytes_max != 0) geometry.key_bytes_max = wanted.key_bytes_max;
  if (wanted.inline_value_bytes_max != 0) {
    geometry.inline_value_bytes_max = wanted.inline_value_bytes_max;
  }
  return geometry;
}

Task<Result<HostedTree>> PoolTreeHost::Open(OpContext& op, std::string_view name) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, open] : trees_) {
      if (open.tree->info().name == name) {
        co_return HostedTree{Describe(open.tree->info()), open.tree.get()};
      }
    }
  }
  auto info = co_await index::OpenTree(op, *pool_, std::string(name));
  if (!info.ok()) co_return info.status();
  bool created = false;
  const HostedTree opened = Keep(std::move(*info), &created);
  if (created) co_await Warm(op, opened.info.id);
  co_return opened;
}

Task<Result<HostedTree>> PoolTreeHost::Create(OpContext& op, const NewTree& tree) {
  const index::Geometry geometry = GeometryOf(tree.layout, tree.geometry);
  FARLEAF_CO_RETURN_IF_ERROR(geometry.Validate());
  auto info = co_await index::CreateTree(op, *pool_, tree.name, geometry);
  if (!info.ok()) co_return info.status();
  bool created = false;
  const HostedTree kept = Keep(std::move(*info), &created);
  co_return kept;
}

Task<Result<std::vector<protocol::TreeInfo>>> PoolTreeHost::List(OpContext& op) {
  auto trees = co_await index::ListTrees(op, *pool_);
  if (!trees.ok()) co_return trees.status();
  std::vector<protocol::TreeInfo> all;
  for (const index::TreeInfo& tree : *trees) all.push_back(Describe(tree));
  co_return all;
}

/// Of two threads that open one tree at once, the second takes the first's.
HostedTree PoolTreeHost::Keep(index::TreeInfo info, bool* created) {
  std::lock_guard lock(mutex_);
  auto& tree = trees_[info.id].tree;
  *created = tree == nullptr;
  if (!tree) tree = std::make_unique<index::BlinkTree>(pool_, std::move(info), options_);
  return {Describe(tree->info()), tree.get()};
}

Task<void> PoolTreeHost::Warm(OpContext& op, uint32_t id) {
  index::BlinkTree* const tree = FindTree(id);
  const dsm::FabricCounts before = op.counts;
  const uint64_t start_ns = op.worker.clock().NowNs();
  const Status status = co_await tree->WarmCache(op);
  const Warming warming{op.counts.round_trips - before.round_trips,
                        op.counts.bytes_read - before.bytes_read,
                        op.worker.clock().NowNs() - start_ns};
  if (!status.ok()) {
    FARLEAF_LOG(warn, "tree '{}' is served with a cold cache: {}", tree->info().name,
                status.ToString());
  } else if (tree->cache().nodes() > 0) {
    FARLEAF_LOG(
        info, "tree '{}': cache of {} nodes, {} bytes, read in {} bytes, {} round trips, {:.1f} ms",
        tree->info().name, tree->cache().nodes(), tree->cache().bytes(), warming.bytes_read,
        warming.round_trips, static_cast<double>(warming.ns) * 1e-6);
  }
  std::lock_guard lock(mutex_);
  trees_[id].warming = warming;
}

HostedTree PoolTreeHost::Find(uint32_t id) {
  index::BlinkTree* const tree = FindTree(id);
  return tree ? HostedTree{Describe(tree->info()), tree} : HostedTree{};
}

index::BlinkTree* PoolTreeHost::FindTree(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto it = trees_.find(id);
  return it == trees_.end() ? nullptr : it->second.tree.get();
}

Task<Status> PoolTreeHost::OpenThoseToKeepUp(OpContext& op) {
  std::set<uint16_t> missing = pool_->unresolved_locks().TreesFor(op.worker.number());
  std::erase_if(missing, [this](uint16_t id) { return id == 0 || FindTree(id) != nullptr; });
  if (missing.empty()) co_return Status::Ok();
  auto all = co_await index::ListTrees(op, *pool_);
  if (!all.ok()) co_return all.status();
  for (index::TreeInfo& info : *all) {
    bool created = false;
    if (missing.contains(info.id)) Keep(std::move(info), &created);
  }
  co_return Status::Ok();
}

Task<Status> PoolTreeHost::Upkeep(OpContext& op) {
  Status kept = co_await index::SettleCatalogLock(op, *pool_);
  Status opened = co_await OpenThoseToKeepUp(op);
  if (kept.ok()) kept = std::move(opened);
  std::vector<index::BlinkTree*> open;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, each] : trees_) open.push_back(each.tree.get());
  }
  for (index::BlinkTree* tree : open) {
    Status status = co_await tree->Upkeep(op);
    if (kept.ok()) kept = std::move(status);
  }
  co_return kept;
}

void PoolTreeHost::AppendStats(std::string* text) const {
  auto out = std::back_inserter(*text);
  fmt::format_to(out,
                 "pool.bootstrap {}\npool.fabric {}\npool.memory_servers {}\npool.member {}\n"
                 "pool.incarnation {}\npool.joins {}\npool.unresolved_locks {}\n",
                 bootstrap_, pool_->fabric().name(), pool_->fabric().regions().size(),
                 pool_->self().id, pool_->self().incarnation, joins_,
                 pool_->unresolved_locks().size());
  std::lock_guard lock(mutex_);
  for (const auto& [id, open] : trees_) {
    const index::BlinkTree* const tree = open.tree.get();
    const index::TreeStats& stats = tree->stats();
    const auto line = [&](std::string_view what, uint64_t value) {
      fmt::format_to(out, "tree.{}.{} {}\n", tree->info().name, what, value);
    };
    line("splits", stats.splits);
    line("merges", stats.merges);
    line("hops", stats.hops);
    line("path_refreshes", stats.path_refreshes);
    line("cache_refreshes", stats.cache_refreshes);
    line("cache_bytes", tree->cache().bytes());
    line("cache_budget_bytes", tree->cache().budget_bytes());
    line("cache_nodes", tree->cache().nodes());
    line("cache_hits", tree->cache_hits());
    line("cache_misses", stats.cache_misses);
    line("cache_evictions", tree->cache().evictions());
    line("cache_warm_bytes", open.warming.bytes_read);
    line("cache_warm_round_trips", open.warming.round_trips);
    line("cache_warm_us", open.warming.ns / 1'000);
    line("descent_bytes", stats.descent_bytes);
    line("path_refresh_bytes", stats.path_refresh_bytes);
    line("hop_refresh_bytes", stats.hop_refresh_bytes);
    line("cache_refresh_bytes", stats.cache_refresh_bytes - open.warming.bytes_read);
    line("torn_reads", stats.torn_reads);
    line("lock_conflicts", stats.lock_conflicts);
    line("redo_slot_waits", stats.slot_waits);
    line("handovers", stats.handovers);
    line("separators_completed", stats.separators_completed);
  }
}

}  // namespace farleaf::server
