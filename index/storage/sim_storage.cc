#include "index/storage/sim_storage.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"
#include "index/storage/data_directory.h"
#include "index/storage/sim_device.h"

namespace farleaf::index::storage {

namespace {

/// A worker's part of the device.
class SimSource final : public dsm::CompletionSource {
 public:
  SimSource(std::shared_ptr<SimDevice> device, const dsm::Worker* worker)
      : device_(std::move(device)), worker_(worker) {}
  void Reap(std::vector<std::coroutine_handle<>>* ready) override {
    device_->Reap(*worker_, ready);
  }
  void Submit() override {}
  bool busy() const override { return device_->busy(*worker_); }
  void SubmitAndWait(int /*wake_fd*/, uint64_t timeout_ns) override {
    device_->MoveClock(*worker_, timeout_ns);
  }
  bool WakeThrough(int /*wake_fd*/) override {
    device_->MoveClock(*worker_, 0);
    return false;
  }
  uint64_t NextDueNs() const override { return device_->NextDueNs(*worker_); }

 private:
  std::shared_ptr<SimDevice> device_;
  const dsm::Worker* worker_;
};

void NeedSource(dsm::Worker& worker, const std::shared_ptr<SimDevice>& device) {
  // The source keeps the device, so that its address names no other one as long as the worker lives.
  if (worker.FindSource(device.get()) == nullptr) {
    worker.AddSource(device.get(), std::make_unique<SimSource>(device, &worker));
  }
}

}  // namespace

SimStorage::SimStorage(const SimStorageOptions& options, SimImage image)
    : device_(std::make_shared<SimDevice>(options, std::move(image))) {
  FARLEAF_CHECK(options.io_ns_min <= options.io_ns_max, options.io_ns_min, options.io_ns_max);
}
SimStorage::~SimStorage() = default;

dsm::Task<Status> SimStorage::Create(dsm::Worker& worker, SegmentId id, Making making) {
  FARLEAF_CHECK(id != SegmentId::kNone);
  NeedSource(worker, device_);
  Status status;
  IoGroup group(worker);
  device_->Begin({.kind = SimIo::Kind::kCreate,
                  .group = &group,
                  .id = id,
                  .from = making.from,
                  .status = &status});
  co_await group;
  co_return status;
}

dsm::Task<Status> SimStorage::Run(dsm::Worker& worker, std::span<Io> ios) {
  NeedSource(worker, device_);
  IoGroup group(worker);
  for (Io& io : ios) {
    FARLEAF_CHECK(io.offset % kBlockBytes == 0 && io.bytes.size() % kBlockBytes == 0 &&
                      reinterpret_cast<uintptr_t>(io.bytes.data()) % kBlockBytes == 0 &&
                      io.offset + io.bytes.size() <= kSegmentBytes &&
                      io.bytes.empty() == (io.kind == IoKind::kSync),
                  io.offset, io.bytes.size());
    const auto at = device_->image().segments.find(io.segment);
    if (at == device_->image().segments.end()) {
      io.status = Status::NotFound("there is no segment " + NameOf(io.segment));
      continue;
    }
    SimIo begun{.group = &group, .io = &io, .segment = at->second, .status = &io.status};
    if (io.kind == IoKind::kWrite) begun.written.assign(io.bytes.begin(), io.bytes.end());
    begun.synced = device_->changes();
    device_->Begin(std::move(begun));
  }
  co_await group;
  Status first;
  for (const Io& io : ios) {
    if (first.ok()) first = io.status;
  }
  co_return first;
}

dsm::Task<Result<std::string>> SimStorage::ReadFile(dsm::Worker& worker, std::string name) {
  FARLEAF_CO_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  NeedSource(worker, device_);
  Status status;
  std::string bytes;
  IoGroup group(worker);
  device_->Begin({.kind = SimIo::Kind::kReadFile,
                  .group = &group,
                  .name = std::move(name),
                  .read = &bytes,
                  .status = &status});
  co_await group;
  if (!status.ok()) co_return status;
  co_return bytes;
}

dsm::Task<Status> SimStorage::ReplaceFile(dsm::Worker& worker, std::string name,
                                          std::string bytes) {
  FARLEAF_CO_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  NeedSource(worker, device_);
  Status status;
  IoGroup group(worker);
  device_->Begin({.kind = SimIo::Kind::kReplaceFile,
                  .group = &group,
                  .name = std::move(name),
                  .bytes = std::move(bytes),
                  .status = &status});
  co_await group;
  co_return status;
}

dsm::Task<Status> SimStorage::AppendFile(dsm::Worker& worker, std::string name, std::string bytes) {
  FARLEAF_CO_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  NeedSource(worker, device_);
  Status status;
  IoGroup group(worker);
  device_->Begin({.kind = SimIo::Kind::kAppendFile,
                  .group = &group,
                  .name = std::move(name),
                  .bytes = std::move(bytes),
                  .status = &status});
  co_await group;
  co_return status;
}

void SimStorage::SetReserve(const ReserveSizes& segments) { device_->SetReserve(segments); }
dsm::Task<Status> SimStorage::FillReserve(dsm::Worker&) {
  Status filled = device_->FillReserve();
  co_return filled;
}
Status SimStorage::Remove(SegmentId id) { return device_->Remove(id); }
Status SimStorage::RemoveFile(std::string_view name) { return device_->RemoveFile(name); }
StorageCounts SimStorage::counts() const { return device_->counts(); }
std::string SimStorage::NameOf(SegmentId id) const { return device_->NameOf(id); }

Result<std::vector<SegmentId>> SimStorage::List() {
  std::vector<SegmentId> all;
  for (const auto& [id, segment] : device_->image().segments) all.push_back(id);
  return all;
}

Result<std::vector<std::string>> SimStorage::ListFiles() {
  std::vector<std::string> all;
  for (const auto& [name, bytes] : device_->image().files) all.push_back(name);
  return all;
}

Result<StorageSpace> SimStorage::Space() {
  constexpr uint64_t kUnbounded = uint64_t{1} << 40;
  StorageSpace space{.segments = device_->image().segments.size(), .bytes_free = kUnbounded};
  if (const uint64_t max = device_->faults().segments_max; max != 0) {
    const uint64_t used = space.segments + device_->reserve().wanted();
    space.bytes_free = (max - std::min(max, used)) * kSegmentBytes;
  }
  space.reserve = device_->reserve().wanted();
  space.reserve_held = device_->reserve().held();
  return space;
}

// ---- Faults

uint64_t SimStorage::ios() const { return device_->ios(); }
void SimStorage::StopAfter(uint64_t n) { device_->faults().stop_at = device_->ios() + n; }
bool SimStorage::stopped() const { return device_->faults().stopped; }
SimImage SimStorage::Crash() { return device_->Crash(); }
void SimStorage::FailIo(uint64_t n) { device_->faults().fail_at = device_->ios() + n; }
void SimStorage::SetSegmentsMax(uint64_t segments) { device_->faults().segments_max = segments; }
void SimStorage::SetUnreadable(SegmentId id, bool unreadable) {
  device_->faults().unreadable.erase(id);
  if (unreadable) device_->faults().unreadable.insert(id);
}
void SimStorage::SetFilesFull(bool full) { device_->faults().files_full = full; }
void SimStorage::SetStuck(bool stuck) { device_->faults().stuck = stuck; }
void SimStorage::SetSlowness(uint64_t times) { device_->faults().slowness = times; }

void SimStorage::FlipBit(SegmentId id, uint32_t offset, uint32_t bit) {
  const auto at = device_->image().segments.find(id);
  FARLEAF_CHECK(at != device_->image().segments.end(), Number(id));
  at->second->FlipBit(offset, bit);
}

void SimStorage::FlipFileBit(std::string_view name, size_t offset, uint32_t bit) {
  const auto at = device_->image().files.find(name);
  FARLEAF_CHECK(at != device_->image().files.end() && offset < at->second.size(), offset);
  at->second[offset] = static_cast<char>(at->second[offset] ^ (1u << (bit % 8)));
}

}  // namespace farleaf::index::storage
