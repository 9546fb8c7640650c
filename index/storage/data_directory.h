// DataDirectory: where in a directory what is, and the lock that keeps other processes out.
//
//   LOCK                                      flock, and the pid of who has it
//   MANIFEST, ...                             named files; NAME.new is one that was not finished
//   segments/000000002/000000008195.segment   kSegmentsPerFolder to a folder
//   free/0000000007.segment                   files for new segments
//
// Thread rule: const after Open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/socket.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

inline constexpr uint64_t kSegmentsPerFolder = 4096;

class DataDirectory {
 public:
  /// Makes what is missing. AlreadyExists: another storage has it open; names the directory and the process.
  static Result<DataDirectory> Open(std::string path);
  /// Changes nothing, and needs no right to. Others may read it meanwhile, but nobody may open it to write. InvalidArgument: there is
  /// no such directory. AlreadyExists: as above.
  static Result<DataDirectory> OpenToRead(std::string path);

  const std::string& path() const { return path_; }
  int fd() const { return self_.get(); }
  static uint64_t FolderOf(SegmentId id) { return Number(id) / kSegmentsPerFolder; }
  std::string SegmentsPath() const { return path_ + "/segments"; }
  std::string FolderPath(uint64_t folder) const;
  std::string SegmentPath(SegmentId id) const;
  std::string FreePath() const { return path_ + "/free"; }
  std::string FreeFilePath(uint64_t number) const;
  std::string FilePath(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// "000000002": a folder of segments.
  static bool IsFolder(std::string_view name);
  /// "MANIFEST.new": a named file that was not finished, if the named file has a name in capitals, digits and hyphens. Others
  /// may be somebody else's.
  static bool IsUnfinished(std::string_view name);
  /// InvalidArgument: not the name of a named file.
  static Status CheckName(std::string_view name);
  /// The number of "000000000012.segment"; 0: it is none.
  static uint64_t SegmentNumber(std::string_view file_name);

 private:
  std::string path_;
  dsm::UniqueFd self_;
  dsm::UniqueFd lock_;
};

/// Fails with ResourceExhausted and what to do about it if the device is full, else with IoError. `what` says
/// what was tried, on which file.
Status FileError(const std::string& what, int error);

/// The names in a directory, in no order. NotFound: it is not there.
Result<std::vector<std::string>> NamesIn(const std::string& path);
/// Opens a directory, to be synced.
Result<dsm::UniqueFd> OpenDirectory(const std::string& path);
/// Names that were made or changed in the directory survive a crash.
Status SyncDirectory(const std::string& path);

}  // namespace farleaf::index::storage
