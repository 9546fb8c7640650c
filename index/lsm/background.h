// Background: the threads that a store needs beside those that run operations: one for logs and flushes, and some for compactions.
//
// Thread rule: made and destroyed by one thread.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/worker.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

class Background {
 public:
  /// Called once for each thread, by who starts them.
  using OpenWorker = std::function<Result<std::unique_ptr<dsm::Worker>>()>;
  enum class Work : uint8_t {
    kAll,
    kTables,  ///< flushes and compactions, of a store whose logs another process writes (follower.h)
  };
  /// The store outlives it.
  static Result<std::unique_ptr<Background>> Start(LsmStore* store, const OpenWorker& open_worker,
                                                   Work work = Work::kAll);
  /// Stops what runs, and waits for it.
  ~Background();
  /// What the threads have taken so far: the one for logs and flushes first.
  std::vector<uint64_t> CpuNs();
  Background(const Background&) = delete;

 private:
  explicit Background(LsmStore* store) : store_(store) {}
  LsmStore* const store_;
  std::vector<std::unique_ptr<dsm::Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace farleaf::index::lsm
