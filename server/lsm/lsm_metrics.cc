// What an LSM store tells those who watch a server.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "server/lsm/lsm_tree_host.h"

namespace farleaf::server {

using index::lsm::kLevelsMax;

namespace {

/// By index::lsm::BlockKind.
constexpr std::array<std::string_view, index::lsm::kBlockKinds> kBlockNames = {"leaf", "inner",
                                                                               "value"};

/// By index::lsm::WaitsFor.
constexpr std::array<std::string_view, index::lsm::kWaitsFor> kWaitNames = {"collection", "merges",
                                                                            "flushes", "logs"};

struct LevelUse {
  uint64_t tables = 0, bytes = 0;
};

}  // namespace

struct LsmTreeHost::StoreLook {
  std::array<LevelUse, kLevelsMax> levels;
  uint64_t fresh_runs = 0, kept_tables = 0;
  index::lsm::LsmStore::Memtables memtables;
  index::lsm::BlockCacheMetrics cache;
  index::lsm::StoreMetrics done;
  index::lsm::LsmStore::SnapshotMetrics snapshots;
  index::storage::StorageCounts device;
  index::storage::StorageSpace space;
  Status writing;  ///< LsmTreeHost::Health
};

LsmTreeHost::StoreLook LsmTreeHost::Look() const {
  StoreLook look;
  look.writing = Health();
  std::shared_ptr<const index::lsm::Version> version;
  {
    std::lock_guard lock(observer_mutex_);
    observer_->GoOnline();
    version = deps_.store->version();
    look.memtables = deps_.store->memtables();
    observer_->GoOffline();
  }
  look.fresh_runs = version->fresh;
  for (const index::lsm::Run& run : version->runs) {
    look.levels[run.place.level].tables += run.tables.size();
    look.levels[run.place.level].bytes += run.bytes;
    if (run.kept) look.kept_tables += run.tables.size();
  }
  look.cache = deps_.store->cache().metrics();
  look.done = deps_.store->metrics();
  look.snapshots = deps_.store->snapshot_metrics();
  look.device = deps_.storage->counts();
  if (const auto space = deps_.storage->Space(); space.ok()) look.space = *space;
  return look;
}

void LsmTreeHost::AppendStats(std::string* text) const {
  const StoreLook look = Look();
  const index::lsm::LsmOptions& options = deps_.store->options();
  const bool synced = options.durability == index::lsm::Durability::kSynced;
  fmt::format_to(std::back_inserter(*text),
                 "engine lsm\nlsm.data_dir {}\nlsm.durability {}\nlsm.writing {}\n", deps_.place,
                 synced ? "synced" : "local", look.writing.ok() ? "ok" : "failed");
  if (!look.writing.ok()) {
    std::string reason(look.writing.message());
    std::ranges::replace(reason, '\n', ' ');
    fmt::format_to(std::back_inserter(*text), "lsm.writing_failure {}\n", reason);
  }
  const auto line = [&](std::string_view what, uint64_t value) {
    fmt::format_to(std::back_inserter(*text), "lsm.{} {}\n", what, value);
  };
  line("memtable_bytes", look.memtables.active_bytes);
  line("flushing_bytes", look.memtables.flushing_bytes.value_or(0));
  line("flushes", look.memtables.flushes);
  line("fresh_runs", look.fresh_runs);
  line("kept_tables", look.kept_tables);
  line("kept_segments", deps_.store->kept_segments());
  line("value_segments", deps_.store->garbage().segments());
  line("value_garbage_bytes", deps_.store->garbage().garbage_bytes());
  line("collected_segments", deps_.store->collected_segments());
  line("snapshots", look.snapshots.open);
  line("snapshot_oldest_ms", look.snapshots.oldest_age_ms);
  line("snapshot_segments_held", look.snapshots.segments_held);
  line("flushed_bytes", look.done.flushed_bytes);
  line("merged_bytes_read", look.done.merged_bytes_read);
  line("merged_bytes_written", look.done.merged_bytes_written);
  line("reclaimed_tables", look.done.reclaimed_tables);
  line("reclaim_bytes_read", look.done.reclaimed_bytes_read);
  line("collection_moved_bytes", look.done.moved_bytes);
  line("recovered_changes", look.done.recovered_changes);
  line("recovery_us", look.done.recovery_ns / 1000);
  for (size_t i = 0; i < kWaitNames.size(); ++i) {
    line(fmt::format("writers_waited_for_{}", kWaitNames[i]), look.done.waits[i].count);
    line(fmt::format("writers_waited_for_{}_us", kWaitNames[i]),
         look.done.waits[i].total_ns / 1000);
    line(fmt::format("writers_waited_for_{}_longest_us", kWaitNames[i]),
         look.done.waits[i].longest_ns / 1000);
  }
  size_t levels = kLevelsMax;  // down to the deepest that is used
  while (levels > 0 && look.levels[levels - 1].tables == 0) --levels;
  for (size_t level = 0; level < levels; ++level) {
    line(fmt::format("level{}_bytes", level + 1), look.levels[level].bytes);
    line(fmt::format("level{}_tables", level + 1), look.levels[level].tables);
  }
  line("cache_bytes", look.cache.bytes());
  line("cache_budget_bytes", deps_.store->cache().bytes_max());
  line("tables_memory_bytes", deps_.store->cache().reserved());
  line("tables_memory_beyond_budget_bytes", deps_.store->cache().over_reserved());
  for (size_t kind = 0; kind < kBlockNames.size(); ++kind) {
    line(fmt::format("cache_hits_{}", kBlockNames[kind]), look.cache.kinds[kind].hits);
    line(fmt::format("cache_misses_{}", kBlockNames[kind]), look.cache.kinds[kind].misses);
    line(fmt::format("cache_evictions_{}", kBlockNames[kind]), look.cache.kinds[kind].evictions);
  }
  line("device_reads", look.device.reads);
  line("device_writes", look.device.writes);
  line("device_syncs", look.device.syncs);
  line("device_bytes_read", look.device.bytes_read);
  line("device_bytes_written", look.device.bytes_written);
  line("device_longest_read_us", look.device.longest_read_ns / 1000);
  line("device_longest_write_us", look.device.longest_write_ns / 1000);
  line("device_longest_sync_us", look.device.longest_sync_ns / 1000);
  line("device_longest_create_us", look.device.longest_create_ns / 1000);
  line("device_longest_file_us", look.device.longest_file_ns / 1000);
  line("full", deps_.store->full() ? 1 : 0);
  line("writes_refused", look.done.writes_refused);
  line("segments", look.space.segments);
  line("reserve_segments", look.space.reserve);
  line("reserve_segments_held", look.space.reserve_held);
  line("device_bytes_free", look.space.bytes_free);
  std::lock_guard lock(mutex_);
  line("trees", trees_.size());
}

// Of what is done behind the writers' backs, and how long they wait for it.
void LsmTreeHost::AppendWork(const StoreLook& look, MetricsText* out) const {
  const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
    out->Gauge(name, help, {}, static_cast<double>(value));
  };
  gauge("farleaf_lsm_value_segments", "Full segments of values.",
        deps_.store->garbage().segments());
  gauge("farleaf_lsm_value_garbage_bytes", "Of them, as far as merges have told.",
        deps_.store->garbage().garbage_bytes());
  gauge("farleaf_lsm_snapshots", "That are open.", look.snapshots.open);
  out->Gauge("farleaf_lsm_snapshot_oldest_seconds", "The oldest one's age.", {},
             static_cast<double>(look.snapshots.oldest_age_ms) / 1e3);
  gauge("farleaf_lsm_snapshot_segments_held",
        "Segments of values that were collected, and wait for snapshots and reads.",
        look.snapshots.segments_held);
  out->Counter("farleaf_lsm_collected_segments_total", "Segments of values that were emptied.", {},
               static_cast<double>(deps_.store->collected_segments()));
  gauge("farleaf_lsm_full", "1: nothing but deletes is taken until there is room.",
        deps_.store->full() ? 1 : 0);
  out->Counter("farleaf_lsm_writes_refused_total", "As the device was full.", {},
               static_cast<double>(look.done.writes_refused));
  gauge("farleaf_lsm_reserve_segments", "To be kept for making room on a full device.",
        look.space.reserve);
  gauge("farleaf_lsm_reserve_segments_held", "Of them are there.", look.space.reserve_held);
  constexpr std::string_view kWork = "Of flushes, of merges, and of values that were moved.";
  const auto work = [&](std::string_view what, uint64_t bytes) {
    out->Counter("farleaf_lsm_work_bytes_total", kWork, {{"work", what}},
                 static_cast<double>(bytes));
  };
  work("flushed", look.done.flushed_bytes);
  work("merge_read", look.done.merged_bytes_read);
  work("merge_written", look.done.merged_bytes_written);
  work("reclaim_read", look.done.reclaimed_bytes_read);
  work("value_moved", look.done.moved_bytes);
  gauge("farleaf_lsm_recovered_changes", "That the last start replayed.",
        look.done.recovered_changes);
  out->Gauge("farleaf_lsm_recovery_seconds", "What that took.", {},
             static_cast<double>(look.done.recovery_ns) / 1e9);
  for (size_t i = 0; i < kWaitNames.size(); ++i) {
    const MetricLabels labels = {{"for", kWaitNames[i]}};
    const auto& waits = look.done.waits[i];
    out->Counter("farleaf_lsm_writer_waits_total", "Changes that had to wait.", labels,
                 static_cast<double>(waits.count));
    out->Counter("farleaf_lsm_writer_wait_seconds_total", "For how long, all together.", labels,
                 static_cast<double>(waits.total_ns) / 1e9);
    out->Gauge("farleaf_lsm_writer_wait_longest_seconds", "The longest of them.", labels,
               static_cast<double>(waits.longest_ns) / 1e9);
  }
  constexpr std::string_view kLongest = "The longest that one was waited for.";
  const auto longest = [&](std::string_view kind, uint64_t ns) {
    out->Gauge("farleaf_lsm_device_longest_seconds", kLongest, {{"kind", kind}},
               static_cast<double>(ns) / 1e9);
  };
  longest("read", look.device.longest_read_ns);
  longest("write", look.device.longest_write_ns);
  longest("sync", look.device.longest_sync_ns);
  longest("create", look.device.longest_create_ns);
  longest("file", look.device.longest_file_ns);
}

void LsmTreeHost::AppendMetrics(MetricsText* out) const {
  const StoreLook look = Look();
  const auto gauge = [&](std::string_view name, std::string_view help, const MetricLabels& labels,
                         uint64_t value) {
    out->Gauge(name, help, labels, static_cast<double>(value));
  };
  const auto counter = [&](std::string_view name, std::string_view help, const MetricLabels& labels,
                           uint64_t value) {
    out->Counter(name, help, labels, static_cast<double>(value));
  };
  gauge("farleaf_lsm_writing", "1: writing to disk gets on.", {}, look.writing.ok() ? 1 : 0);
  constexpr std::string_view kMemtables = "Memory of changes that are in no table yet.";
  gauge("farleaf_lsm_memtable_bytes", kMemtables, {{"memtable", "active"}},
        look.memtables.active_bytes);
  gauge("farleaf_lsm_memtable_bytes", kMemtables, {{"memtable", "flushing"}},
        look.memtables.flushing_bytes.value_or(0));
  counter("farleaf_lsm_flushes_total", "Memtables that have become tables.", {},
          look.memtables.flushes);
  gauge("farleaf_lsm_fresh_runs", "Flushed memtables that are not merged into level 1 yet.", {},
        look.fresh_runs);
  gauge("farleaf_lsm_kept_tables",
        "Tables that cannot be read as wholes, and are kept beside others.", {}, look.kept_tables);
  gauge("farleaf_lsm_kept_segments", "Segments of values that damage keeps from being collected.",
        {}, deps_.store->kept_segments());
  AppendWork(look, out);
  for (size_t level = 0; level < kLevelsMax; ++level) {
    const std::string number = std::to_string(level + 1);
    gauge("farleaf_lsm_level_bytes", "Of tables, by level.", {{"level", number}},
          look.levels[level].bytes);
    gauge("farleaf_lsm_level_tables", "Tables, by level.", {{"level", number}},
          look.levels[level].tables);
  }
  gauge("farleaf_lsm_cache_bytes", "Memory of the cache of blocks.", {}, look.cache.bytes());
  gauge("farleaf_lsm_cache_budget_bytes", "What it may take, with what is known of tables.", {},
        deps_.store->cache().bytes_max());
  gauge("farleaf_lsm_tables_memory_bytes",
        "What is known of tables, for which the cache gives way.", {},
        deps_.store->cache().reserved());
  gauge("farleaf_lsm_tables_memory_beyond_budget_bytes",
        "Of that, what the cache does not give way for.", {}, deps_.store->cache().over_reserved());
  for (size_t kind = 0; kind < kBlockNames.size(); ++kind) {
    const MetricLabels labels = {{"block", kBlockNames[kind]}};
    const auto& of_kind = look.cache.kinds[kind];
    counter("farleaf_lsm_cache_hits_total", "Blocks that the cache had.", labels, of_kind.hits);
    counter("farleaf_lsm_cache_misses_total", "Blocks that it lacked.", labels, of_kind.misses);
    counter("farleaf_lsm_cache_evictions_total", "Blocks that it had no room for.", labels,
            of_kind.evictions);
  }
  constexpr std::string_view kIos = "Transfers and Syncs of the data directory.";
  counter("farleaf_lsm_device_ios_total", kIos, {{"kind", "read"}}, look.device.reads);
  counter("farleaf_lsm_device_ios_total", kIos, {{"kind", "write"}}, look.device.writes);
  counter("farleaf_lsm_device_ios_total", kIos, {{"kind", "sync"}}, look.device.syncs);
  constexpr std::string_view kBytes = "Bytes transferred from and to the data directory.";
  counter("farleaf_lsm_device_bytes_total", kBytes, {{"direction", "read"}},
          look.device.bytes_read);
  counter("farleaf_lsm_device_bytes_total", kBytes, {{"direction", "written"}},
          look.device.bytes_written);
  gauge("farleaf_lsm_segments", "Segments of 2 MiB in the data directory.", {},
        look.space.segments);
  gauge("farleaf_lsm_device_free_bytes", "What the device has left for new ones.", {},
        look.space.bytes_free);
}

}  // namespace farleaf::server
