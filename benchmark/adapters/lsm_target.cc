#include "benchmark/adapters/lsm_target.h"

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <utility>

#include "dsm/null_transport.h"
#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"
#include "server/records/record.h"

namespace farleaf::ycsb {

namespace {

using dsm::Worker;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using index::storage::FileStorage;

LsmOptions LsmOptionsOf(const StoreOptions& store) {
  LsmOptions options;
  options.durability =
      store.sync ? index::lsm::Durability::kSynced : index::lsm::Durability::kLocal;
  options.flush_ms = store.flush_ms;
  options.memtable_bytes = store.memtable_mb << 20;
  options.growth_factor = static_cast<uint32_t>(store.growth);
  options.value_separation_bytes = static_cast<uint32_t>(store.separation_bytes);
  options.cache_bytes = store.cache_mb << 20;
  options.block_bytes = static_cast<uint32_t>(store.block_kb << 10);
  options.filter_bits_per_key = static_cast<uint32_t>(store.filter_bits);
  options.compaction_threads = static_cast<uint32_t>(store.compaction_threads);
  if (store.compression == StoreCompression::kLz4) {
    options.compression = index::lsm::Compression::kLz4;
  } else if (store.compression == StoreCompression::kZstd) {
    options.compression = index::lsm::Compression::kZstd;
  }
  return options;
}

/// A new store's epoch hangs on it. Not the run's seed: bytes that another store has left in segments of the same numbers would be
/// records of this one.
uint64_t DrawStoreSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class LsmTarget final : public IndexTarget {
 public:
  LsmTarget(StoreOptions store, TargetOptions options, const Clock* clock)
      : store_options_(std::move(store)), options_(std::move(options)), clock_(clock) {}

  Status Open() {
    index::storage::FileStorageOptions files{.directory = store_options_.directory};
    if (!store_options_.direct) files.direct = index::storage::DirectIo::kOff;
    auto storage = FileStorage::Open(files);
    if (!storage.ok()) return storage.status();
    storage_ = std::move(*storage);
    auto worker = OpenWorker();
    if (!worker.ok()) return worker.status();
    worker_ = std::move(*worker);
    const LsmStore::Deps deps{storage_.get(), &epochs_, &wall_, DrawStoreSeed()};
    const LsmOptions lsm = LsmOptionsOf(store_options_);
    auto there = worker_->Run(LsmStore::Open(*worker_, deps, lsm, LsmStore::IfMissing::kFail));
    if (options_.create_tree) {
      if (there.ok()) {
        return Status::AlreadyExists("directory '" + store_options_.directory +
                                     "' holds a store: load into an empty one");
      }
      if (there.status().code() != StatusCode::kNotFound) return there.status();
      there = worker_->Run(LsmStore::Open(*worker_, deps, lsm, LsmStore::IfMissing::kCreate));
    }
    if (there.status().code() == StatusCode::kNotFound) {
      return Status::NotFound("directory '" + store_options_.directory +
                              "' holds no store: load one first (--phase load)");
    }
    if (!there.ok()) return there.status();
    store_ = std::move(*there);
    auto background = index::lsm::Background::Start(store_.get(), [this] { return OpenWorker(); });
    if (!background.ok()) return background.status();
    background_ = std::move(*background);
    return Status::Ok();
  }

  std::string DataDirectory() const override { return store_options_.directory; }
  bool Quiet() override {
    worker_->GoOnline();
    const bool quiet = store_->Quiet();
    worker_->GoOffline();
    return quiet;
  }
  nlohmann::ordered_json DescribeStore() const override {
    nlohmann::ordered_json json;
    json["CacheBytes"] = store_->cache().bytes();
    const index::storage::StorageCounts counts = storage_->counts();
    json["DeviceReads"] = counts.reads;
    json["DeviceWrites"] = counts.writes;
    json["DeviceSyncs"] = counts.syncs;
    worker_->GoOnline();
    const auto version = store_->version();
    worker_->GoOffline();
    std::map<uint8_t, uint64_t> bytes;  // by level
    for (const index::lsm::Run& run : version->runs) bytes[run.place.level] += run.bytes;
    for (const auto& [level, of_level] : bytes) {
      json["Level" + std::to_string(level + 1) + "Bytes"] = of_level;
    }
    json["FreshRuns"] = version->fresh;
    json["ValueSegments"] = store_->garbage().segments();
    json["ValueGarbageBytes"] = store_->garbage().garbage_bytes();
    DescribeWork(store_->metrics(), &json);
    DescribeLongest(counts, &json);
    return json;
  }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override {
    background_.reset();
    Status closed = worker_->Run(store_->Close(*worker_));
    store_.reset();
    worker_.reset();
    storage_.reset();
    return closed;
  }

 protected:
  index::RangeIndex& index() override { return *store_; }
  bool blind_writes() const override { return store_options_.blind; }
  Result<std::unique_ptr<Worker>> OpenWorker() override {
    return std::make_unique<Worker>(Worker::Deps{std::make_unique<dsm::NullTransport>(), &epochs_,
                                                 clock_, options_.seed, ++workers_});
  }

 private:
  static void DescribeWork(const index::lsm::StoreMetrics& done, nlohmann::ordered_json* json) {
    (*json)["RecoveredChanges"] = done.recovered_changes;
    (*json)["Recovery(us)"] = done.recovery_ns / 1000;
    (*json)["FlushedBytes"] = done.flushed_bytes;
    (*json)["MergedBytesRead"] = done.merged_bytes_read;
    (*json)["MergedBytesWritten"] = done.merged_bytes_written;
    (*json)["ValueBytesMoved"] = done.moved_bytes;
    constexpr std::array<std::string_view, index::lsm::kWaitsFor> kNames = {"Collection", "Merges",
                                                                            "Flushes", "Logs"};
    for (size_t i = 0; i < kNames.size(); ++i) {
      const std::string name = "WaitedFor" + std::string(kNames[i]);
      (*json)[name] = done.waits[i].count;
      (*json)[name + "Longest(us)"] = done.waits[i].longest_ns / 1000;
    }
  }
  static void DescribeLongest(const index::storage::StorageCounts& counts,
                              nlohmann::ordered_json* json) {
    (*json)["DeviceLongestRead(us)"] = counts.longest_read_ns / 1000;
    (*json)["DeviceLongestWrite(us)"] = counts.longest_write_ns / 1000;
    (*json)["DeviceLongestSync(us)"] = counts.longest_sync_ns / 1000;
    (*json)["DeviceLongestCreate(us)"] = counts.longest_create_ns / 1000;
    (*json)["DeviceLongestFile(us)"] = counts.longest_file_ns / 1000;
  }

  const StoreOptions store_options_;
  const TargetOptions options_;
  const Clock* const clock_;
  const server::WallClock wall_;
  std::atomic<uint64_t> workers_{0};
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  std::unique_ptr<FileStorage> storage_;
  std::unique_ptr<Worker> worker_;  // of the thread that opens and closes the target
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<index::lsm::Background> background_;
};

}  // namespace

Result<std::unique_ptr<Target>> OpenLsmTarget(const StoreOptions& store,
                                              const TargetOptions& options, const Clock* clock) {
  auto target = std::make_unique<LsmTarget>(store, options, clock);
  Status opened = target->Open();
  if (!opened.ok()) return opened;
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
