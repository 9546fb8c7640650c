#include "benchmark/adapters/lsm_target.h"

#include <atomic>
#include <utility>

#include "benchmark/adapters/lsm_store.h"
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
    worker_->GoOnline();
    DescribeLsmStore(*store_, storage_->counts(), &json);
    worker_->GoOffline();
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
