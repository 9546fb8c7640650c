// ClosedStoreTest: stores in real directories, made by a store with its threads, closed or left as by a crash, to be looked at by tools.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "dsm/base/random.h"
#include "dsm/null_transport.h"
#include "index/lsm/background.h"
#include "index/lsm/checkpoint.h"
#include "index/lsm/closed_store.h"
#include "index/lsm/scrub.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"
#include "test/support/storage_under_test.h"

namespace farleaf::index::lsm {

namespace fs = std::filesystem;
using Model = std::map<std::string, std::string>;

class SystemClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  }
};

/// A store with its threads, that can be left as a process would be that was killed.
class Served {
 public:
  explicit Served(const std::string& directory) {
    auto files = storage::FileStorage::Open({.directory = directory});
    FARLEAF_CHECK(files.ok(), files.status());
    files_ = std::move(*files);
    worker_ = OpenWorker();
    LsmOptions options{.durability = Durability::kSynced};
    options.memtable_bytes = uint64_t{1} << 20;
    options.table_bytes_max = uint64_t{4} << 20;
    options.value_separation_bytes = 256;
    options.compression = Compression::kLz4;
    auto store = worker_->Run(LsmStore::Open(*worker_, {files_.get(), &epochs_, &wall_, 1}, options,
                                             LsmStore::IfMissing::kCreate));
    FARLEAF_CHECK(store.ok(), store.status());
    store_ = std::move(*store);
    auto background = Background::Start(
        store_.get(), [this]() -> Result<std::unique_ptr<dsm::Worker>> { return OpenWorker(); });
    FARLEAF_CHECK(background.ok(), background.status());
    background_ = std::move(*background);
  }
  /// Without it: a crash.
  void Close() {
    Commit();
    background_ = nullptr;
    Status closed = worker_->Run(store_->Close(*worker_));
    FARLEAF_CHECK(closed.ok(), closed);
  }
  ~Served() {
    Commit();
    background_ = nullptr;
    store_ = nullptr;
  }

  void Write(const std::vector<Change>& changes) {
    dsm::OpContext op{*worker_, counts_};
    Status written = worker_->Run(store_->Write(op, changes));
    FARLEAF_CHECK(written.ok(), written);
  }
  /// With the next Commit, Flush or Close, and others of them: each is synced.
  void Put(const std::string& key, const std::string& value) {
    put_.emplace_back(key, value);
    if (put_.size() == kPutsTogether) Commit();
  }
  void Commit() {
    std::vector<Change> changes;
    for (const auto& [key, value] : put_) {
      changes.push_back({.kind = ChangeKind::kPut, .key = key, .value = value});
    }
    if (!changes.empty()) Write(changes);
    put_.clear();
  }
  void Flush() {
    Commit();
    for (bool quiet = false; !quiet;) {
      worker_->GoOnline();
      store_->FlushSoon();
      quiet = store_->Quiet();
      worker_->GoOffline();
      std::this_thread::yield();
    }
  }
  /// What was flushed before goes to a lower level.
  void FlushOntoLower() {
    store_->CompactEagerly(true);
    Flush();
    store_->CompactEagerly(false);
  }
  uint64_t collected_segments() const { return store_->collected_segments(); }
  Model All() {
    dsm::OpContext op{*worker_, counts_};
    std::vector<KeyValue> rows;
    Status scanned = worker_->Run(store_->Scan(op, ScanRange{.start = {}}, &rows));
    FARLEAF_CHECK(scanned.ok(), scanned);
    Model model;
    for (KeyValue& row : rows) model[row.key] = row.value;
    return model;
  }

 private:
  static constexpr size_t kPutsTogether = 50;
  std::unique_ptr<dsm::Worker> OpenWorker() {
    const uint64_t number = ++workers_;
    return std::make_unique<dsm::Worker>(dsm::Worker::Deps{std::make_unique<dsm::NullTransport>(),
                                                           &epochs_, &clock_, number, number});
  }
  MonotonicClock clock_;
  SystemClock wall_;
  dsm::EpochDomain epochs_;
  dsm::FabricCounts counts_;
  std::atomic<uint64_t> workers_{0};
  std::vector<std::pair<std::string, std::string>> put_;
  std::unique_ptr<storage::FileStorage> files_;
  std::unique_ptr<dsm::Worker> worker_;
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<Background> background_;
};

struct Scrubbed {
  std::vector<ScrubFault> faults, notes;
  ScrubReport report;
};

struct ClosedStoreTest : ::testing::Test {
  storage::TemporaryFolder folder;
  const std::string directory = folder.path() + "/store";
  MonotonicClock clock;
  SystemClock wall;
  dsm::EpochDomain epochs;
  dsm::Worker worker{{std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1}};
  Model model;

  static std::string Value(uint64_t number, uint64_t version) {
    Random random(number * 1000 + version);
    std::string value(number % 4 == 0 ? 3000 : 40, ' ');
    for (char& c : value) c = static_cast<char>('a' + random.Below(26));
    return value;
  }
  void Put(Served& store, uint64_t number, uint64_t version) {
    const std::string key = fmt::format("key{:06}", number);
    model[key] = Value(number, version);
    store.Put(key, model[key]);
  }
  enum class End { kClosed, kCrashed };
  /// Tables of several flushes, with deleted keys and ranges; and commits that are only in the recovery log.
  void MakeStore(End end) {
    Served store(directory);
    for (uint64_t number = 0; number < 2000; ++number) Put(store, number, 0);
    store.Flush();
    for (uint64_t number = 0; number < 2000; number += 3) Put(store, number, 1);
    store.Write({{.kind = ChangeKind::kDeleteRange, .key = "key000100", .end = "key000150"}});
    model.erase(model.lower_bound("key000100"), model.lower_bound("key000150"));
    store.Flush();
    for (uint64_t number = 1000; number < 1300; ++number) Put(store, number, 2);
    store.Commit();
    store.Write({{.kind = ChangeKind::kDelete, .key = "key001400"}});
    model.erase("key001400");
    if (end == End::kClosed) store.Close();
  }

  /// Whether it can be opened to be served.
  Status Serve() {
    auto opened_files = storage::FileStorage::Open({.directory = directory});
    FARLEAF_CHECK(opened_files.ok(), opened_files.status());
    auto store = worker.Run(LsmStore::Open(worker, {opened_files->get(), &epochs, &wall, 1}, {},
                                           LsmStore::IfMissing::kFail));
    if (!store.ok()) return store.status();
    (*store)->Abandon();
    return Status::Ok();
  }

  Result<std::unique_ptr<ClosedStore>> Open(const std::string& path) {
    return worker.Run(ClosedStore::Open(worker, path, &wall));
  }
  std::unique_ptr<ClosedStore> Opened() {
    auto store = Open(directory);
    FARLEAF_CHECK(store.ok(), store.status());
    return std::move(*store);
  }
  Scrubbed Check(const std::string& path) {
    auto store = Open(path);
    FARLEAF_CHECK(store.ok(), store.status());
    Scrubbed found;
    ScrubObserver observer;
    observer.fault = [&found](const ScrubFault& fault) { found.faults.push_back(fault); };
    observer.note = [&found](const ScrubFault& note) { found.notes.push_back(note); };
    auto report = worker.Run(Scrub(worker, **store, observer));
    FARLEAF_CHECK(report.ok(), report.status());
    found.report = *report;
    EXPECT_EQ(found.report.faults, found.faults.size());
    return found;
  }
  Model Dump(const std::string& path) {
    auto store = Open(path);
    FARLEAF_CHECK(store.ok(), store.status());
    auto recovered = worker.Run((*store)->Recover(worker));
    EXPECT_TRUE(recovered.ok()) << recovered.status();
    Model rows;
    const ClosedStore::Row row = [&rows](std::string_view key, std::string_view value) {
      rows.emplace(key, value);
      return true;
    };
    Status scanned = worker.Run((*store)->Scan(worker, "", row));
    EXPECT_TRUE(scanned.ok()) << scanned;
    return rows;
  }
  void ExpectSound(const std::string& path) {
    const Scrubbed found = Check(path);
    for (const ScrubFault& fault : found.faults) {
      ADD_FAILURE() << fault.file << " at " << fault.offset << ": " << fault.what;
    }
  }
  /// One fault at least, the first of them there.
  void ExpectFault(const std::string& file, uint64_t offset, const std::string& what) {
    const Scrubbed found = Check(directory);
    ASSERT_FALSE(found.faults.empty());
    const ScrubFault& first = found.faults.front();
    EXPECT_EQ(first.file, file);
    EXPECT_EQ(first.offset, offset);
    EXPECT_NE(first.what.find(what), std::string::npos) << first.what;
  }
  /// Everything, as it is on the file system.
  std::map<std::string, std::string> Snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& each : fs::recursive_directory_iterator(directory)) {
      struct stat found {};
      FARLEAF_CHECK(::stat(each.path().c_str(), &found) == 0);
      std::string content;
      if (each.is_regular_file()) {
        std::ifstream in(each.path(), std::ios::binary);
        content.assign(std::istreambuf_iterator<char>(in), {});
      }
      files[each.path()] =
          fmt::format("{}.{} {} ", found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_nlink) +
          content;
    }
    return files;
  }
  static void Flip(const std::string& file, uint64_t offset) {
    std::fstream at(file, std::ios::in | std::ios::out | std::ios::binary);
    at.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(at.get() ^ 0x10);
    at.seekp(static_cast<std::streamoff>(offset));
    at.put(byte);
    ASSERT_TRUE(at.good()) << file;
  }
  TableInfo FirstTable() {
    const auto store = Opened();
    for (const auto& [place, run] : store->state().runs()) {
      if (!run->tables.empty()) return run->tables.front().table;
    }
    FARLEAF_CHECK(false, "no table");
    return {};
  }
  std::string NameOf(SegmentId id) { return Opened()->files().NameOf(id); }
  /// Pointers that tables have.
  std::vector<ValuePointer> Pointers() {
    std::vector<ValuePointer> pointers;
    const auto store = Opened();
    const ClosedStore::LookAtRow look = [&](const ClosedStore::TableRow& row) {
      if (row.entry.kind == EntryKind::kPointer) pointers.push_back(row.entry.pointer);
      return ClosedStore::GoOn::kWithRow;
    };
    const std::function<void(const Status&)> failed = [](const Status& status) {
      ADD_FAILURE() << status;
    };
    worker.Run(store->ScanTables(worker, "", look, failed));
    return pointers;
  }
};

}  // namespace farleaf::index::lsm
