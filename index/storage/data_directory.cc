#include "index/storage/data_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

namespace farleaf::index::storage {

namespace {

constexpr std::string_view kSegmentSuffix = ".segment", kUnfinishedSuffix = ".new";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return Status::Ok();
  if (errno == ENOENT) {
    return Status::IoError("making the directory " + path +
                           ": No such file or directory: make the one that it is to be in");
  }
  return FileError("making the directory " + path, errno);
}

/// Who only reads the directory has not written his process id.
Status InUse(const std::string& directory, int lock) {
  std::array<char, 32> text{};
  const ssize_t bytes = ::pread(lock, text.data(), text.size() - 1, 0);
  const std::string pid = bytes > 0 ? std::string(text.data(), text.data() + bytes) : "unknown";
  std::string what = "the data directory " + directory + " is open in process " + pid;
  pid_t number = 0;
  const auto [end, error] = std::from_chars(pid.data(), pid.data() + pid.size(), number);
  if (error == std::errc() && number > 0 && ::kill(number, 0) != 0 && errno == ESRCH) {
    what = "the data directory " + directory + " is being read by another process";
  }
  return Status::AlreadyExists(std::move(what));
}

Result<dsm::UniqueFd> Lock(const std::string& directory) {
  const std::string path = directory + "/LOCK";
  dsm::UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return FileError("opening " + path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError("locking " + path, errno);
    return InUse(directory, lock.get());
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return FileError("writing " + path, errno);
  }
  return lock;
}

// Not valid: nobody ever opened the directory to write, since that makes the file.
Result<dsm::UniqueFd> LockToRead(const std::string& directory) {
  const std::string path = directory + "/LOCK";
  dsm::UniqueFd lock(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid() && errno == ENOENT) return lock;
  if (!lock.valid()) return FileError("opening " + path, errno);
  if (::flock(lock.get(), LOCK_SH | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileError("locking " + path, errno);
  return InUse(directory, lock.get());
}

}  // namespace

Status FileError(const std::string& what, int error) {
  if (error == ENOSPC) {
    return Status::ResourceExhausted(
        what + ": no space left on the device: delete other files or enlarge the file system");
  }
  if (error == EDQUOT) {
    return Status::ResourceExhausted(what + ": the disk quota is used up: raise it");
  }
  if (error == EMFILE || error == ENFILE) {
    return Status::ResourceExhausted(
        what + ": too many open files: raise the limit (ulimit -n), or lower open_files_max");
  }
  if (error == EACCES || error == EPERM) {
    return Status::IoError(what + ": " + std::strerror(error) +
                           ": the user of this process has to own the directory and what is in it");
  }
  return Status::IoError(what + ": " + std::strerror(error));
}

Result<std::vector<std::string>> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(path, error);
  while (!error && at != std::filesystem::directory_iterator()) {
    names.push_back(at->path().filename().string());
    at.increment(error);
  }
  if (error == std::errc::no_such_file_or_directory)
    return Status::NotFound("there is no directory " + path);
  if (error) return FileError("reading the directory " + path, error.value());
  return names;
}

Result<dsm::UniqueFd> OpenDirectory(const std::string& path) {
  dsm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FileError("opening the directory " + path, errno);
  return fd;
}

Status SyncDirectory(const std::string& path) {
  Result<dsm::UniqueFd> fd = OpenDirectory(path);
  if (!fd.ok()) return fd.status();
  if (::fsync(fd->get()) != 0) return FileError("syncing the directory " + path, errno);
  return Status::Ok();
}

Result<DataDirectory> DataDirectory::Open(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return Status::InvalidArgument("the data directory has no name");
  DataDirectory directory;
  directory.path_ = std::move(path);
  FARLEAF_RETURN_IF_ERROR(MakeDirectory(directory.path_));
  // The new directory's name is to outlive a power loss as well, where we may read what it stands in.
  const Result<dsm::UniqueFd> parent = OpenDirectory(directory.path_ + "/..");
  if (parent.ok()) ::fsync(parent->get());
  Result<dsm::UniqueFd> self = OpenDirectory(directory.path_);
  if (!self.ok()) return self.status();
  directory.self_ = std::move(*self);
  Result<dsm::UniqueFd> lock = Lock(directory.path_);
  if (!lock.ok()) return lock.status();
  directory.lock_ = std::move(*lock);
  FARLEAF_RETURN_IF_ERROR(MakeDirectory(directory.SegmentsPath()));
  FARLEAF_RETURN_IF_ERROR(MakeDirectory(directory.FreePath()));
  if (::fsync(directory.fd()) != 0) {
    return FileError("syncing the directory " + directory.path_, errno);
  }
  return directory;
}

Result<DataDirectory> DataDirectory::OpenToRead(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  DataDirectory directory;
  directory.path_ = std::move(path);
  directory.self_ =
      dsm::UniqueFd(::open(directory.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.self_.valid()) {
    const int error = errno;
    if (error == ENOENT) return Status::InvalidArgument("there is no directory " + directory.path_);
    if (error == ENOTDIR) return Status::InvalidArgument(directory.path_ + " is no directory");
    return FileError("opening the directory " + directory.path_, error);
  }
  Result<dsm::UniqueFd> lock = LockToRead(directory.path_);
  if (!lock.ok()) return lock.status();
  directory.lock_ = std::move(*lock);
  return directory;
}

std::string DataDirectory::FolderPath(uint64_t folder) const {
  return fmt::format("{}/segments/{:09}", path_, folder);
}

std::string DataDirectory::SegmentPath(SegmentId id) const {
  return fmt::format("{}/segments/{:09}/{:012}{}", path_, FolderOf(id), Number(id), kSegmentSuffix);
}

std::string DataDirectory::FreeFilePath(uint64_t number) const {
  return fmt::format("{}/free/{:010}{}", path_, number, kSegmentSuffix);
}

bool DataDirectory::IsFolder(std::string_view name) {
  constexpr size_t kDigits = 9;
  return name.size() >= kDigits && std::ranges::all_of(name, IsDigit);
}

bool DataDirectory::IsUnfinished(std::string_view name) {
  if (!name.ends_with(kUnfinishedSuffix)) return false;
  name.remove_suffix(kUnfinishedSuffix.size());
  const auto fits = [](char c) { return (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '-'; };
  return !name.empty() && std::ranges::all_of(name, fits);
}

Status DataDirectory::CheckName(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (name.empty() || name.size() > 200 || name.front() == '.' ||
      name.ends_with(kUnfinishedSuffix) || name == "LOCK" || name == "segments" || name == "free" ||
      !std::ranges::all_of(name, fits)) {
    return Status::InvalidArgument("\"" + std::string(name) + "\" cannot be the name of a file");
  }
  return Status::Ok();
}

uint64_t DataDirectory::SegmentNumber(std::string_view file_name) {
  if (!file_name.ends_with(kSegmentSuffix)) return 0;
  file_name.remove_suffix(kSegmentSuffix.size());
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(file_name.data(), file_name.data() + file_name.size(), number);
  return error == std::errc() && end == file_name.data() + file_name.size() ? number : 0;
}

}  // namespace farleaf::index::storage
