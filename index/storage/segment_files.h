// SegmentFiles: the files of segments: made, opened, forgotten, recycled.
//
// Open descriptors are kept, least recently used out first, up to a bound. Whoever has an I/O under way holds its
// file open, whatever happens to the segment meanwhile: a removed segment's file is unlinked, or kept for a new
// segment, when the last one lets go of it.
//
// A file is recycled only if no other name links to it (a checkpoint's, say), and if what was written to it is on the device: of one that
// is unlinked instead, the operating system drops what is not.
//
// The reserve is files that are free already: room that nobody else can take. They lie where free files lie, and are told from these
// by their number only, so that the next process finds them.
//
// Thread rule: thread-safe. Create and Settle block; they are for IoThreads.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/socket.h"
#include "index/storage/data_directory.h"
#include "index/storage/file_storage_options.h"
#include "index/storage/io_threads.h"
#include "index/storage/reserve_account.h"
#include "index/storage/segment_set.h"

namespace farleaf::index::storage {

class SegmentFiles;

/// A segment's file, open. Its last owner closes it.
class OpenSegment {
 public:
  OpenSegment(SegmentFiles* files, SegmentId id, dsm::UniqueFd fd)
      : files_(files), id_(id), fd_(std::move(fd)) {}
  ~OpenSegment();
  OpenSegment(const OpenSegment&) = delete;
  int fd() const { return fd_.get(); }
  SegmentId id() const { return id_; }

 private:
  friend class SegmentFiles;
  SegmentFiles* files_;
  SegmentId id_;
  dsm::UniqueFd fd_;
  bool removed_ = false;  // written under the lock of SegmentFiles, before its owner lets go
};

/// The entries of a folder that the device may not have, for a Sync to bring there.
struct FolderSync {
  std::shared_ptr<dsm::UniqueFd> folder;  ///< null: none
  std::vector<SegmentId> created;
};

class SegmentFiles {
 public:
  /// Looks at what is there. `threads` outlives it until Stop.
  static Result<std::unique_ptr<SegmentFiles>> Open(const DataDirectory* directory,
                                                    const FileStorageOptions& options,
                                                    IoThreads* threads);

  Status Create(SegmentId id, Making making);
  Status Remove(SegmentId id);
  enum class Opening : uint8_t {
    kIfCached,  ///< null where the file would have to be looked for on the device
    kMayBlock,
  };
  /// NotFound: no such segment.
  Result<std::shared_ptr<OpenSegment>> Find(SegmentId id, Opening opening);
  FolderSync NeedsFolderSync(SegmentId id);
  void FolderSynced(const FolderSync& synced);

  std::vector<SegmentId> List() const;
  size_t size() const;
  size_t open_files() const;
  /// Those of the reserve are not counted.
  size_t free_files() const;
  void SetReserve(const ReserveSizes& segments);
  ReserveAccount reserve() const;
  /// Blocks.
  Status FillReserve();
  /// Unlinks or keeps the files of removed segments.
  void Settle();
  /// Unlinks the files that were kept; else one of the reserve. True: there were some, so that there is room now.
  bool GiveUpFree();

 private:
  friend class OpenSegment;
  using Handle = std::shared_ptr<OpenSegment>;
  struct Cached {
    Handle file;
    std::list<SegmentId>::iterator used;
  };
  struct Folder {
    std::shared_ptr<dsm::UniqueFd> fd;
    uint32_t files = 0;
    std::vector<SegmentId> created;  // since it was synced
  };

  SegmentFiles(const DataDirectory* directory, const FileStorageOptions& options,
               IoThreads* threads);
  Status Scan();
  Status ScanFolder(const std::string& path);
  Status ScanFree();
  Status ProbeDirectIo();
  int OpenFlags(WriteBack write_back) const;
  /// Whether bytes_max lets one more file be made. REQUIRES: mutex_.
  bool BelowLimit() const;
  Status LimitReached(const std::string& path) const;
  // REQUIRES: making_mutex_, down to TakeFreeFile, which blocks as they do.
  Status FillUpReserve();
  Status AddToReserve();
  Result<dsm::UniqueFd> MakeFile(SegmentId id, Making making);
  Result<dsm::UniqueFd> MakeFileBesideReserve(const std::string& path, WriteBack write_back);
  Result<dsm::UniqueFd> NewFile(const std::string& path, WriteBack write_back);
  /// That is not the reserve's. Not valid: there is none that can be used.
  dsm::UniqueFd TakeFreeFile(const std::string& path, WriteBack write_back);
  Status AddToFolder(SegmentId id);
  void DropFromFolder(SegmentId id);
  void Retire(SegmentId id);
  /// One of retired_; false: there is none. REQUIRES: making_mutex_.
  bool SettleNext();
  void SettleOne(SegmentId id);
  /// Unlinks the others.
  void KeepFree(size_t keep);
  /// Whether its file may serve another segment.
  bool Recyclable(const std::string& path, WriteBack write_back) const;
  Result<dsm::UniqueFd> OpenFile(SegmentId id, Opening opening, WriteBack write_back);
  void Keep(const Handle& file, std::vector<Handle>* evicted);
  void Evict(size_t keep, std::vector<Handle>* evicted);

  const DataDirectory* directory_;
  const FileStorageOptions options_;
  IoThreads* threads_;
  bool direct_ = true;
  bool reserves_ =
      true;  // the file system can; else what is written lazily may be lost on a full device
  size_t open_max_ = 0;

  std::atomic<uint32_t> makers_{0};  // who waits for the mutex to make a file
  std::mutex making_mutex_;          // held while files are made and unlinked; guards:
  std::vector<uint64_t> free_;       // names of free files, of which some are the reserve
  uint64_t next_free_ = 1;

  mutable std::mutex mutex_;  // never held while anything blocks; guards all below
  SegmentSet segments_;
  std::set<SegmentId> lazy_;  // made for WriteBack::kLazily; until their files are unlinked
  std::unordered_map<uint64_t, Cached> open_;
  std::list<SegmentId> used_;  // of open_, the most recently used first
  std::map<uint64_t, Folder> folders_;
  std::vector<SegmentId> retired_;  // removed, nobody has the file open, and it is still there
  bool settling_ = false;           // Settle was posted, and looks at retired_ again before it ends
  size_t free_count_ = 0;           // of free_
  ReserveAccount reserve_;          // it has no more than free_count_
  bool short_of_room_ =
      false;  // since the reserve was last whole: the device had none for it, or some of it was taken
};

}  // namespace farleaf::index::storage
