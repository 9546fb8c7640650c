// FileStorage: a data directory of a file system. Segments are files of 2 MiB, transferred past the page cache by
// the worker's io_uring (io_ring.h), or by a few threads (io_threads.h). Whatever else blocks goes to these threads.
//
// Sync is fdatasync of the segment's file, and fsync of its folder while the file's name may not be on the device.
//
// A Sync that failed has told all that the operating system will tell: it may have given up what was to be
// written, so that a later Sync that is Ok proves nothing about it.
//
// Thread rule: thread-safe. Outlives the I/Os under way, and does not care for the workers' lives.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "index/storage/data_directory.h"
#include "index/storage/file_storage_options.h"
#include "index/storage/io_threads.h"
#include "index/storage/named_files.h"
#include "index/storage/segment_files.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

class FileStorage final : public Storage {
 public:
  static Result<std::unique_ptr<FileStorage>> Open(const FileStorageOptions& options);
  ~FileStorage() override;

  dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id, Making making) override;
  Status Remove(SegmentId id) override;
  Result<std::vector<SegmentId>> List() override;
  void SetReserve(const ReserveSizes& segments) override;
  dsm::Task<Status> FillReserve(dsm::Worker& worker) override;
  dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) override;
  dsm::Task<Result<std::string>> ReadFile(dsm::Worker& worker, std::string name) override;
  dsm::Task<Status> ReplaceFile(dsm::Worker& worker, std::string name, std::string bytes) override;
  dsm::Task<Status> AppendFile(dsm::Worker& worker, std::string name, std::string bytes) override;
  Status RemoveFile(std::string_view name) override;
  Result<std::vector<std::string>> ListFiles() override;
  StorageCounts counts() const override;
  Result<StorageSpace> Space() override;
  std::string NameOf(SegmentId id) const override;
  std::string PathOf(std::string_view file) const override { return directory_.FilePath(file); }

  /// kIoUring or kThreads.
  IoEngine engine() const { return engine_; }
  SegmentFiles& segment_files() { return *segments_; }

 private:
  struct Transfer;
  struct Counts {
    std::atomic<uint64_t> reads{0}, writes{0}, syncs{0}, bytes_read{0}, bytes_written{0};
    std::array<std::atomic<uint64_t>, kIoKinds> longest_ns{};
    std::atomic<uint64_t> longest_create_ns{0}, longest_file_ns{0};
  };

  FileStorage(const FileStorageOptions& options, DataDirectory directory);
  void Prepare(Transfer& transfer, SegmentFiles::Opening opening);
  void Begin(dsm::Worker& worker, Transfer& transfer, IoGroup& group);
  void Queue(dsm::Worker& worker, IoOp& op);
  /// Takes in what the engine said. False: some of it is still to be transferred.
  bool Settle(Transfer& transfer);
  std::string DescribeTransfer(const Io& io) const;

  const FileStorageOptions options_;
  const DataDirectory directory_;
  IoEngine engine_ = IoEngine::kThreads;
  NamedFiles files_;
  std::unique_ptr<SegmentFiles> segments_;  // behind threads_: see the destructor
  std::unique_ptr<IoThreads> threads_;
  Counts counts_;
};

}  // namespace farleaf::index::storage
