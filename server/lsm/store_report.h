// StoreReport: what a store tells those who watch a server, as it was at one moment.
//
// Thread rule: one thread; Look as it says.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "index/lsm/store.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

class StoreReport {
 public:
  /// On `observer`, by the thread that drives it now. The store stays as long as the report.
  static StoreReport Look(index::lsm::LsmStore& store, index::storage::Storage& storage,
                          dsm::Worker& observer);

  /// Lines `lsm.name value`.
  void AppendStats(std::string* text) const;
  /// Each with the labels of `base` before its own.
  void AppendMetrics(const MetricLabels& base, MetricsText* out) const;
  /// Why writing to disk does not get on; Ok: it does.
  const Status& writing() const { return writing_; }

 private:
  struct LevelUse {
    uint64_t tables = 0, bytes = 0;
  };
  explicit StoreReport(index::lsm::LsmStore& store) : store_(store) {}
  void AppendWork(const MetricLabels& base, MetricsText* out) const;

  const index::lsm::LsmStore& store_;
  std::array<LevelUse, index::lsm::kLevelsMax> levels_;
  uint64_t fresh_runs_ = 0, kept_tables_ = 0;
  index::lsm::LsmStore::Memtables memtables_;
  index::lsm::BlockCacheMetrics cache_;
  index::lsm::StoreMetrics done_;
  index::lsm::LsmStore::SnapshotMetrics snapshots_;
  index::storage::StorageCounts device_;
  index::storage::StorageSpace space_;
  Status writing_;
};

}  // namespace farleaf::server
