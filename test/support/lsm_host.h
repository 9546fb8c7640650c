// LsmHost: an LSM store in memory, small enough that memtables, levels and segments turn over all the time.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

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

  static index::lsm::LsmOptions SmallStore() {
    index::lsm::LsmOptions options;
    options.memtable_bytes = uint64_t{2} << 20;  // a quarter is more than one chunk of its arena
    options.cache_bytes = uint64_t{1} << 20;
    options.growth_factor = 4;
    options.table_bytes_max = uint64_t{4} << 20;
    options.value_separation_bytes = 256;
    return options;
  }

  explicit LsmHost(Options options) : options_(options) {
    storage_.delay_ns = options.io_delay_ns;
    Open();
  }
  ~LsmHost() override { Close(); }

  size_t members() const override { return 1; }
  index::RangeIndex& index(size_t) override { return *store_; }
  index::lsm::LsmStore& store() { return *store_; }
  MemoryStorage& storage() { return storage_; }
  dsm::EpochDomain& epochs() { return epochs_; }
  std::unique_ptr<dsm::Worker> OpenWorker(size_t = 0) override {
    auto transport = fabric_->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    const uint64_t number = ++workers_;  // also the seed: what two workers draw must differ
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::move(*transport), &epochs_, &clock_, number, number});
  }

  void Open() {
    const Status opened = TryOpen();
    FARLEAF_CHECK(opened.ok(), opened);
    auto background = index::lsm::Background::Start(
        store_.get(), [this]() -> Result<std::unique_ptr<dsm::Worker>> { return OpenWorker(); });
    FARLEAF_CHECK(background.ok(), background.status());
    background_ = std::move(*background);
    if (options_.flush_every_us == 0) return;
    store_->CompactEagerly(true);
    restless_ = std::thread([this] {
      // A participant of the epochs: it looks at views.
      auto ticker = OpenWorker();
      while (!at_rest_) {
        ticker->GoOnline();
        store_->FlushSoon();
        ticker->GoOffline();
        std::this_thread::sleep_for(std::chrono::microseconds(options_.flush_every_us));
      }
    });
  }
  /// The store alone; nothing runs in the background.
  Status TryOpen() {
    auto worker = OpenWorker();
    auto store = worker->Run(index::lsm::LsmStore::Open(*worker, {&storage_, &epochs_, &clock_, 1},
                                                        options_.store,
                                                        index::lsm::LsmStore::IfMissing::kCreate));
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    return Status::Ok();
  }
  void StopBackground() {
    at_rest_ = true;
    if (restless_.joinable()) restless_.join();
    at_rest_ = false;
    background_ = nullptr;
  }
  /// REQUIRES: no operation runs, and no worker of others is left.
  void Close() {
    if (!store_) return;
    StopBackground();
    auto worker = OpenWorker();
    Status closed = worker->Run(store_->Close(*worker));
    FARLEAF_CHECK(closed.ok(), closed);
    store_ = nullptr;
  }

 private:
  const Options options_;
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_ = std::move(*dsm::LocalFabric::Create(
      {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}));
  std::atomic<uint64_t> workers_{0};
  std::atomic<bool> at_rest_{false};
  std::thread restless_;
  MemoryStorage storage_;
  std::unique_ptr<index::lsm::LsmStore> store_;
  std::unique_ptr<index::lsm::Background> background_;
};

inline IndexKind LsmKind(std::string name, LsmHost::Options options) {
  return {std::move(name), false, index::lsm::kKeyBytesMax, 200, 200'000, [options] {
            return std::make_unique<LsmHost>(options);
          }};
}

}  // namespace farleaf::test
