#include "index/lsm/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "index/lsm/log_buffer.h"
#include "index/lsm/named_segments.h"

namespace farleaf::index::lsm {

using storage::DataDirectory;
using storage::FileError;
using storage::SyncDirectory;

namespace {

constexpr size_t kCopyBytes = size_t{1} << 20;

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("writing " + path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::Ok();
}

/// A file that was not there, on the device.
Status MakeFile(const std::string& path, std::string_view content) {
  const dsm::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return FileError("making " + path, errno);
  FARLEAF_RETURN_IF_ERROR(WriteAll(fd.get(), AsBytes(content), path));
  if (::fsync(fd.get()) != 0) return FileError("syncing " + path, errno);
  return Status::Ok();
}

class DirectoryCopy {
 public:
  DirectoryCopy(ClosedStore& from, std::string to, CopyLinks links)
      : from_(from), to_path_(std::move(to)), linking_(links == CopyLinks::kWherePossible) {}

  /// An empty directory with the file INCOMPLETE, and nothing else.
  Status Begin() {
    while (to_path_.size() > 1 && to_path_.back() == '/') to_path_.pop_back();
    std::error_code error;
    const auto to = std::filesystem::weakly_canonical(to_path_, error);
    const auto from = std::filesystem::weakly_canonical(from_.files().directory().path(), error);
    if (std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end()) {
      return Status::InvalidArgument(to_path_ + " is inside the store that is to be copied");
    }
    if (::mkdir(to_path_.c_str(), 0755) != 0 && errno != EEXIST) {
      return FileError("making the directory " + to_path_, errno);
    }
    const bool empty = std::filesystem::is_empty(to_path_, error);
    if (error) return FileError("reading the directory " + to_path_, error.value());
    if (!empty || !std::filesystem::is_directory(to_path_, error)) {
      return Status::InvalidArgument(to_path_ + " is not an empty directory" + WhatIsThere());
    }
    FARLEAF_RETURN_IF_ERROR(MakeFile(IncompletePath(), ""));
    begun_ = true;
    FARLEAF_RETURN_IF_ERROR(SyncDirectory(to_path_));
    const std::string parent = std::filesystem::path(to.native()).parent_path().string();
    FARLEAF_RETURN_IF_ERROR(SyncDirectory(parent));
    auto opened = DataDirectory::Open(to_path_);
    if (!opened.ok()) return opened.status();
    to_ = std::move(*opened);
    return Status::Ok();
  }

  Status CopySegment(SegmentId id) {
    FARLEAF_RETURN_IF_ERROR(EnterFolder(DataDirectory::FolderOf(id)));
    const std::string source = from_.files().NameOf(id), target = to_->SegmentPath(id);
    ++report_.segments;
    if (linking_) {
      if (::link(source.c_str(), target.c_str()) == 0) {
        ++report_.linked;
        return SyncFile(target);
      }
      // Another file system, one without links or with too many of this file, or somebody else's file.
      if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP) {
        return FileError("linking " + source + " as " + target, errno);
      }
    }
    return CopyFile(source, target);
  }

  /// Named files and what else is needed; the last of all is that INCOMPLETE goes.
  Status Finish(const std::string& manifest, std::string_view content, std::string_view current) {
    if (folder_) FARLEAF_RETURN_IF_ERROR(SyncDirectory(to_->FolderPath(*folder_)));
    FARLEAF_RETURN_IF_ERROR(SyncDirectory(to_->SegmentsPath()));
    FARLEAF_RETURN_IF_ERROR(MakeFile(to_->FilePath(manifest), content));
    FARLEAF_RETURN_IF_ERROR(MakeFile(to_->FilePath("CURRENT"), current));
    FARLEAF_RETURN_IF_ERROR(SyncDirectory(to_path_));
    if (::unlink(IncompletePath().c_str()) != 0) {
      return FileError("unlinking " + IncompletePath(), errno);
    }
    return SyncDirectory(to_path_);
  }

  const CopyReport& report() const { return report_; }
  /// So that whoever reads of a failure knows what is left.
  Status Describe(const Status& failure) const {
    if (!begun_) return failure;
    return failure.WithContext(to_path_ + " is incomplete (remove it)");
  }

 private:
  std::string IncompletePath() const { return to_path_ + "/" + std::string(kIncompleteFile); }
  std::string WhatIsThere() const {
    return ::access(IncompletePath().c_str(), F_OK) == 0
               ? ": a copy to it was not finished; remove it"
               : "";
  }

  // Segments come in the order of folders.
  Status EnterFolder(uint64_t folder) {
    if (folder_ == folder) return Status::Ok();
    if (folder_) FARLEAF_RETURN_IF_ERROR(SyncDirectory(to_->FolderPath(*folder_)));
    folder_ = folder;
    const std::string path = to_->FolderPath(folder);
    if (::mkdir(path.c_str(), 0755) == 0) return Status::Ok();
    return FileError("making the directory " + path, errno);
  }

  // The store may have crashed, and the machine not: then the device may not have it.
  Status SyncFile(const std::string& path) {
    const dsm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return FileError("opening " + path, errno);
    if (::fsync(fd.get()) != 0) return FileError("syncing " + path, errno);
    return Status::Ok();
  }

  Status CopyFile(const std::string& source, const std::string& target) {
    const dsm::UniqueFd in(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
    if (!in.valid()) return FileError("opening " + source, errno);
    const dsm::UniqueFd out(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!out.valid()) return FileError("making " + target, errno);
    for (;;) {
      const ssize_t count = ::read(in.get(), buffer_.data(), buffer_.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return FileError("reading " + source, errno);
      if (count == 0) break;
      const auto bytes = std::span<const std::byte>(buffer_).first(static_cast<size_t>(count));
      FARLEAF_RETURN_IF_ERROR(WriteAll(out.get(), bytes, target));
      report_.bytes_copied += bytes.size();
    }
    if (::fsync(out.get()) != 0) return FileError("syncing " + target, errno);
    ++report_.copied;
    return Status::Ok();
  }

  ClosedStore& from_;
  std::string to_path_;
  const bool linking_;
  bool begun_ = false;
  std::optional<DataDirectory> to_;  // and its LOCK
  std::optional<uint64_t> folder_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kCopyBytes);
  CopyReport report_;
};

}  // namespace

dsm::Task<Result<CopyReport>> CopyStore(dsm::Worker& worker, ClosedStore& from, std::string to,
                                        CopyLinks links,
                                        std::function<void(const CopyReport&)> progress) {
  const auto unnamed = FindUnnamed(from.state(), &from.files(), from.files().segments());
  if (!unnamed.ok()) co_return unnamed.status();
  const std::string manifest = from.manifest().opened_file().name;
  auto content = co_await from.files().ReadFile(worker, manifest);
  if (!content.ok()) co_return content.status();
  auto current = co_await from.files().ReadFile(worker, "CURRENT");
  if (!current.ok()) co_return current.status();
  DirectoryCopy copy(from, std::move(to), links);
  Status status = copy.Begin();
  for (const SegmentId id : from.files().segments()) {
    if (!status.ok()) break;
    if (std::ranges::binary_search(*unnamed, id)) continue;
    status = copy.CopySegment(id);
    if (status.ok() && progress) progress(copy.report());
  }
  if (status.ok()) status = copy.Finish(manifest, *content, *current);
  if (!status.ok()) co_return copy.Describe(status);
  co_return copy.report();
}

}  // namespace farleaf::index::lsm
