// SimStorage: a disk in memory that does to a store all that storage.h allows, as one seed decides. For tests.
//
// An I/O takes some time by the clock of the worker that submitted it, and ends in a turn of that worker's loop; so
// I/Os end in any order, and a run under a clock that is not real repeats exactly. Whoever runs several workers
// on one thread moves the clock, to Worker::NextDueNs if nobody has anything to do. A worker that runs by itself moves
// Options::clock on where it would block.
//
// A crash: StopAfter or Crash; then the workers are abandoned, and a new SimStorage opens what Crash returned. Of
// changes that were not synced it leaves any subset of blocks, in any of their versions, some torn by sectors. A
// segment that was removed may come back, with any bytes.
//
// Thread rule: one thread, for the storage and all its workers. I/Os under way keep what they need alive.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "index/storage/sim_image.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

class SimDevice;

struct SimStorageOptions {
  uint64_t seed = 1;
  /// Moved on by a worker that blocks until an I/O ends. Null: nobody blocks.
  ManualClock* clock = nullptr;
  /// An I/O takes this long, each a time of its own.
  uint64_t io_ns_min = 1'000, io_ns_max = 200'000;
};

class SimStorage final : public Storage {
 public:
  explicit SimStorage(const SimStorageOptions& options, SimImage image = {});
  ~SimStorage() override;

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
  std::string PathOf(std::string_view file) const override { return "sim/" + std::string(file); }

  // ---- Faults
  /// Begun so far: transfers, syncs, creations, and what is done to named files.
  uint64_t ios() const;
  /// From the n-th I/O from now on, itself included, none ends any more. 1: the next.
  void StopAfter(uint64_t n);
  bool stopped() const;
  /// What is left. The storage does nothing any more; workers with I/Os under way are to be abandoned.
  SimImage Crash();
  /// The n-th I/O from now fails with IoError; if it was a write, some of it may have happened. 1: the next.
  void FailIo(uint64_t n);
  /// From now on each read of this segment fails with IoError, or none does.
  void SetUnreadable(SegmentId id, bool unreadable);
  /// The device is full when it has so many segments, with those of the reserve; or others have the rest. 0: never.
  void SetSegmentsMax(uint64_t segments);
  /// Named files cannot grow.
  void SetFilesFull(bool full);
  /// REQUIRES: exists, offset inside.
  void FlipBit(SegmentId id, uint32_t offset, uint32_t bit);
  void FlipFileBit(std::string_view name, size_t offset, uint32_t bit);
  /// While stuck, no I/O ends. Those under way end when it is over.
  void SetStuck(bool stuck);
  /// I/Os that begin from now on take so many times as long.
  void SetSlowness(uint64_t times);

 private:
  std::shared_ptr<SimDevice> device_;
};

}  // namespace farleaf::index::storage
