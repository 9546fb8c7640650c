// MemoryRegion: the memory that a memory server exposes, mapped into this process.
//
// Thread rule: the mapping is fixed for the object's life; its bytes are shared and touched only
// through dsm/shm/mapped_verbs.h once the region is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dsm/base/result.h"

namespace farleaf::dsm {

enum class Hugepages : uint8_t { kNever, kIfAvailable, kRequire };

inline constexpr uint64_t kHugepageBytes = 2 << 20;

class MemoryRegion {
 public:
  struct Options {
    uint64_t bytes = 0;
    Hugepages hugepages = Hugepages::kIfAvailable;
    std::string file;  ///< map this file (a DAX device, say) instead of anonymous shared memory
  };
  /// Fresh memory, all zero, that can be handed to other processes by its descriptor. IoError names
  /// the size and the operating system's reason.
  static Result<MemoryRegion> Create(const Options& options);
  /// Maps a region that another process handed over; children of this process do not inherit the
  /// mapping. Takes ownership of `fd`.
  static Result<MemoryRegion> Attach(int fd, uint64_t bytes);

  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&&) = delete;
  ~MemoryRegion();

  /// Has the system put one hugepage behind the 2 MiB at `offset`, for all processes that have mapped them; what they hold
  /// stays, also while others change it. Takes milliseconds, for which whoever touches them waits. Unimplemented: this
  /// system cannot; ResourceExhausted: it has none now; Unavailable: somebody holds on to some of the memory just now.
  /// REQUIRES: `offset` is a multiple of 2 MiB, which lie in the region.
  Status BackByHugepage(uint64_t offset);

  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  int fd() const { return fd_; }
  bool uses_hugepages() const { return hugepages_; }

 private:
  MemoryRegion(int fd, std::byte* data, uint64_t bytes, bool hugepages)
      : fd_(fd), data_(data), bytes_(bytes), hugepages_(hugepages) {}
  int fd_;
  std::byte* data_;
  uint64_t bytes_;
  bool hugepages_;
};

}  // namespace farleaf::dsm
