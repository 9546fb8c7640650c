#include "server/lsm/lsm_engine.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/null_transport.h"

namespace farleaf::server {

using dsm::Task;
using dsm::Worker;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;

namespace {

constexpr uint64_t kPauseNs = 5 * kNsPerMs;
constexpr double kMiB = 1 << 20;

double MiBOf(uint64_t bytes) { return static_cast<double>(bytes) / kMiB; }

using NameCheck = bool (*)(const std::string& name);

// What a store's directory may have before there is a CURRENT: the first start may have ended there.
bool MayBeginAStore(const std::string& name) {
  return name == "LOCK" || name == "segments" || name == "free" || name == "lost+found" ||
         name.starts_with("MANIFEST-") || name.starts_with("CURRENT");
}
bool IsFolderOfSegments(const std::string& name) {
  constexpr size_t kDigits = 9;
  return name.size() == kDigits && name.find_first_not_of("0123456789") == std::string::npos;
}
bool IsFreeFile(const std::string& name) { return name.ends_with(".segment") || name == "probe"; }

/// InvalidArgument: something there does not fit. A directory that does not exist fits.
Status CheckNames(const std::string& path, const std::string& below, NameCheck fits) {
  std::error_code error;
  std::filesystem::directory_iterator entry(path + below, error);
  if (error == std::errc::no_such_file_or_directory) return Status::Ok();
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (fits(name)) continue;
    return Status::InvalidArgument(fmt::format(
        "{} has other files ({}) and no store of ours: give an empty directory, or a new one", path,
        below.empty() ? name : below.substr(1) + "/" + name));
  }
  if (error) return Status::IoError("reading " + path + below + ": " + error.message());
  return Status::Ok();
}

}  // namespace

Status CheckStoreDirectory(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return Status::Ok();
  if (error) return Status::IoError("looking at " + path + ": " + error.message());
  if (!std::filesystem::is_directory(status)) {
    return Status::InvalidArgument(path + " is no directory");
  }
  const bool has_store = std::filesystem::is_regular_file(path + "/CURRENT", error) &&
                         std::filesystem::is_directory(path + "/segments", error);
  if (has_store) return Status::Ok();
  FARLEAF_RETURN_IF_ERROR(CheckNames(path, "", MayBeginAStore));
  FARLEAF_RETURN_IF_ERROR(CheckNames(path, "/segments", IsFolderOfSegments));
  return CheckNames(path, "/free", IsFreeFile);
}

LsmOptions StoreOptionsOf(const LsmEngineOptions& options) {
  LsmOptions store = options.store;
  store.collect_above = options.collect_above_percent / 100.0;
  store.garbage_max = options.garbage_max_percent / 100.0;
  return store;
}

Result<std::unique_ptr<LsmEngine>> LsmEngine::Open(const LsmEngineOptions& options, uint64_t seed,
                                                   const Clock* clock) {
  std::unique_ptr<LsmEngine> engine(new LsmEngine(options, seed, clock));
  const Status opened = engine->OpenStore();
  if (!opened.ok()) return opened.WithContext("data_dir " + options.files.directory);
  return engine;
}

LsmEngine::~LsmEngine() {
  host_.reset();
  background_.reset();
  if (store_) store_->Abandon();
}

Result<std::unique_ptr<Worker>> LsmEngine::OpenWorker() {
  const uint64_t number = ++workers_;
  return std::make_unique<Worker>(Worker::Deps{std::make_unique<dsm::NullTransport>(), &epochs_,
                                               clock_, seed_ + number, number});
}

Status LsmEngine::OpenStore() {
  const uint64_t start_ns = clock_->NowNs();
  const LsmOptions store = StoreOptionsOf(options_);
  FARLEAF_RETURN_IF_ERROR(store.Validate());
  FARLEAF_RETURN_IF_ERROR(CheckStoreDirectory(options_.files.directory));
  auto storage = index::storage::FileStorage::Open(options_.files);
  if (!storage.ok()) return storage.status();
  storage_ = std::move(*storage);
  auto worker = OpenWorker();
  if (!worker.ok()) return worker.status();
  worker_ = std::move(*worker);
  bool opened = false;
  worker_->Spawn(TellProgress(&opened));
  const LsmStore::Deps deps{storage_.get(), &epochs_, &wall_, seed_};
  auto there = worker_->Run(LsmStore::Open(*worker_, deps, store, LsmStore::IfMissing::kCreate));
  opened = true;
  worker_->RunUntilIdle();
  if (!there.ok()) return there.status();
  store_ = std::move(*there);
  description_ = DescribeStore(clock_->NowNs() - start_ns);
  const auto open_worker = [this] { return OpenWorker(); };
  auto background = index::lsm::Background::Start(store_.get(), open_worker);
  if (!background.ok()) return background.status();
  background_ = std::move(*background);
  auto host =
      LsmTreeHost::Load({store_.get(), storage_.get(), options_.files.directory, open_worker});
  if (!host.ok()) return host.status();
  host_ = std::move(*host);
  return Status::Ok();
}

// Beside the opening, on the same worker: what has been read so far is all that can be seen of it from outside.
Task<void> LsmEngine::TellProgress(const bool* opened) {
  uint64_t told_ns = clock_->NowNs();
  while (!*opened) {
    co_await worker_->Sleep(kPauseNs);
    const uint64_t now_ns = clock_->NowNs();
    if (*opened || now_ns - told_ns < kNsPerSecond) continue;
    told_ns = now_ns;
    FARLEAF_LOG(info, "recovering the store in {}: {:.1f} MiB read", options_.files.directory,
                MiBOf(storage_->counts().bytes_read));
  }
}

std::string LsmEngine::DescribeStore(uint64_t took_ns) {
  worker_->GoOnline();
  const auto version = store_->version();
  const LsmStore::Memtables memtables = store_->memtables();
  worker_->GoOffline();
  uint64_t tables = 0, bytes = 0;
  for (const index::lsm::Run& run : version->runs) {
    tables += run.tables.size();
    bytes += run.bytes;
  }
  const bool synced = store_->options().durability == index::lsm::Durability::kSynced;
  return fmt::format(
      "store in {}: {} tables of {:.1f} MiB, {:.1f} MiB of changes replayed, opened in {:.0f} ms, "
      "writes are {}",
      options_.files.directory, tables, MiBOf(bytes),
      memtables.active_empty ? 0.0 : MiBOf(memtables.active_bytes),
      static_cast<double>(took_ns) / kNsPerMs, synced ? "synced" : "local");
}

Task<void> FlushMemtables(LsmStore& store, Worker& worker, uint64_t within_ms,
                          Engine::Hurried hurried) {
  const uint64_t end_ns = worker.clock().NowNs() + within_ms * kNsPerMs;
  for (;;) {
    const LsmStore::Memtables memtables = store.memtables();
    if (memtables.active_empty && !memtables.flushing_bytes) co_return;
    dsm::FabricCounts counts;
    dsm::OpContext op{worker, counts};
    const Status writing = co_await store.Upkeep(op);
    if (!writing.ok() || hurried() || worker.clock().NowNs() >= end_ns) co_return;
    store.FlushSoon();
    co_await worker.Sleep(kPauseNs);
  }
}

Status LsmEngine::Close(const Hurried& hurried) {
  host_.reset();
  const uint64_t start_ns = clock_->NowNs();
  if (options_.close_flush_ms > 0) {
    worker_->Run(FlushMemtables(*store_, *worker_, options_.close_flush_ms, hurried));
  }
  background_.reset();
  const Status closed = worker_->Run(store_->Close(*worker_));
  store_.reset();
  worker_.reset();
  storage_.reset();
  const uint64_t took_ms = (clock_->NowNs() - start_ns) / kNsPerMs;
  const std::string& directory = options_.files.directory;
  if (closed.ok()) {
    FARLEAF_LOG(info, "closed the store in {} in {} ms", directory, took_ms);
    return closed;
  }
  FARLEAF_LOG(error, "the store in {} was not closed in good order: {}", directory,
              closed.ToString());
  return closed.WithContext("the store in " + directory + " was not closed in good order");
}

}  // namespace farleaf::server
