// ReadOnlyFiles: a data directory as FileStorage left it, to be looked at: nothing in it is changed, not even cleaned up, and no right
// to write is needed.
//
// What would change something fails with Unimplemented. A Sync does nothing, and is Ok: nothing was written. Reads go past the page
// cache where the file system has that, so that they tell what is on the device; they block whoever asks.
//
// Thread rule: one thread. Nobody writes to the directory meanwhile (its LOCK).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "index/storage/data_directory.h"
#include "index/storage/named_files.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

class ReadOnlyFiles final : public Storage {
 public:
  /// InvalidArgument: there is no such directory. AlreadyExists: a process has it open to write; it is named. IoError: no right to read
  /// it, say.
  static Result<std::unique_ptr<ReadOnlyFiles>> Open(std::string directory);

  const DataDirectory& directory() const { return directory_; }
  const std::vector<SegmentId>& segments() const { return segments_; }
  /// Files of removed segments that wait for new ones, and those of the reserve.
  uint64_t free_files() const { return free_files_; }
  bool Has(SegmentId id) const;

  dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id, Making making) override;
  Status Remove(SegmentId id) override;
  void SetReserve(const ReserveSizes&) override {}
  dsm::Task<Status> FillReserve(dsm::Worker& worker) override;
  Result<std::vector<SegmentId>> List() override { return segments_; }
  /// Also Corruption: a file ends too early.
  dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) override;
  dsm::Task<Result<std::string>> ReadFile(dsm::Worker& worker, std::string name) override;
  dsm::Task<Status> ReplaceFile(dsm::Worker& worker, std::string name, std::string bytes) override;
  dsm::Task<Status> AppendFile(dsm::Worker& worker, std::string name, std::string bytes) override;
  Status RemoveFile(std::string_view name) override;
  Result<std::vector<std::string>> ListFiles() override { return files_.List(); }
  StorageCounts counts() const override { return counts_; }
  Result<StorageSpace> Space() override { return StorageSpace{segments_.size(), 0}; }
  std::string NameOf(SegmentId id) const override { return directory_.SegmentPath(id); }
  std::string PathOf(std::string_view file) const override { return directory_.FilePath(file); }

 private:
  explicit ReadOnlyFiles(DataDirectory directory)
      : directory_(std::move(directory)), files_(&directory_) {}
  Status Scan();
  Result<int> Descriptor(SegmentId id);
  Status Read(const Io& io);

  const DataDirectory directory_;
  NamedFiles files_;
  std::vector<SegmentId> segments_;  // ascending
  uint64_t free_files_ = 0;
  bool direct_ = true;
  std::map<SegmentId, dsm::UniqueFd> open_;
  StorageCounts counts_;
};

}  // namespace farleaf::index::storage
