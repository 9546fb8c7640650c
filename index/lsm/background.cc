#include "index/lsm/background.h"

#include <utility>

#include "dsm/base/thread_cpu.h"

namespace farleaf::index::lsm {

Result<std::unique_ptr<Background>> Background::Start(LsmStore* store,
                                                      const OpenWorker& open_worker, Work work) {
  std::unique_ptr<Background> background(new Background(store));
  for (uint32_t i = 0; i < 1 + store->options().compaction_threads; ++i) {
    auto worker = open_worker();
    if (!worker.ok()) return worker.status();
    background->workers_.push_back(std::move(*worker));
  }
  for (size_t i = 0; i < background->workers_.size(); ++i) {
    dsm::Worker* const worker = background->workers_[i].get();
    background->threads_.emplace_back([store, worker, work, i] {
      if (i == 0 && work == Work::kTables) {
        worker->Spawn(store->RunFlushes(*worker));
      } else if (i == 0) {
        worker->Spawn(store->RunLogs(*worker));
        worker->Spawn(store->RunLogFlushes(*worker));
        worker->Spawn(store->RunFlushes(*worker));
        worker->Spawn(store->RunCollection(*worker));
        worker->Spawn(store->RunReclaim(*worker));
      } else {
        worker->Spawn(store->RunCompactions(*worker));
      }
      worker->RunUntilIdle();
    });
  }
  return background;
}

std::vector<uint64_t> Background::CpuNs() {
  std::vector<uint64_t> taken;
  for (std::thread& thread : threads_) taken.push_back(ThreadCpuNs(thread));
  return taken;
}

Background::~Background() {
  store_->Stop();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace farleaf::index::lsm
