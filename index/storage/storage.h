// Storage: where an LSM store keeps its bytes: segments of 2 MiB, and a few small named files.
//
// A segment is created, written in whole blocks, synced, read at any place, and removed. Its id is never used
// again, so that whatever names (segment, offset) can go stale but never means something else.
//
// What may be relied on, on every implementation, tested by one contract suite:
//   1. a READ sees every write that completed before it was submitted;
//   2. what completed before a Sync of its segment was submitted survives a crash once that Sync is Ok;
//   3. any other write may be there after a crash, or not, or in part, block by block, in any order;
//   4. a block (kBlockBytes) is never torn, but nobody relies on it: everything carries checksums;
//   5. Create is durable with the first Sync of the segment; Remove may be undone by a crash, and the segment then has
//      any bytes (its file may have gone to another segment);
//   6. ReplaceFile is atomic and durable when it is Ok; AppendFile is durable when it is Ok, and after a crash a
//      prefix of what was being appended is there;
//   7. a byte of a segment that was never written has any value, that of a removed segment, say;
//   8. a Sync that failed may have given up what it was to bring to the device: a later one that is Ok tells nothing about
//      that.
//   9. once FillReserve is Ok, or a Create that takes nothing of the reserve, all of the reserve is there, whatever becomes of the device's
//      room: for as long as nobody takes of it, also in the next process.
// Failures: IoError with the operating system's reason, ResourceExhausted (the device is full), NotFound (no such segment
// or file); each names the file and the offset.
//
// Thread rule: thread-safe. An I/O is awaited on the worker that submitted it; its memory must stay until then.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"

namespace farleaf::index::storage {

inline constexpr uint32_t kSegmentBytes = uint32_t{2} << 20;
/// Unit and alignment of offsets, lengths and memory of segment I/O, for O_DIRECT.
inline constexpr uint32_t kBlockBytes = 4096;

/// From 1; given by the store, ascending, never twice.
enum class SegmentId : uint64_t { kNone = 0 };
constexpr uint64_t Number(SegmentId id) { return static_cast<uint64_t>(id); }

/// When what is written to a segment goes to the device.
enum class WriteBack : uint8_t {
  kAtOnce,
  /// When it is synced, or after a while: what is removed before costs the device nothing. For what is read after a crash only.
  kLazily,
};

/// Parts of the reserve: segments that the device has already, for whoever makes room. In the order in which they are filled.
enum class Reserve : uint8_t { kMerges, kFlushes, kLogs };
inline constexpr size_t kReserves = 3;
/// Segments, by Reserve.
using ReserveSizes = std::array<uint64_t, kReserves>;

/// How a segment is made.
struct Making {
  WriteBack write_back = WriteBack::kAtOnce;
  /// What it is taken from if there is no other room; nullopt: nothing, and what is missing of the reserve is made first.
  std::optional<Reserve> from = std::nullopt;
};

enum class IoKind : uint8_t { kRead, kWrite, kSync };
inline constexpr size_t kIoKinds = 3;

/// One transfer, or the Sync of one segment.
struct Io {
  IoKind kind = IoKind::kRead;
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0;  ///< multiple of kBlockBytes; kSync: 0
  std::span<std::byte> bytes =
      {};  ///< multiple of kBlockBytes, so aligned; kSync: empty; kWrite: only read from
  Status status = {};  ///< out
};

/// Transferred since the storage was opened.
struct StorageCounts {
  uint64_t reads = 0, writes = 0, syncs = 0;
  uint64_t bytes_read = 0,
           bytes_written =
               0;  ///< named files included; what is written lazily may never reach the device
  // The longest that somebody waited for one Run of that kind, for a Create, and for a change of a named file. 0 where time is not the
  // device's.
  uint64_t longest_read_ns = 0, longest_write_ns = 0, longest_sync_ns = 0;
  uint64_t longest_create_ns = 0, longest_file_ns = 0;
};

struct StorageSpace {
  uint64_t segments = 0;      ///< that exist
  uint64_t bytes_free = 0;    ///< that the device has left for new ones, beside the reserve
  uint64_t reserve = 0;       ///< segments that SetReserve has asked for
  uint64_t reserve_held = 0;  ///< of them are there
};

class Storage {
 public:
  virtual ~Storage() = default;

  /// A new segment with room for kSegmentBytes. AlreadyExists: the id was taken. ResourceExhausted: the device has no room, or has
  /// it for the reserve only.
  virtual dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id, Making making) = 0;
  /// Gone for whoever asks; reads that were submitted before still end. Its space is free once they have.
  virtual Status Remove(SegmentId id) = 0;
  /// Of all that exist, ascending.
  virtual Result<std::vector<SegmentId>> List() = 0;
  /// How much is to be kept of the device's room; 0 until then. It becomes less at once, and more as it is filled: first with segments that
  /// are removed, and by FillReserve. Does not block.
  virtual void SetReserve(const ReserveSizes& segments) = 0;
  /// Makes what is missing of the reserve. ResourceExhausted: some of it.
  virtual dsm::Task<Status> FillReserve(dsm::Worker& worker) = 0;
  /// All at once, in any order; ends when all have. The first failure; each has its own. `ios` stays until then.
  virtual dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) = 0;

  // Named files: the manifest and what belongs to it. Small.
  virtual dsm::Task<Result<std::string>> ReadFile(dsm::Worker& worker, std::string name) = 0;
  /// Makes the file, or puts these bytes in the place of what is there.
  virtual dsm::Task<Status> ReplaceFile(dsm::Worker& worker, std::string name,
                                        std::string bytes) = 0;
  /// With no bytes it makes durable what is in the file. REQUIRES: one at a time to a file. NotFound: there is no such
  /// file. After any other failure, too, a prefix may be there: replace the file.
  virtual dsm::Task<Status> AppendFile(dsm::Worker& worker, std::string name,
                                       std::string bytes) = 0;
  virtual Status RemoveFile(std::string_view name) = 0;
  virtual Result<std::vector<std::string>> ListFiles() = 0;

  virtual StorageCounts counts() const = 0;
  virtual Result<StorageSpace> Space() = 0;
  /// For messages: the segment as a person would look for it ("/data/000000000012.segment").
  virtual std::string NameOf(SegmentId id) const = 0;
  /// The same of a named file.
  virtual std::string PathOf(std::string_view file) const { return std::string(file); }
};

}  // namespace farleaf::index::storage
