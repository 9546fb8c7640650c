#include "server/pool_tree_host.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <utility>

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
  index::Geometry geometry = layout == protocol::TreeLayout::kFixed8 ? index::Geometry::Fixed8()
                                                                     : index::Geometry::Bytes();
  if (wanted.leaf_bytes != 0) geometry.leaf_bytes = wanted.leaf_bytes;
  if (wanted.node_bytes != 0) geometry.node_bytes = wanted.node_bytes;
  if (wanted.leaf_layout != protocol::LeafLayout::kDefault) {
    geometry.leaf_layout = static_cast<index::LeafLayout>(wanted.leaf_layout);
  }
  if (wanted.key_bytes_max != 0) geometry.key_bytes_max = wanted.key_bytes_max;
  if (wanted.inline_value_bytes_max != 0) {
    geometry.inline_value_bytes_max = wanted.inline_value_bytes_max;
  }
  return geometry;
}

Task<Result<HostedTree>> PoolTreeHost::Open(OpContext& op, std::string_view name) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, tree] : trees_) {
      if (tree->info().name == name) co_return HostedTree{Describe(tree->info()), tree.get()};
    }
  }
  auto info = co_await index::OpenTree(op, *pool_, std::string(name));
  if (!info.ok()) co_return info.status();
  const HostedTree opened = Keep(std::move(*info));
  co_return opened;
}

Task<Result<HostedTree>> PoolTreeHost::Create(OpContext& op, const NewTree& tree) {
  const index::Geometry geometry = GeometryOf(tree.layout, tree.geometry);
  FARLEAF_CO_RETURN_IF_ERROR(geometry.Validate());
  auto info = co_await index::CreateTree(op, *pool_, tree.name, geometry);
  if (!info.ok()) co_return info.status();
  const HostedTree created = Keep(std::move(*info));
  co_return created;
}

Task<Result<std::vector<protocol::TreeInfo>>> PoolTreeHost::List(OpContext& op) {
  auto trees = co_await index::ListTrees(op, *pool_);
  if (!trees.ok()) co_return trees.status();
  std::vector<protocol::TreeInfo> all;
  for (const index::TreeInfo& tree : *trees) all.push_back(Describe(tree));
  co_return all;
}

/// Of two threads that open one tree at once, the second takes the first's.
HostedTree PoolTreeHost::Keep(index::TreeInfo info) {
  std::lock_guard lock(mutex_);
  auto& tree = trees_[info.id];
  if (!tree) tree = std::make_unique<index::BlinkTree>(pool_, std::move(info), options_);
  return {Describe(tree->info()), tree.get()};
}

HostedTree PoolTreeHost::Find(uint32_t id) {
  index::BlinkTree* const tree = FindTree(id);
  return tree ? HostedTree{Describe(tree->info()), tree} : HostedTree{};
}

index::BlinkTree* PoolTreeHost::FindTree(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto it = trees_.find(id);
  return it == trees_.end() ? nullptr : it->second.get();
}

void PoolTreeHost::AppendStats(std::string* text) const {
  auto out = std::back_inserter(*text);
  fmt::format_to(out,
                 "pool.bootstrap {}\npool.fabric {}\npool.memory_servers {}\npool.member {}\n"
                 "pool.incarnation {}\npool.joins {}\n",
                 bootstrap_, pool_->fabric().name(), pool_->fabric().regions().size(),
                 pool_->self().id, pool_->self().incarnation, joins_);
  std::lock_guard lock(mutex_);
  for (const auto& [id, tree] : trees_) {
    const index::TreeStats& stats = tree->stats();
    const auto line = [&](std::string_view what, uint64_t value) {
      fmt::format_to(out, "tree.{}.{} {}\n", tree->info().name, what, value);
    };
    line("splits", stats.splits);
    line("merges", stats.merges);
    line("hops", stats.hops);
    line("path_refreshes", stats.path_refreshes);
    line("cache_refreshes", stats.cache_refreshes);
    line("torn_reads", stats.torn_reads);
    line("lock_conflicts", stats.lock_conflicts);
    line("handovers", stats.handovers);
    line("separators_completed", stats.separators_completed);
  }
}

}  // namespace farleaf::server
