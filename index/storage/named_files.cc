#include "index/storage/named_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>

#include "dsm/base/check.h"

namespace farleaf::index::storage {

namespace {

/// 0, or the errno.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

Result<std::string> NamedFiles::Read(const std::string& name) {
  FARLEAF_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  const std::string path = directory_->FilePath(name);
  const dsm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return Status::NotFound("there is no file " + path);
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0) return FileError("opening " + path, errno);
  std::string bytes(static_cast<size_t>(found.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return FileError("reading " + path + " at " + std::to_string(done), errno);
    }
    if (count == 0) break;  // cut off meanwhile
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

Status NamedFiles::Replace(const std::string& name, std::string_view bytes) {
  FARLEAF_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  std::lock_guard lock(mutex_);
  const std::string path = directory_->FilePath(name), temporary = path + ".new";
  int error = 0;
  {
    const dsm::UniqueFd fd(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.valid()) return FileError("making " + temporary, errno);
    error = WriteAll(fd.get(), bytes);
    if (error == 0 && ::fsync(fd.get()) != 0) error = errno;
  }
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return FileError("writing " + temporary + " to replace " + path, error);
  }
  if (::fsync(directory_->fd()) != 0) {
    return FileError("syncing the directory " + directory_->path(), errno);
  }
  return Status::Ok();
}

Status NamedFiles::Append(const std::string& name, std::string_view bytes) {
  FARLEAF_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  std::lock_guard lock(mutex_);
  const std::string path = directory_->FilePath(name);
  const dsm::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return Status::NotFound("there is no file " + path);
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0) return FileError("opening " + path, errno);
  int error = WriteAll(fd.get(), bytes);
  if (error == 0 && ::fdatasync(fd.get()) != 0) error = errno;
  if (error == 0) return Status::Ok();
  // What cannot be cut off again would stand in front of what a second try appends.
  if (::ftruncate(fd.get(), found.st_size) != 0) error = EIO;
  return FileError("appending " + std::to_string(bytes.size()) + " bytes to " + path + " at " +
                       std::to_string(found.st_size),
                   error);
}

Status NamedFiles::Remove(std::string_view name) {
  FARLEAF_RETURN_IF_ERROR(DataDirectory::CheckName(name));
  std::lock_guard lock(mutex_);
  const std::string path = directory_->FilePath(name);
  if (::unlink(path.c_str()) == 0) return Status::Ok();
  if (errno == ENOENT) return Status::NotFound("there is no file " + path);
  return FileError("unlinking " + path, errno);
}

Result<std::vector<std::string>> NamedFiles::List() {
  Result<std::vector<std::string>> names = NamesIn(directory_->path());
  if (!names.ok()) return names.status();
  std::erase_if(*names, [this](const std::string& name) {
    struct stat found {};
    return !DataDirectory::CheckName(name).ok() ||
           ::fstatat(directory_->fd(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
           S_ISDIR(found.st_mode);
  });
  std::ranges::sort(*names);
  return names;
}

Status NamedFiles::CleanUp() {
  const Result<std::vector<std::string>> names = NamesIn(directory_->path());
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (DataDirectory::IsUnfinished(name)) ::unlinkat(directory_->fd(), name.c_str(), 0);
  }
  return Status::Ok();
}

}  // namespace farleaf::index::storage
