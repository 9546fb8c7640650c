#include "server/lsm/store_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace farleaf::server {

using index::lsm::kLevelsMax;

namespace {

/// By index::lsm::BlockKind.
constexpr std::array<std::string_view, index::lsm::kBlockKinds> kBlockNames = {"leaf", "inner",
                                                                               "value"};

/// By index::lsm::WaitsFor.
constexpr std::array<std::string_view, index::lsm::kWaitsFor> kWaitNames = {
    "collection", "merges", "flushes", "logs", "copies"};

MetricLabels With(MetricLabels base, MetricLabel label) {
  base.push_back(std::move(label));
  return base;
}

}  // namespace

StoreReport StoreReport::Look(index::lsm::LsmStore& store, index::storage::Storage& storage,
                              dsm::Worker& observer) {
  StoreReport report(store);
  dsm::FabricCounts counts;
  dsm::OpContext op{observer, counts};
  report.writing_ = observer.Run(store.Upkeep(op));
  observer.GoOnline();
  const std::shared_ptr<const index::lsm::Version> version = store.version();
  report.memtables_ = store.memtables();
  observer.GoOffline();
  report.fresh_runs_ = version->fresh;
  for (const index::lsm::Run& run : version->runs) {
    report.levels_[run.place.level].tables += run.tables.size();
    report.levels_[run.place.level].bytes += run.bytes;
    if (run.kept) report.kept_tables_ += run.tables.size();
  }
  report.cache_ = store.cache().metrics();
  report.done_ = store.metrics();
  report.snapshots_ = store.snapshot_metrics();
  report.device_ = storage.counts();
  if (const auto space = storage.Space(); space.ok()) report.space_ = *space;
  return report;
}

void StoreReport::AppendStats(std::string* text) const {
  const auto line = [&](std::string_view what, uint64_t value) {
    fmt::format_to(std::back_inserter(*text), "lsm.{} {}\n", what, value);
  };
  line("memtable_bytes", memtables_.active_bytes);
  line("flushing_bytes", memtables_.flushing_bytes.value_or(0));
  line("flushes", memtables_.flushes);
  line("fresh_runs", fresh_runs_);
  line("kept_tables", kept_tables_);
  line("kept_segments", store_.kept_segments());
  line("value_segments", store_.garbage().segments());
  line("value_garbage_bytes", store_.garbage().garbage_bytes());
  line("collected_segments", store_.collected_segments());
  line("snapshots", snapshots_.open);
  line("snapshot_oldest_ms", snapshots_.oldest_age_ms);
  line("snapshot_segments_held", snapshots_.segments_held);
  line("recovery_log_bytes", done_.recovery_log_bytes);
  line("value_log_bytes", done_.value_log_bytes);
  line("flushed_bytes", done_.flushed_bytes);
  line("merged_bytes_read", done_.merged_bytes_read);
  line("merged_bytes_written", done_.merged_bytes_written);
  line("reclaimed_tables", done_.reclaimed_tables);
  line("reclaim_bytes_read", done_.reclaimed_bytes_read);
  line("collection_moved_bytes", done_.moved_bytes);
  line("recovered_changes", done_.recovered_changes);
  line("recovery_us", done_.recovery_ns / 1000);
  for (size_t i = 0; i < kWaitNames.size(); ++i) {
    line(fmt::format("writers_waited_for_{}", kWaitNames[i]), done_.waits[i].count);
    line(fmt::format("writers_waited_for_{}_us", kWaitNames[i]), done_.waits[i].total_ns / 1000);
    line(fmt::format("writers_waited_for_{}_longest_us", kWaitNames[i]),
         done_.waits[i].longest_ns / 1000);
  }
  size_t levels = kLevelsMax;  // down to the deepest that is used
  while (levels > 0 && levels_[levels - 1].tables == 0) --levels;
  for (size_t level = 0; level < levels; ++level) {
    line(fmt::format("level{}_bytes", level + 1), levels_[level].bytes);
    line(fmt::format("level{}_tables", level + 1), levels_[level].tables);
  }
  line("cache_bytes", cache_.bytes());
  line("cache_budget_bytes", store_.cache().bytes_max());
  line("tables_memory_bytes", store_.cache().reserved());
  line("tables_memory_beyond_budget_bytes", store_.cache().over_reserved());
  for (size_t kind = 0; kind < kBlockNames.size(); ++kind) {
    line(fmt::format("cache_hits_{}", kBlockNames[kind]), cache_.kinds[kind].hits);
    line(fmt::format("cache_misses_{}", kBlockNames[kind]), cache_.kinds[kind].misses);
    line(fmt::format("cache_evictions_{}", kBlockNames[kind]), cache_.kinds[kind].evictions);
  }
  line("device_reads", device_.reads);
  line("device_writes", device_.writes);
  line("device_syncs", device_.syncs);
  line("device_bytes_read", device_.bytes_read);
  line("device_bytes_written", device_.bytes_written);
  line("device_longest_read_us", device_.longest_read_ns / 1000);
  line("device_longest_write_us", device_.longest_write_ns / 1000);
  line("device_longest_sync_us", device_.longest_sync_ns / 1000);
  line("device_longest_create_us", device_.longest_create_ns / 1000);
  line("device_longest_file_us", device_.longest_file_ns / 1000);
  line("full", store_.full() ? 1 : 0);
  line("writes_refused", done_.writes_refused);
  line("segments", space_.segments);
  line("reserve_segments", space_.reserve);
  line("reserve_segments_held", space_.reserve_held);
  line("device_bytes_free", space_.bytes_free);
}

// Of what is done behind the writers' backs, and how long they wait for it.
void StoreReport::AppendWork(const MetricLabels& base, MetricsText* out) const {
  const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
    out->Gauge(name, help, base, static_cast<double>(value));
  };
  gauge("farleaf_lsm_value_segments", "Full segments of values.", store_.garbage().segments());
  gauge("farleaf_lsm_value_garbage_bytes", "Of them, as far as merges have told.",
        store_.garbage().garbage_bytes());
  gauge("farleaf_lsm_snapshots", "That are open.", snapshots_.open);
  out->Gauge("farleaf_lsm_snapshot_oldest_seconds", "The oldest one's age.", base,
             static_cast<double>(snapshots_.oldest_age_ms) / 1e3);
  gauge("farleaf_lsm_snapshot_segments_held",
        "Segments of values that were collected, and wait for snapshots and reads.",
        snapshots_.segments_held);
  out->Counter("farleaf_lsm_collected_segments_total", "Segments of values that were emptied.",
               base, static_cast<double>(store_.collected_segments()));
  gauge("farleaf_lsm_full", "1: nothing but deletes is taken until there is room.",
        store_.full() ? 1 : 0);
  out->Counter("farleaf_lsm_writes_refused_total", "As the device was full.", base,
               static_cast<double>(done_.writes_refused));
  gauge("farleaf_lsm_reserve_segments", "To be kept for making room on a full device.",
        space_.reserve);
  gauge("farleaf_lsm_reserve_segments_held", "Of them are there.", space_.reserve_held);
  out->Counter("farleaf_lsm_user_bytes_total", "Keys and values of the changes that were made.",
               base, static_cast<double>(done_.user_bytes));
  constexpr std::string_view kWork =
      "Of what was appended to the logs, of flushes, of merges, and of values that were moved.";
  const auto work = [&](std::string_view what, uint64_t bytes) {
    out->Counter("farleaf_lsm_work_bytes_total", kWork, With(base, {"work", what}),
                 static_cast<double>(bytes));
  };
  work("recovery_log", done_.recovery_log_bytes);
  work("value_log", done_.value_log_bytes);
  work("flushed", done_.flushed_bytes);
  work("merge_read", done_.merged_bytes_read);
  work("merge_written", done_.merged_bytes_written);
  work("reclaim_read", done_.reclaimed_bytes_read);
  work("value_moved", done_.moved_bytes);
  gauge("farleaf_lsm_recovered_changes", "That the last start replayed.", done_.recovered_changes);
  out->Gauge("farleaf_lsm_recovery_seconds", "What that took.", base,
             static_cast<double>(done_.recovery_ns) / 1e9);
  for (size_t i = 0; i < kWaitNames.size(); ++i) {
    const MetricLabels labels = With(base, {"for", kWaitNames[i]});
    const auto& waits = done_.waits[i];
    out->Counter("farleaf_lsm_writer_waits_total", "Changes that had to wait.", labels,
                 static_cast<double>(waits.count));
    out->Counter("farleaf_lsm_writer_wait_seconds_total", "For how long, all together.", labels,
                 static_cast<double>(waits.total_ns) / 1e9);
    out->Gauge("farleaf_lsm_writer_wait_longest_seconds", "The longest of them.", labels,
               static_cast<double>(waits.longest_ns) / 1e9);
  }
  constexpr std::string_view kLongest = "The longest that one was waited for.";
  const auto longest = [&](std::string_view kind, uint64_t ns) {
    out->Gauge("farleaf_lsm_device_longest_seconds", kLongest, With(base, {"kind", kind}),
               static_cast<double>(ns) / 1e9);
  };
  longest("read", device_.longest_read_ns);
  longest("write", device_.longest_write_ns);
  longest("sync", device_.longest_sync_ns);
  longest("create", device_.longest_create_ns);
  longest("file", device_.longest_file_ns);
}

void StoreReport::AppendMetrics(const MetricLabels& base, MetricsText* out) const {
  const auto gauge = [&](std::string_view name, std::string_view help, const MetricLabels& labels,
                         uint64_t value) {
    out->Gauge(name, help, labels, static_cast<double>(value));
  };
  const auto counter = [&](std::string_view name, std::string_view help, const MetricLabels& labels,
                           uint64_t value) {
    out->Counter(name, help, labels, static_cast<double>(value));
  };
  gauge("farleaf_lsm_writing", "1: writing to disk gets on.", base, writing_.ok() ? 1 : 0);
  constexpr std::string_view kMemtables = "Memory of changes that are in no table yet.";
  gauge("farleaf_lsm_memtable_bytes", kMemtables, With(base, {"memtable", "active"}),
        memtables_.active_bytes);
  gauge("farleaf_lsm_memtable_bytes", kMemtables, With(base, {"memtable", "flushing"}),
        memtables_.flushing_bytes.value_or(0));
  counter("farleaf_lsm_flushes_total", "Memtables that have become tables.", base,
          memtables_.flushes);
  gauge("farleaf_lsm_fresh_runs", "Flushed memtables that are not merged into level 1 yet.", base,
        fresh_runs_);
  gauge("farleaf_lsm_kept_tables",
        "Tables that cannot be read as wholes, and are kept beside others.", base, kept_tables_);
  gauge("farleaf_lsm_kept_segments", "Segments of values that damage keeps from being collected.",
        base, store_.kept_segments());
  AppendWork(base, out);
  for (size_t level = 0; level < kLevelsMax; ++level) {
    const std::string number = std::to_string(level + 1);
    gauge("farleaf_lsm_level_bytes", "Of tables, by level.", With(base, {"level", number}),
          levels_[level].bytes);
    gauge("farleaf_lsm_level_tables", "Tables, by level.", With(base, {"level", number}),
          levels_[level].tables);
  }
  gauge("farleaf_lsm_cache_bytes", "Memory of the cache of blocks.", base, cache_.bytes());
  gauge("farleaf_lsm_cache_budget_bytes", "What it may take, with what is known of tables.", base,
        store_.cache().bytes_max());
  gauge("farleaf_lsm_tables_memory_bytes",
        "What is known of tables, for which the cache gives way.", base, store_.cache().reserved());
  gauge("farleaf_lsm_tables_memory_beyond_budget_bytes",
        "Of that, what the cache does not give way for.", base, store_.cache().over_reserved());
  for (size_t kind = 0; kind < kBlockNames.size(); ++kind) {
    const MetricLabels labels = With(base, {"block", kBlockNames[kind]});
    const auto& of_kind = cache_.kinds[kind];
    counter("farleaf_lsm_cache_hits_total", "Blocks that the cache had.", labels, of_kind.hits);
    counter("farleaf_lsm_cache_misses_total", "Blocks that it lacked.", labels, of_kind.misses);
    counter("farleaf_lsm_cache_evictions_total", "Blocks that it had no room for.", labels,
            of_kind.evictions);
  }
  constexpr std::string_view kIos = "Transfers and Syncs of the data directory.";
  counter("farleaf_lsm_device_ios_total", kIos, With(base, {"kind", "read"}), device_.reads);
  counter("farleaf_lsm_device_ios_total", kIos, With(base, {"kind", "write"}), device_.writes);
  counter("farleaf_lsm_device_ios_total", kIos, With(base, {"kind", "sync"}), device_.syncs);
  constexpr std::string_view kBytes = "Bytes transferred from and to the data directory.";
  counter("farleaf_lsm_device_bytes_total", kBytes, With(base, {"direction", "read"}),
          device_.bytes_read);
  counter("farleaf_lsm_device_bytes_total", kBytes, With(base, {"direction", "written"}),
          device_.bytes_written);
  gauge("farleaf_lsm_segments", "Segments of 2 MiB in the data directory.", base, space_.segments);
  gauge("farleaf_lsm_device_free_bytes", "What the device has left for new ones.", base,
        space_.bytes_free);
}

}  // namespace farleaf::server
