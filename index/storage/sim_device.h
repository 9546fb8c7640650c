// SimDevice: what SimStorage and its workers share: the image, the I/Os under way, and the faults.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "index/storage/io_op.h"
#include "index/storage/reserve_account.h"
#include "index/storage/sim_image.h"
#include "index/storage/sim_storage.h"

namespace farleaf::index::storage {

/// An I/O under way. What it points to is its coroutine's.
struct SimIo {
  enum class Kind : uint8_t { kTransfer, kCreate, kReadFile, kReplaceFile, kAppendFile };
  Kind kind = Kind::kTransfer;
  IoGroup* group = nullptr;
  Io* io = nullptr;                     ///< kTransfer
  std::shared_ptr<SimSegment> segment;  ///< kTransfer
  std::vector<std::byte> written;       ///< a write's bytes, as they were when it began
  uint64_t synced = 0;                  ///< a Sync's: the last change that it covers
  SegmentId id = SegmentId::kNone;      ///< kCreate
  std::optional<Reserve> from = {};     ///< kCreate
  std::string name, bytes;              ///< of a file
  std::string* read = nullptr;          ///< kReadFile: out
  Status* status = nullptr;             ///< out, also of kTransfer
  bool fails = false;
};

class SimDevice {
 public:
  SimDevice(const SimStorageOptions& options, SimImage image)
      : options_(options), random_(options.seed), image_(std::move(image)) {}

  void Begin(SimIo io);
  Status Remove(SegmentId id);
  Status RemoveFile(std::string_view name);
  void SetReserve(const ReserveSizes& segments) { reserve_.Want(segments); }
  Status FillReserve();
  const ReserveAccount& reserve() const { return reserve_; }
  SimImage Crash();
  Status Failure(const SimIo& io, std::string_view why) const;
  std::string NameOf(SegmentId id) const {
    return "sim/" + std::to_string(Number(id)) + ".segment";
  }

  // For the source of each worker.
  void Reap(const dsm::Worker& worker, std::vector<std::coroutine_handle<>>* ready);
  bool busy(const dsm::Worker& worker) const;
  uint64_t NextDueNs(const dsm::Worker& worker) const;
  void MoveClock(const dsm::Worker& worker, uint64_t timeout_ns);

  struct Faults {
    uint64_t stop_at = 0, fail_at = 0;  // numbers of I/Os; 0: none
    uint64_t segments_max = 0;
    uint64_t slowness = 1;
    std::set<SegmentId> unreadable;
    bool files_full = false;
    bool stuck = false;
    bool stopped = false;
  };
  Faults& faults() { return faults_; }
  SimImage& image() { return image_; }
  uint64_t ios() const { return ios_; }
  uint64_t changes() const { return changes_; }
  const StorageCounts& counts() const { return counts_; }

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // when it is due, and its number
  static constexpr size_t kRemovedMax = 8;

  void End(SimIo& io);
  void EndTransfer(SimIo& io);
  void EndCreate(SimIo& io);
  void EndFile(SimIo& io);
  void LandInPart(SimIo& io);
  std::shared_ptr<SimSegment> NewSegment();
  /// For one more, beside the reserve.
  bool HasRoom() const;
  Status TakeRoom(const SimIo& io);

  const SimStorageOptions options_;
  Random random_;
  SimImage image_;
  Faults faults_;
  ReserveAccount reserve_;
  StorageCounts counts_;
  uint64_t ios_ = 0;
  uint64_t changes_ = 0;  // writes that have ended
  std::map<Place, SimIo> under_way_;
  std::deque<std::pair<SegmentId, std::shared_ptr<SimSegment>>> removed_;  // a crash may bring back
  std::deque<std::pair<std::string, std::string>> removed_files_;
};

}  // namespace farleaf::index::storage
