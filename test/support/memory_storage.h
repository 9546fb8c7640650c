// MemoryStorage: a Storage in memory that completes at once, unless told to take its time, loses nothing, and fails where a test wants it.
//
// Thread rule: thread-safe; `fail` is set while nothing runs, and called under a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/storage/storage.h"

namespace farleaf::test {

class MemoryStorage final : public index::storage::Storage {
 public:
  using Io = index::storage::Io;
  using IoKind = index::storage::IoKind;
  using SegmentId = index::storage::SegmentId;

  /// Each Create and each Run takes so long; 0: they do not suspend. Set while nothing runs.
  uint64_t delay_ns = 0;
  /// What becomes of an I/O that would succeed.
  std::function<Status(const Io&)> fail;

  /// The segment's bytes, to look at and to damage; nothing runs meanwhile.
  std::vector<std::byte>& bytes(SegmentId id) { return segments_.at(id); }
  /// One of them, whatever runs; nullopt: the segment is not there.
  std::optional<std::byte> ByteAt(SegmentId id, size_t offset) const;

  dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id,
                           index::storage::Making making) override;
  /// There is room for everything.
  void SetReserve(const index::storage::ReserveSizes&) override {}
  dsm::Task<Status> FillReserve(dsm::Worker&) override { co_return Status::Ok(); }
  Status Remove(SegmentId id) override;
  Result<std::vector<SegmentId>> List() override;
  dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) override;

  dsm::Task<Result<std::string>> ReadFile(dsm::Worker&, std::string name) override;
  dsm::Task<Status> ReplaceFile(dsm::Worker&, std::string name, std::string bytes) override;
  dsm::Task<Status> AppendFile(dsm::Worker&, std::string name, std::string bytes) override;
  Status RemoveFile(std::string_view name) override;
  Result<std::vector<std::string>> ListFiles() override;

  index::storage::StorageCounts counts() const override;
  /// The most syncs that one Run had.
  uint64_t syncs_of_a_run_max() const;
  /// Runs that were under way at once, at most.
  uint64_t runs_at_once_max() const;
  Result<index::storage::StorageSpace> Space() override;
  std::string NameOf(SegmentId id) const override;

 private:
  Status One(const Io& io);

  mutable std::mutex mutex_;  // guards all below
  std::map<SegmentId, std::vector<std::byte>> segments_;
  std::map<std::string, std::string> files_;
  index::storage::StorageCounts counts_;
  uint64_t syncs_of_a_run_max_ = 0;
  uint64_t runs_ = 0, runs_at_once_max_ = 0;
};

}  // namespace farleaf::test
