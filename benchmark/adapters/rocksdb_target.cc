#include "benchmark/adapters/rocksdb_target.h"

#include <rocksdb/db.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "benchmark/adapters/rocksdb_settings.h"

namespace farleaf::ycsb {

namespace {

Status StatusOf(const rocksdb::Status& status) {
  if (status.ok()) return Status::Ok();
  std::string text = "RocksDB: " + status.ToString();
  if (status.IsCorruption()) return Status::Corruption(std::move(text));
  if (status.IsNoSpace()) return Status::ResourceExhausted(std::move(text));
  if (status.IsIOError()) return Status::IoError(std::move(text));
  if (status.IsInvalidArgument()) return Status::InvalidArgument(std::move(text));
  if (status.IsTimedOut()) return Status::DeadlineExceeded(std::move(text));
  return Status::Unavailable(std::move(text));
}

/// Writes are put without a look at what is there, as everybody uses RocksDB: an update answers that there was
/// something, an insert that there was nothing.
class RocksDbSession final : public Session {
 public:
  RocksDbSession(rocksdb::DB* db, const StoreOptions& store, const Clock* clock)
      : db_(db),
        clock_(clock),
        scan_options_(RocksDbScanOptions(store)),
        write_options_(RocksDbWriteOptions(store)) {}

  Status Run(OperationSource& source, uint64_t /*in_flight*/) override {
    Operation operation;
    while (source.Next(&operation)) {
      if (operation.due_ns != 0) WaitUntilDue(source, operation.due_ns);
      if (!source.Begin(&operation)) break;
      switch (operation.kind) {
        case OpKind::kRead:
          Get(&operation);
          break;
        case OpKind::kUpdate:
        case OpKind::kInsert:
          operation.found = operation.kind == OpKind::kUpdate;
          Put(&operation, operation.value);
          break;
        case OpKind::kScan:
          Scan(&operation);
          break;
        case OpKind::kReadModifyWrite:
          Get(&operation);
          if (operation.found && source.Modify(operation, operation.found_value, &replacement_)) {
            Put(&operation, replacement_);
          }
          break;
      }
      source.Done(operation);
    }
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kSleepNsMax = 50 * kNsPerMs;  // so that a stop is noticed

  void WaitUntilDue(const OperationSource& source, uint64_t due_ns) const {
    for (uint64_t now_ns = clock_->NowNs(); now_ns < due_ns && !source.stopped();
         now_ns = clock_->NowNs()) {
      const uint64_t left_ns = due_ns - now_ns, awake_ns = source.awake_before_due_ns();
      if (left_ns <= awake_ns) continue;
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(std::min(left_ns - awake_ns, kSleepNsMax)));
    }
  }
  void Get(Operation* operation) {
    value_.Reset();
    const rocksdb::Status status =
        db_->Get(read_options_, db_->DefaultColumnFamily(), operation->key, &value_);
    operation->found = status.ok();
    operation->status = status.IsNotFound() ? Status::Ok() : StatusOf(status);
    if (operation->found) operation->found_value.assign(value_.data(), value_.size());
  }
  void Put(Operation* operation, const std::string& value) {
    operation->status = StatusOf(db_->Put(write_options_, operation->key, value));
  }
  void Scan(Operation* operation) {
    const std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(scan_options_));
    size_t count = 0;
    for (rows->Seek(operation->key); rows->Valid() && count < operation->scan_length;
         rows->Next(), ++count) {
      if (operation->rows.size() == count) operation->rows.emplace_back();
      index::KeyValue& row = operation->rows[count];
      row.key.assign(rows->key().data(), rows->key().size());
      row.value.assign(rows->value().data(), rows->value().size());
    }
    operation->rows.resize(count);
    operation->status = StatusOf(rows->status());
  }

  rocksdb::DB* const db_;
  const Clock* const clock_;
  const rocksdb::ReadOptions read_options_, scan_options_;
  const rocksdb::WriteOptions write_options_;
  rocksdb::PinnableSlice value_;
  std::string replacement_;
};

/// Hands the log to the page cache each `flush_ms`, on a thread of its own.
class LogFlusher {
 public:
  LogFlusher(rocksdb::DB* db, uint64_t flush_ms)
      : thread_([db, flush_ms](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any stopped;
          std::unique_lock lock(mutex);
          while (!stopped.wait_for(lock, stop, std::chrono::milliseconds(flush_ms),
                                   [&stop] { return stop.stop_requested(); })) {
            // What fails here fails writes, too.
            db->FlushWAL(/*sync=*/false).PermitUncheckedError();
          }
        }) {}

 private:
  std::jthread thread_;
};

class RocksDbTarget final : public Target {
 public:
  RocksDbTarget(std::unique_ptr<rocksdb::DB> db, StoreOptions store, const Clock* clock)
      : db_(std::move(db)), store_(std::move(store)), clock_(clock) {
    if (store_.wal && !store_.sync) log_flusher_.emplace(db_.get(), store_.flush_ms);
  }

  Result<std::unique_ptr<Session>> OpenSession() override {
    return std::unique_ptr<Session>(std::make_unique<RocksDbSession>(db_.get(), store_, clock_));
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }

  std::string DataDirectory() const override { return store_.directory; }
  bool Quiet() override {
    using Properties = rocksdb::DB::Properties;
    return Property(Properties::kNumRunningFlushes) == 0 &&
           Property(Properties::kNumRunningCompactions) == 0 &&
           Property(Properties::kMemTableFlushPending) == 0 &&
           Property(Properties::kCompactionPending) == 0;
  }
  nlohmann::ordered_json DescribeStore() const override {
    using Properties = rocksdb::DB::Properties;
    nlohmann::ordered_json json;
    json["TableBytes"] = Property(Properties::kTotalSstFilesSize);
    if (store_.engine == StoreEngine::kBlobDb) {
      json["BlobBytes"] = Property(Properties::kTotalBlobFileSize);
      json["BlobGarbageBytes"] = Property(Properties::kLiveBlobFileGarbageSize);
    }
    json["MemtableBytes"] = Property(Properties::kCurSizeAllMemTables);
    json["CacheBytes"] = Property(Properties::kBlockCacheUsage);
    json["PendingCompactionBytes"] = Property(Properties::kEstimatePendingCompactionBytes);
    std::map<std::string, std::string> stats;
    if (!db_->GetMapProperty(Properties::kCFStats, &stats)) return json;
    // Since the store was opened: how often writers were slowed down or stopped.
    for (const auto& [name, text] : stats) {
      if (name == "io_stalls.total_slowdown") json["Slowdowns"] = std::stoull(text);
      if (name == "io_stalls.total_stop") json["Stops"] = std::stoull(text);
    }
    return json;
  }

  Status Close() override {
    const bool flushes = log_flusher_.has_value();
    log_flusher_.reset();
    Status closed = flushes ? StatusOf(db_->FlushWAL(/*sync=*/false)) : Status::Ok();
    const Status ended = StatusOf(db_->Close());
    if (closed.ok()) closed = ended;
    db_.reset();
    return closed;
  }

 private:
  uint64_t Property(const std::string& name) const {
    uint64_t value = 0;
    db_->GetIntProperty(name, &value);
    return value;
  }

  std::unique_ptr<rocksdb::DB> db_;
  const StoreOptions store_;
  const Clock* const clock_;
  std::optional<LogFlusher> log_flusher_;
};

}  // namespace

bool HasRocksDb() { return true; }

Result<std::unique_ptr<Target>> OpenRocksDbTarget(const StoreOptions& store,
                                                  const TargetOptions& options,
                                                  const Clock* clock) {
  if (options.in_flight > 1) {
    return Status::InvalidArgument(
        "RocksDB's calls block: a thread has one operation at a time (--in-flight 1)");
  }
  const bool there = std::filesystem::exists(std::filesystem::path(store.directory) / "CURRENT");
  if (there && options.create_tree) {
    return Status::AlreadyExists("directory '" + store.directory +
                                 "' holds a store: load into another one");
  }
  if (!there && !options.create_tree) {
    return Status::NotFound("directory '" + store.directory +
                            "' holds no store: load one first (--phase load)");
  }
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(RocksDbOptions(store, options.create_tree), store.directory, &db);
  if (!opened.ok()) return StatusOf(opened);
  return std::unique_ptr<Target>(
      std::make_unique<RocksDbTarget>(std::unique_ptr<rocksdb::DB>(db), store, clock));
}

}  // namespace farleaf::ycsb
