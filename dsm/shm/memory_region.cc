#include "dsm/shm/memory_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

namespace {

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/// At a multiple of a hugepage's size, as offsets in the region are: only so can one that is behind it be mapped whole.
void* MapAligned(int fd, uint64_t bytes) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t whole = RoundUp(bytes, kPageBytes);
  void* const room = ::mmap(nullptr, whole + kHugepageBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    auto* const begin = static_cast<std::byte*>(room);
    auto* const aligned = begin + RoundUp(reinterpret_cast<uintptr_t>(room), kHugepageBytes) -
                          reinterpret_cast<uintptr_t>(room);
    if (::mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == aligned) {
      const auto before = static_cast<size_t>(aligned - begin);
      if (before > 0) ::munmap(begin, before);
      if (before < kHugepageBytes) ::munmap(aligned + whole, kHugepageBytes - before);
      return aligned;
    }
    ::munmap(room, whole + kHugepageBytes);
  }
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/// Opens, sizes and maps one kind of memory; the descriptor is closed again on failure.
Result<std::pair<int, std::byte*>> OpenAndMap(int fd, uint64_t bytes, const std::string& what) {
  if (fd < 0) return OsError("cannot create " + what);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    Status status = OsError("cannot size " + what);
    ::close(fd);
    return status;
  }
  void* data = MapAligned(fd, bytes);
  if (data == MAP_FAILED) {
    Status status = OsError("cannot map " + what);
    ::close(fd);
    return status;
  }
  return std::pair(fd, static_cast<std::byte*>(data));
}

}  // namespace

Result<MemoryRegion> MemoryRegion::Create(const Options& options) {
  const std::string size = std::to_string(options.bytes) + " bytes";
  if (!options.file.empty()) {
    const std::string what = options.file + " with " + size;
    auto mapped = OpenAndMap(::open(options.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600),
                             options.bytes, what);
    if (!mapped.ok()) return mapped.status();
    // A file may hold an older region's bytes; a fresh region is all zero.
    std::memset(mapped->second, 0, options.bytes);
    return MemoryRegion(mapped->first, mapped->second, options.bytes, false);
  }
  if (options.hugepages != Hugepages::kNever && options.bytes % kHugepageBytes == 0) {
    auto mapped = OpenAndMap(::memfd_create("farleaf", MFD_CLOEXEC | MFD_HUGETLB), options.bytes,
                             "hugepage memory of " + size);
    if (mapped.ok()) return MemoryRegion(mapped->first, mapped->second, options.bytes, true);
    if (options.hugepages == Hugepages::kRequire) {
      return mapped.status().WithContext("reserve them in /proc/sys/vm/nr_hugepages");
    }
  } else if (options.hugepages == Hugepages::kRequire) {
    return Status::InvalidArgument("a region on hugepages must be a multiple of 2 MiB, not " +
                                   size);
  }
  auto mapped =
      OpenAndMap(::memfd_create("farleaf", MFD_CLOEXEC), options.bytes, "shared memory of " + size);
  if (!mapped.ok()) return mapped.status();
  // Transparent hugepages where the system offers them for shared memory; a refusal costs nothing.
  if (options.hugepages != Hugepages::kNever)
    ::madvise(mapped->second, options.bytes, MADV_HUGEPAGE);
  return MemoryRegion(mapped->first, mapped->second, options.bytes, false);
}

Result<MemoryRegion> MemoryRegion::Attach(int fd, uint64_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 ||
      (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) < bytes)) {
    ::close(fd);
    return Status::Corruption("the region handed over is smaller than the " +
                              std::to_string(bytes) + " bytes announced");
  }
  void* data = MapAligned(fd, bytes);
  if (data == MAP_FAILED) {
    Status status = OsError("cannot map the region handed over");
    ::close(fd);
    return status;
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);
  // A child would go on writing when this process has been killed to cut it off.
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) {
    Status status = OsError("cannot keep the region from processes forked from this one");
    ::munmap(data, bytes);
    ::close(fd);
    return status;
  }
  return MemoryRegion(fd, static_cast<std::byte*>(data), bytes, false);
}

Status MemoryRegion::BackByHugepage(uint64_t offset) {
  FARLEAF_CHECK(offset % kHugepageBytes == 0 && offset + kHugepageBytes <= bytes_, offset, bytes_);
  if (::madvise(data_ + offset, kHugepageBytes, MADV_COLLAPSE) == 0) return Status::Ok();
  const int error = errno;
  const std::string why = std::string("a hugepage for shared memory: ") + std::strerror(error);
  if (error == EINVAL || error == ENOSYS) return Status::Unimplemented(why);
  return error == EAGAIN ? Status::Unavailable(why) : Status::ResourceExhausted(why);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      hugepages_(other.hugepages_) {}

MemoryRegion::~MemoryRegion() {
  if (data_) ::munmap(data_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace farleaf::dsm
