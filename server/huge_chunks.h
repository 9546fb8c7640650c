// HugeChunks: puts hugepages behind those chunks of a region that compute servers have taken, where the system gives
// hugepages to shared memory only by request, page by page (MADV_COLLAPSE). A load from a page whose translation no TLB
// knows takes twice as long otherwise.
//
// Only 2 MiB all of whose chunks are taken get one, so that no memory is used which was not asked for. Whoever touches them
// meanwhile waits for some milliseconds: so it does one at a time, with pauses of many times as long.
//
// Thread rule: BackNext by one thread; after Start that is its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/status.h"
#include "dsm/region_layout.h"

namespace farleaf::server {

class HugeChunks {
 public:
  struct Deps {
    dsm::RegionLayout layout;
    std::span<const std::byte> region;  ///< outlives it
    const Clock* clock = nullptr;       ///< outlives it
    /// MemoryRegion::BackByHugepage.
    std::function<Status(uint64_t offset)> back;
  };
  explicit HugeChunks(Deps deps);
  /// Ends the thread, if there is one.
  ~HugeChunks();
  HugeChunks(const HugeChunks&) = delete;

  enum class Outcome : uint8_t { kBacked, kBusy, kNothingToDo, kNoneLeft, kImpossible };
  /// Of the 2 MiB that are taken and have none yet, the next get a hugepage.
  Outcome BackNext();
  /// From now on a thread does.
  void Start();

 private:
  void Run();
  /// Whether compute servers have taken all chunks of these 2 MiB.
  bool Taken(size_t range) const;

  const Deps deps_;
  std::vector<bool> backed_;  // by range
  size_t next_ = 0;           // the range to be looked at
  bool told_ = false;         // of a failure

  std::mutex mutex_;  // guards stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farleaf::server
