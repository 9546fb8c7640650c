// What PoolTreeHost tells those who watch a server.
#include <string>

#include "server/pool_tree_host.h"

namespace farleaf::server {

namespace {

/// A counter of every tree: `family` without farleaf_tree_ and _total; `label` tells those of a family apart.
struct TreeCounter {
  std::string_view family, help, label, value;
  std::atomic<uint64_t> index::TreeStats::*count;
};

constexpr std::string_view kRetries = "Work that was done again, or moved on, by its cause.";
constexpr std::string_view kCacheBytes = "Bytes of internal nodes that were read, by cause.";
constexpr TreeCounter kTreeCounters[] = {
    {"splits", "Splits of nodes.", "", "", &index::TreeStats::splits},
    {"merges", "Merges of nodes.", "", "", &index::TreeStats::merges},
    {"cache_misses", "Internal nodes that the cache lacked.", "", "",
     &index::TreeStats::cache_misses},
    {"cache_fill_bytes", kCacheBytes, "cause", "miss", &index::TreeStats::descent_bytes},
    {"cache_fill_bytes", kCacheBytes, "cause", "path_refresh",
     &index::TreeStats::path_refresh_bytes},
    {"cache_fill_bytes", kCacheBytes, "cause", "hop_refresh", &index::TreeStats::hop_refresh_bytes},
    {"cache_fill_bytes", kCacheBytes, "cause", "cache_refresh",
     &index::TreeStats::cache_refresh_bytes},
    {"cache_refreshes", "Refreshes of the whole cache.", "", "",
     &index::TreeStats::cache_refreshes},
    {"retries", kRetries, "cause", "torn_read", &index::TreeStats::torn_reads},
    {"retries", kRetries, "cause", "torn_value", &index::TreeStats::torn_values},
    {"retries", kRetries, "cause", "lock_conflict", &index::TreeStats::lock_conflicts},
    {"retries", kRetries, "cause", "hop", &index::TreeStats::hops},
    {"retries", kRetries, "cause", "restart", &index::TreeStats::restarts},
    {"retries", kRetries, "cause", "stale_lock", &index::TreeStats::stale_locks},
    {"retries", kRetries, "cause", "stale_part", &index::TreeStats::stale_parts},
    {"redo_slot_waits", "Waits for one of this member's redo slots.", "", "",
     &index::TreeStats::slot_waits},
    {"lock_handovers", "Locks passed on without the network.", "", "",
     &index::TreeStats::handovers},
    {"combined_changes", "Changes made by another operation's holder of the lock.", "", "",
     &index::TreeStats::combined},
    {"shared_reads", "Gets that another get's READ has answered.", "", "",
     &index::TreeStats::shared_reads},
    {"locks_taken_over", "Locks taken over from compute servers that are gone.", "", "",
     &index::TreeStats::locks_taken_over},
};

}  // namespace

void PoolTreeHost::AppendMetrics(MetricsText* out) const {
  const std::string fabric(pool_->fabric().name()), member = std::to_string(pool_->self().id);
  out->Gauge("farleaf_pool_member", "This compute server's id in the pool, as a label.",
             {{"member", member}, {"fabric", fabric}}, 1);
  out->Counter("farleaf_pool_joins_total", "How often this process has joined the pool.", {},
               static_cast<double>(joins_));
  out->Gauge("farleaf_pool_unresolved_locks", "Locks whose fate is unknown.", {},
             static_cast<double>(pool_->unresolved_locks().size()));
  std::lock_guard lock(mutex_);
  for (const auto& [id, open] : trees_) {
    const index::BlinkTree& tree = *open.tree;
    const MetricLabel by_tree{"tree", tree.info().name};
    for (const TreeCounter& counter : kTreeCounters) {
      MetricLabels labels = {by_tree};
      if (!counter.label.empty()) labels.push_back({counter.label, counter.value});
      out->Counter("farleaf_tree_" + std::string(counter.family) + "_total", counter.help, labels,
                   static_cast<double>((tree.stats().*counter.count).load()));
    }
    out->Counter("farleaf_tree_cache_hits_total",
                 "Searches for a node that the cache has led to their end.", {by_tree},
                 static_cast<double>(tree.cache_hits()));
    out->Counter("farleaf_tree_cache_evictions_total", "Nodes that the cache had no room for.",
                 {by_tree}, static_cast<double>(tree.cache().evictions()));
    const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
      out->Gauge(name, help, {by_tree}, static_cast<double>(value));
    };
    gauge("farleaf_tree_cache_bytes", "Memory of the cache of internal nodes.",
          tree.cache().bytes());
    gauge("farleaf_tree_cache_budget_bytes", "What it may take.", tree.cache().budget_bytes());
    gauge("farleaf_tree_cache_nodes", "Internal nodes in it.", tree.cache().nodes());
  }
}

}  // namespace farleaf::server
