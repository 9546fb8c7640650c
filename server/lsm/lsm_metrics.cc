// What an LSM store tells those who watch a server.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "server/lsm/lsm_tree_host.h"
#include "server/lsm/store_report.h"

namespace farleaf::server {

void LsmTreeHost::AppendStats(std::string* text) const {
  std::lock_guard observing(observer_mutex_);
  const StoreReport report = StoreReport::Look(*deps_.store, *deps_.storage, *observer_);
  const bool synced = deps_.store->options().durability == index::lsm::Durability::kSynced;
  fmt::format_to(std::back_inserter(*text),
                 "engine lsm\nlsm.data_dir {}\nlsm.durability {}\nlsm.writing {}\n", deps_.place,
                 synced ? "synced" : "local", report.writing().ok() ? "ok" : "failed");
  if (!report.writing().ok()) {
    std::string reason(report.writing().message());
    std::ranges::replace(reason, '\n', ' ');
    fmt::format_to(std::back_inserter(*text), "lsm.writing_failure {}\n", reason);
  }
  report.AppendStats(text);
  std::lock_guard lock(mutex_);
  fmt::format_to(std::back_inserter(*text), "lsm.trees {}\n", trees_.size());
}

void LsmTreeHost::AppendMetrics(MetricsText* out) const {
  std::lock_guard observing(observer_mutex_);
  StoreReport::Look(*deps_.store, *deps_.storage, *observer_).AppendMetrics({}, out);
}

}  // namespace farleaf::server
