#include "test/support/lsm_host.h"

#include <chrono>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

index::lsm::LsmOptions LsmHost::SmallStore() {
  index::lsm::LsmOptions options;
  options.memtable_bytes = uint64_t{2} << 20;  // a quarter is more than one chunk of its arena
  options.cache_bytes = uint64_t{1} << 20;
  options.growth_factor = 4;
  options.table_bytes_max = uint64_t{4} << 20;
  options.value_separation_bytes = 256;
  return options;
}

LsmHost::LsmHost(Options options)
    : options_(options),
      fabric_(std::move(*dsm::LocalFabric::Create(
          {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}))) {
  storage_.delay_ns = options.io_delay_ns;
  Open();
}

LsmHost::~LsmHost() { Close(); }

std::unique_ptr<dsm::Worker> LsmHost::OpenWorker(size_t) {
  auto transport = fabric_->OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  const uint64_t number = ++workers_;  // also the seed: what two workers draw must differ
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::move(*transport), &epochs_, &clock_, number, number});
}

void LsmHost::Open() {
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

Status LsmHost::TryOpen() {
  auto worker = OpenWorker();
  auto store = worker->Run(index::lsm::LsmStore::Open(*worker, {&storage_, &epochs_, &clock_, 1},
                                                      options_.store,
                                                      index::lsm::LsmStore::IfMissing::kCreate));
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  return Status::Ok();
}

void LsmHost::StopBackground() {
  at_rest_ = true;
  if (restless_.joinable()) restless_.join();
  at_rest_ = false;
  background_ = nullptr;
}

void LsmHost::Close() {
  if (!store_) return;
  StopBackground();
  auto worker = OpenWorker();
  Status closed = worker->Run(store_->Close(*worker));
  FARLEAF_CHECK(closed.ok(), closed);
  store_ = nullptr;
}

IndexKind LsmKind(std::string name, LsmHost::Options options) {
  return {std::move(name), false, index::lsm::kKeyBytesMax, 200, 200'000, [options] {
            return std::make_unique<LsmHost>(options);
          }};
}

}  // namespace farleaf::test
