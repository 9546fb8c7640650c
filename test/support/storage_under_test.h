// Storages for tests: a worker without memory servers, aligned memory, and each implementation of Storage behind one
// little language.
//
// Thread rule: a Desk belongs to one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/null_transport.h"
#include "dsm/worker.h"
#include "index/storage/file_storage.h"
#include "index/storage/sim_storage.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

/// A folder that is gone with it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent = ::testing::TempDir()) {
    path_ = parent + "/farleaf-storage-XXXXXX";
    FARLEAF_CHECK(::mkdtemp(path_.data()) != nullptr, path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Memory fit for segment I/O, filled with one byte.
class Blocks {
 public:
  explicit Blocks(size_t count, char fill = 0)
      : bytes_(count * kBlockBytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes_))) {
    std::memset(data_.get(), fill, bytes_);
  }
  std::span<std::byte> span() { return {data_.get(), bytes_}; }
  std::span<std::byte> block(size_t i) { return span().subspan(i * kBlockBytes, kBlockBytes); }
  /// The byte that all of block `i` are, or -1.
  int Uniform(size_t i) {
    const std::span<std::byte> bytes = block(i);
    for (const std::byte byte : bytes) {
      if (byte != bytes[0]) return -1;
    }
    return static_cast<int>(bytes[0]);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// A worker of a process without memory servers.
inline std::unique_ptr<dsm::Worker> WorkerWithoutServers(dsm::EpochDomain* epochs,
                                                         const Clock* clock) {
  return std::make_unique<dsm::Worker>(dsm::Worker::Deps{
      .transport = std::make_unique<dsm::NullTransport>(), .epochs = epochs, .clock = clock});
}

/// A worker that runs one call at a time on a storage.
class Desk {
 public:
  Desk(Storage* storage, const Clock* clock)
      : storage_(storage), worker_(WorkerWithoutServers(&epochs_, clock)) {}

  dsm::Worker& worker() { return *worker_; }
  Status Create(uint64_t id, WriteBack write_back = WriteBack::kAtOnce,
                std::optional<Reserve> from = {}) {
    const Making making{write_back, from};
    return worker_->Run(storage_->Create(*worker_, SegmentId{id}, making));
  }
  Status CreateFrom(Reserve part, uint64_t id) { return Create(id, WriteBack::kAtOnce, part); }
  Status FillReserve() { return worker_->Run(storage_->FillReserve(*worker_)); }
  Status Run(std::span<Io> ios) { return worker_->Run(storage_->Run(*worker_, ios)); }
  Status Write(uint64_t id, uint32_t block, char fill, size_t count = 1) {
    Blocks bytes(count, fill);
    Io io{IoKind::kWrite, SegmentId{id}, block * kBlockBytes, bytes.span()};
    return Run({&io, 1});
  }
  /// The byte that the block is full of, -1 if it is no one byte, -2 if the read failed.
  int Read(uint64_t id, uint32_t block) {
    Blocks bytes(1);
    Io io{IoKind::kRead, SegmentId{id}, block * kBlockBytes, bytes.span()};
    return Run({&io, 1}).ok() ? bytes.Uniform(0) : -2;
  }
  Status TryRead(uint64_t id, uint32_t block) {
    Blocks bytes(1);
    Io io{IoKind::kRead, SegmentId{id}, block * kBlockBytes, bytes.span()};
    return Run({&io, 1});
  }
  Status Sync(uint64_t id) {
    Io io{IoKind::kSync, SegmentId{id}};
    return Run({&io, 1});
  }
  std::string ReadFile(const std::string& name) {
    Result<std::string> bytes = worker_->Run(storage_->ReadFile(*worker_, name));
    return bytes.ok() ? *bytes : bytes.status().ToString();
  }
  Status Replace(const std::string& name, const std::string& bytes) {
    return worker_->Run(storage_->ReplaceFile(*worker_, name, bytes));
  }
  Status Append(const std::string& name, const std::string& bytes) {
    return worker_->Run(storage_->AppendFile(*worker_, name, bytes));
  }

 private:
  Storage* storage_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::Worker> worker_;
};

/// One implementation, and how it is closed and opened again.
template <IoEngine kEngine>
class FileUnderTest {
 public:
  static constexpr bool kRealThreads = true;
  FileUnderTest() { Open(); }
  void Open() {
    Result<std::unique_ptr<FileStorage>> opened = FileStorage::Open(
        {.directory = folder_.path(), .engine = kEngine, .bytes_max = bytes_max_});
    FARLEAF_CHECK(opened.ok(), opened.status());
    storage_ = std::move(*opened);
    FARLEAF_CHECK(storage_->engine() == kEngine);
  }
  void Close() { storage_.reset(); }
  /// REQUIRES: synced, or at peace: a file system does not forget on command.
  void Crash() { Close(); }
  void SetSegmentsMax(uint64_t segments) {
    Close();
    bytes_max_ = segments * kSegmentBytes;
    Open();
  }
  Storage& storage() { return *storage_; }
  const Clock& clock() { return clock_; }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  MonotonicClock clock_;
  uint64_t bytes_max_ = 0;
  std::unique_ptr<FileStorage> storage_;
};

class SimUnderTest {
 public:
  static constexpr bool kRealThreads = false;
  SimUnderTest() { Open(); }
  void Open() {
    storage_ = std::make_unique<SimStorage>(SimStorageOptions{.seed = ++seed_, .clock = &clock_},
                                            std::move(image_));
    storage_->SetSegmentsMax(segments_max_);
  }
  void Close() { Crash(); }
  void Crash() {
    image_ = storage_->Crash();
    storage_.reset();
  }
  void SetSegmentsMax(uint64_t segments) {
    segments_max_ = segments;
    storage_->SetSegmentsMax(segments);
  }
  Storage& storage() { return *storage_; }
  SimStorage& sim() { return *storage_; }
  const Clock& clock() { return clock_; }

 private:
  ManualClock clock_;
  uint64_t seed_ = 1;
  uint64_t segments_max_ = 0;
  SimImage image_;
  std::unique_ptr<SimStorage> storage_;
};

}  // namespace farleaf::index::storage
