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
  /// The store outlives it.
  static Result<std::unique_ptr<Background>> Start(LsmStore* store, const OpenWorker& open_worker);
  /// Stops what runs, and waits for it.
  ~Background();
  Background(const Background&) = delete;

 private:
  explicit Background(LsmStore* store) : store_(store) {}
  LsmStore* const store_;
  std::vector<std::unique_ptr<dsm::Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace farleaf::index::lsm
