// LsmHost: an LSM store in memory, small enough that memtables, levels and segments turn over all the time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "test/support/index_host.h"
#include "test/support/memory_storage.h"

namespace farleaf::test {

class LsmHost final : public IndexHost {
 public:
  struct Options {
    index::lsm::LsmOptions store;
    uint64_t io_delay_ns = 0;  ///< of each I/O; 0: they complete at once
    uint64_t flush_every_us =
        0;  ///< what the memtable holds is flushed, and levels sink; 0: when they are full
  };

  static index::lsm::LsmOptions SmallStore();

  explicit LsmHost(Options options);
  ~LsmHost() override;

  size_t members() const override { return 1; }
  index::RangeIndex& index(size_t) override { return *store_; }
  index::lsm::LsmStore& store() { return *store_; }
  MemoryStorage& storage() { return storage_; }
  dsm::EpochDomain& epochs() { return epochs_; }
  std::unique_ptr<dsm::Worker> OpenWorker(size_t = 0) override;

  void Open();
  /// The store alone; nothing runs in the background.
  Status TryOpen();
  void StopBackground();
  /// REQUIRES: no operation runs, and no worker of others is left.
  void Close();

 private:
  const Options options_;
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_;
  std::atomic<uint64_t> workers_{0};
  std::atomic<bool> at_rest_{false};
  std::thread restless_;
  MemoryStorage storage_;
  std::unique_ptr<index::lsm::LsmStore> store_;
  std::unique_ptr<index::lsm::Background> background_;
};

IndexKind LsmKind(std::string name, LsmHost::Options options);

}  // namespace farleaf::test
