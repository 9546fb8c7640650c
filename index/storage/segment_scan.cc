// What SegmentFiles finds when it is opened.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "dsm/base/log.h"
#include "index/storage/segment_files.h"

namespace farleaf::index::storage {

namespace {

/// Descriptors that the process may have, as many as the system lets it.
uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlimit raised{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) return limit.rlim_cur;
  return raised.rlim_cur;
}

}  // namespace

Result<std::unique_ptr<SegmentFiles>> SegmentFiles::Open(const DataDirectory* directory,
                                                         const FileStorageOptions& options,
                                                         IoThreads* threads) {
  std::unique_ptr<SegmentFiles> files(new SegmentFiles(directory, options, threads));
  const uint64_t descriptors = RaiseDescriptorLimit();
  constexpr uint64_t kOpenMax = uint64_t{1} << 20;
  files->open_max_ = options.open_files_max != 0 ? options.open_files_max
                                                 : std::min(kOpenMax, descriptors / 4 * 3);
  FARLEAF_RETURN_IF_ERROR(files->ProbeDirectIo());
  FARLEAF_RETURN_IF_ERROR(files->Scan());
  FARLEAF_RETURN_IF_ERROR(files->ScanFree());
  return files;
}

Status SegmentFiles::ProbeDirectIo() {
  direct_ = false;
  if (options_.direct == DirectIo::kOff) return Status::Ok();
  const std::string path = directory_->FreePath() + "/probe";
  const dsm::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0644));
  int error = fd.valid() ? 0 : errno;
  if (error == 0) {
    void* block = nullptr;
    FARLEAF_CHECK(::posix_memalign(&block, kBlockBytes, kBlockBytes) == 0);
    std::memset(block, 0, kBlockBytes);
    // A device that is full now says nothing about how it may be written to.
    if (::pwrite(fd.get(), block, kBlockBytes, 0) < 0 && errno != ENOSPC) error = errno;
    ::free(block);
    reserves_ = ::fallocate(fd.get(), 0, 0, kSegmentBytes) == 0 || errno != EOPNOTSUPP;
  }
  ::unlink(path.c_str());
  if (error == EINVAL || error == EOPNOTSUPP) {
    FARLEAF_LOG(warn, "the file system of {} refuses O_DIRECT: I/O goes through the page cache",
                directory_->path());
    return Status::Ok();
  }
  if (error != 0 && error != ENOSPC && error != EDQUOT) return FileError("writing " + path, error);
  direct_ = true;
  return Status::Ok();
}

Status SegmentFiles::Scan() {
  Result<std::vector<std::string>> folders = NamesIn(directory_->SegmentsPath());
  if (!folders.ok()) return folders.status();
  for (const std::string& folder : *folders) {
    const std::string path = directory_->SegmentsPath() + "/" + folder;
    if (!DataDirectory::IsFolder(folder)) {
      FARLEAF_LOG(warn, "{} is no folder of this storage, and left alone", path);
      continue;
    }
    if (::rmdir(path.c_str()) == 0) continue;  // it was empty
    FARLEAF_RETURN_IF_ERROR(ScanFolder(path));
    FARLEAF_RETURN_IF_ERROR(SyncDirectory(path));  // names that a killed process gave
  }
  return Status::Ok();
}

Status SegmentFiles::ScanFolder(const std::string& path) {
  Result<std::vector<std::string>> names = NamesIn(path);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const SegmentId id{DataDirectory::SegmentNumber(name)};
    if (id == SegmentId::kNone || directory_->SegmentPath(id) != path + "/" + name) {
      FARLEAF_LOG(warn, "{}/{} is no segment of this storage, and left alone", path, name);
      continue;
    }
    segments_.Insert(id);
    ++folders_[DataDirectory::FolderOf(id)].files;
  }
  return Status::Ok();
}

Status SegmentFiles::ScanFree() {
  Result<std::vector<std::string>> names = NamesIn(directory_->FreePath());
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const uint64_t number = DataDirectory::SegmentNumber(name);
    const std::string path = directory_->FreePath() + "/" + name;
    if (number == 0 || directory_->FreeFilePath(number) != path) {
      FARLEAF_LOG(warn, "{} is no file of this storage, and left alone", path);
      continue;
    }
    next_free_ = std::max(next_free_, number + 1);
    // How many of them are the reserve's is not known yet, and others may have taken all other room: FillReserve unlinks the rest.
    free_.push_back(number);
  }
  free_count_ = free_.size();
  return Status::Ok();
}

}  // namespace farleaf::index::storage
