#include "index/storage/file_storage.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cerrno>
#include <utility>

#include "dsm/base/atomic_max.h"
#include "dsm/base/check.h"
#include "dsm/base/log.h"
#include "index/storage/io_ring.h"

namespace farleaf::index::storage {

/// An Io under way.
struct FileStorage::Transfer {
  Io* io = nullptr;
  std::shared_ptr<OpenSegment> file;
  FolderSync folder;  ///< kSync
  IoOp op;
  IoOp folder_op;
  uint32_t done = 0;     ///< bytes
  uint32_t retries = 0;  ///< since some bytes were last transferred
  bool ended = false;
};

namespace {
constexpr uint32_t kRetriesMax = 100;  // of one that the system asks to try again
}  // namespace

Result<std::unique_ptr<FileStorage>> FileStorage::Open(const FileStorageOptions& options) {
  const Status valid = options.Validate();
  if (!valid.ok()) return valid.WithContext("storage in " + options.directory);
  Result<DataDirectory> directory = DataDirectory::Open(options.directory);
  if (!directory.ok()) return directory.status();
  std::unique_ptr<FileStorage> storage(new FileStorage(options, std::move(*directory)));
  if (options.engine != IoEngine::kThreads) {
    const Status probed = IoRing::Probe();
    if (probed.ok()) {
      storage->engine_ = IoEngine::kIoUring;
    } else if (options.engine == IoEngine::kIoUring) {
      return probed;
    } else {
      FARLEAF_LOG(warn, "{}: {} threads do the I/O of {}", probed.message(), options.threads,
                  options.directory);
    }
  }
  storage->threads_ = std::make_unique<IoThreads>(options.threads);
  Result<std::unique_ptr<SegmentFiles>> segments =
      SegmentFiles::Open(&storage->directory_, options, storage->threads_.get());
  if (!segments.ok()) return segments.status();
  storage->segments_ = std::move(*segments);
  FARLEAF_RETURN_IF_ERROR(storage->files_.CleanUp());
  return storage;
}

FileStorage::FileStorage(const FileStorageOptions& options, DataDirectory directory)
    : options_(options), directory_(std::move(directory)), files_(&directory_) {}

FileStorage::~FileStorage() {
  threads_.reset();  // what was posted refers to the files
}

// ---- Segments

dsm::Task<Status> FileStorage::Create(dsm::Worker& worker, SegmentId id, Making making) {
  FARLEAF_CHECK(id != SegmentId::kNone);
  Status status;
  const std::function<void()> work = [this, id, making, &status] {
    status = segments_->Create(id, making);
  };
  const uint64_t begun_ns = worker.clock().NowNs();
  co_await threads_->Run(worker, &work);
  RaiseTo(&counts_.longest_create_ns, worker.clock().NowNs() - begun_ns);
  co_return status;
}

void FileStorage::SetReserve(const ReserveSizes& segments) { segments_->SetReserve(segments); }

dsm::Task<Status> FileStorage::FillReserve(dsm::Worker& worker) {
  Status status;
  const std::function<void()> work = [this, &status] { status = segments_->FillReserve(); };
  co_await threads_->Run(worker, &work);
  co_return status;
}

Status FileStorage::Remove(SegmentId id) { return segments_->Remove(id); }

Result<std::vector<SegmentId>> FileStorage::List() { return segments_->List(); }

std::string FileStorage::NameOf(SegmentId id) const { return directory_.SegmentPath(id); }

Result<StorageSpace> FileStorage::Space() {
  struct statvfs device;
  if (::statvfs(directory_.path().c_str(), &device) != 0) {
    return FileError("asking for the space of " + directory_.path(), errno);
  }
  StorageSpace space;
  space.segments = segments_->size();
  const ReserveAccount reserve = segments_->reserve();
  space.reserve = reserve.wanted();
  space.reserve_held = reserve.held();
  const uint64_t missing = (space.reserve - space.reserve_held) * kSegmentBytes;
  space.bytes_free = uint64_t{device.f_bavail} * device.f_frsize +
                     uint64_t{segments_->free_files()} * kSegmentBytes;
  space.bytes_free -= std::min(space.bytes_free, missing);
  if (options_.bytes_max != 0) {
    const uint64_t used = (space.segments + space.reserve) * kSegmentBytes;
    space.bytes_free =
        std::min(space.bytes_free, options_.bytes_max - std::min(options_.bytes_max, used));
  }
  return space;
}

// ---- I/O

dsm::Task<Status> FileStorage::Run(dsm::Worker& worker, std::span<Io> ios) {
  boost::container::small_vector<Transfer, 1> transfers(ios.size());
  bool opened = true;
  for (size_t i = 0; i < ios.size(); ++i) {
    transfers[i].io = &ios[i];
    Prepare(transfers[i], SegmentFiles::Opening::kIfCached);
    opened = opened && (transfers[i].ended || transfers[i].file != nullptr);
  }
  if (!opened) {
    const std::function<void()> work = [this, &transfers] {
      for (Transfer& transfer : transfers) {
        if (!transfer.ended && transfer.file == nullptr) {
          Prepare(transfer, SegmentFiles::Opening::kMayBlock);
        }
      }
    };
    co_await threads_->Run(worker, &work);
  }
  const uint64_t begun_ns = worker.clock().NowNs();
  bool ended = false;
  while (!ended) {
    IoGroup group(worker);
    for (Transfer& transfer : transfers) {
      if (!transfer.ended) Begin(worker, transfer, group);
    }
    co_await group;
    ended = true;
    for (Transfer& transfer : transfers) {
      if (!transfer.ended && !Settle(transfer)) ended = false;
    }
  }
  const uint64_t took_ns = worker.clock().NowNs() - begun_ns;
  Status first;
  for (const Io& io : ios) {
    RaiseTo(&counts_.longest_ns[static_cast<size_t>(io.kind)], took_ns);
    if (first.ok()) first = io.status;
  }
  co_return first;
}

void FileStorage::Prepare(Transfer& transfer, SegmentFiles::Opening opening) {
  Io& io = *transfer.io;
  const bool is_sync = io.kind == IoKind::kSync;
  FARLEAF_CHECK(io.offset % kBlockBytes == 0 && io.bytes.size() % kBlockBytes == 0 &&
                    reinterpret_cast<uintptr_t>(io.bytes.data()) % kBlockBytes == 0 &&
                    io.offset + io.bytes.size() <= kSegmentBytes && io.bytes.empty() == is_sync,
                io.offset, io.bytes.size());
  Result<std::shared_ptr<OpenSegment>> file = segments_->Find(io.segment, opening);
  io.status = file.status();
  transfer.ended = !file.ok();
  if (!file.ok()) return;
  transfer.file = std::move(*file);
  if (is_sync) transfer.folder = segments_->NeedsFolderSync(io.segment);
}

void FileStorage::Begin(dsm::Worker& worker, Transfer& transfer, IoGroup& group) {
  const Io& io = *transfer.io;
  IoOp& op = transfer.op;
  op.kind = io.kind == IoKind::kRead    ? IoOp::Kind::kRead
            : io.kind == IoKind::kWrite ? IoOp::Kind::kWrite
                                        : IoOp::Kind::kSyncData;
  op.fd = transfer.file->fd();
  op.bytes = io.bytes.data() + transfer.done;
  op.length = static_cast<uint32_t>(io.bytes.size()) - transfer.done;
  op.offset = io.offset + transfer.done;
  op.group = &group;
  Queue(worker, op);
  if (transfer.folder.folder == nullptr) return;
  transfer.folder_op.kind = IoOp::Kind::kSyncAll;
  transfer.folder_op.fd = transfer.folder.folder->get();
  transfer.folder_op.group = &group;
  Queue(worker, transfer.folder_op);
}

void FileStorage::Queue(dsm::Worker& worker, IoOp& op) {
  if (engine_ == IoEngine::kIoUring) {
    const Result<IoRing*> ring = IoRing::Of(worker);
    if (ring.ok() && (*ring)->Queue(op).ok()) return;
  }
  threads_->Queue(
      op);  // also where this worker can have no ring: out of descriptors or of locked memory
}

bool FileStorage::Settle(Transfer& transfer) {
  Io& io = *transfer.io;
  int result = transfer.op.result;
  if (io.kind == IoKind::kSync && result == 0 && transfer.folder.folder != nullptr) {
    result = transfer.folder_op.result;
    if (result == 0) segments_->FolderSynced(transfer.folder);
  }
  if (result == -EINTR || result == -EAGAIN) {
    if (++transfer.retries <= kRetriesMax) return false;
  }
  transfer.ended = true;
  if (result < 0) {
    io.status = FileError(DescribeTransfer(io), -result);
    return true;
  }
  if (io.kind == IoKind::kSync) {
    counts_.syncs.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  const bool is_read = io.kind == IoKind::kRead;
  const auto bytes = static_cast<uint32_t>(result);
  (is_read ? counts_.bytes_read : counts_.bytes_written)
      .fetch_add(bytes, std::memory_order_relaxed);
  if (transfer.done + bytes == io.bytes.size()) {
    (is_read ? counts_.reads : counts_.writes).fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  // The rest of a transfer that was cut short keeps to blocks, or O_DIRECT would refuse it.
  const uint32_t blocks_bytes = bytes - bytes % kBlockBytes;
  transfer.done += blocks_bytes;
  transfer.retries = blocks_bytes > 0 ? 0 : transfer.retries + 1;
  transfer.ended = bytes == 0 || transfer.retries > kRetriesMax;
  if (transfer.ended) {
    io.status = Status::IoError(DescribeTransfer(io) + ": the file ends at " +
                                std::to_string(io.offset + transfer.done));
  }
  return transfer.ended;
}

std::string FileStorage::DescribeTransfer(const Io& io) const {
  const std::string path = directory_.SegmentPath(io.segment);
  if (io.kind == IoKind::kSync) return "syncing " + path;
  return (io.kind == IoKind::kRead ? "reading " : "writing ") + std::to_string(io.bytes.size()) +
         " bytes at " + std::to_string(io.offset) + " of " + path;
}

// ---- Named files

dsm::Task<Result<std::string>> FileStorage::ReadFile(dsm::Worker& worker, std::string name) {
  Result<std::string> bytes = std::string();
  const std::function<void()> work = [this, &name, &bytes] { bytes = files_.Read(name); };
  co_await threads_->Run(worker, &work);
  if (bytes.ok()) counts_.bytes_read.fetch_add(bytes->size(), std::memory_order_relaxed);
  co_return bytes;
}

dsm::Task<Status> FileStorage::ReplaceFile(dsm::Worker& worker, std::string name,
                                           std::string bytes) {
  Status status;
  const std::function<void()> work = [this, &name, &bytes, &status] {
    status = files_.Replace(name, bytes);
    while (status.code() == StatusCode::kResourceExhausted && segments_->GiveUpFree()) {
      status = files_.Replace(name, bytes);
    }
  };
  const uint64_t begun_ns = worker.clock().NowNs();
  co_await threads_->Run(worker, &work);
  RaiseTo(&counts_.longest_file_ns, worker.clock().NowNs() - begun_ns);
  if (status.ok()) counts_.bytes_written.fetch_add(bytes.size(), std::memory_order_relaxed);
  co_return status;
}

dsm::Task<Status> FileStorage::AppendFile(dsm::Worker& worker, std::string name,
                                          std::string bytes) {
  Status status;
  const std::function<void()> work = [this, &name, &bytes, &status] {
    status = files_.Append(name, bytes);
    while (status.code() == StatusCode::kResourceExhausted && segments_->GiveUpFree()) {
      status = files_.Append(name, bytes);
    }
  };
  const uint64_t begun_ns = worker.clock().NowNs();
  co_await threads_->Run(worker, &work);
  RaiseTo(&counts_.longest_file_ns, worker.clock().NowNs() - begun_ns);
  if (status.ok()) counts_.bytes_written.fetch_add(bytes.size(), std::memory_order_relaxed);
  co_return status;
}

Status FileStorage::RemoveFile(std::string_view name) { return files_.Remove(name); }

Result<std::vector<std::string>> FileStorage::ListFiles() { return files_.List(); }

StorageCounts FileStorage::counts() const {
  const auto read = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  const auto longest_ns = [&](IoKind kind) {
    return read(counts_.longest_ns[static_cast<size_t>(kind)]);
  };
  return {.reads = read(counts_.reads),
          .writes = read(counts_.writes),
          .syncs = read(counts_.syncs),
          .bytes_read = read(counts_.bytes_read),
          .bytes_written = read(counts_.bytes_written),
          .longest_read_ns = longest_ns(IoKind::kRead),
          .longest_write_ns = longest_ns(IoKind::kWrite),
          .longest_sync_ns = longest_ns(IoKind::kSync),
          .longest_create_ns = read(counts_.longest_create_ns),
          .longest_file_ns = read(counts_.longest_file_ns)};
}

}  // namespace farleaf::index::storage
