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

struct LevelUse {
  uint64_t tables = 0, bytes = 0;
};

}  // namespace

struct LsmTreeHost::StoreLook {
  std::array<LevelUse, kLevelsMax> levels;
  uint64_t fresh_runs = 0, kept_tables = 0;
  index::lsm::LsmStore::Memtables memtables;
  index::lsm::BlockCacheMetrics cache;
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
  size_t levels = kLevelsMax;  // down to the deepest that is used
  while (levels > 0 && look.levels[levels - 1].tables == 0) --levels;
  for (size_t level = 0; level < levels; ++level) {
    line(fmt::format("level{}_bytes", level + 1), look.levels[level].bytes);
    line(fmt::format("level{}_tables", level + 1), look.levels[level].tables);
  }
  line("cache_bytes", look.cache.bytes());
  line("cache_budget_bytes", deps_.store->cache().bytes_max());
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
  line("segments", look.space.segments);
  line("device_bytes_free", look.space.bytes_free);
  std::lock_guard lock(mutex_);
  line("trees", trees_.size());
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
  for (size_t level = 0; level < kLevelsMax; ++level) {
    const std::string number = std::to_string(level + 1);
    gauge("farleaf_lsm_level_bytes", "Of tables, by level.", {{"level", number}},
          look.levels[level].bytes);
    gauge("farleaf_lsm_level_tables", "Tables, by level.", {{"level", number}},
          look.levels[level].tables);
  }
  gauge("farleaf_lsm_cache_bytes", "Memory of the cache of blocks.", {}, look.cache.bytes());
  gauge("farleaf_lsm_cache_budget_bytes", "What it may take.", {},
        deps_.store->cache().bytes_max());
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
