// Options of FileStorage: of the process.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/base/status.h"

namespace farleaf::index::storage {

enum class IoEngine : uint8_t {
  kAuto,     ///< io_uring, or threads where the kernel has none for us
  kIoUring,  ///< or opening fails
  kThreads,
};

enum class DirectIo : uint8_t {
  kAuto,  ///< past the page cache, unless the file system refuses
  kOff,
};

struct FileStorageOptions {
  /// Made if it is missing. One process at a time has it open. Not empty.
  std::string directory;
  IoEngine engine = IoEngine::kAuto;
  DirectIo direct = DirectIo::kAuto;
  /// Descriptors of segments that are kept open. 0: three quarters of what the process may have. Else 16..1,000,000.
  uint32_t open_files_max = 0;
  /// Files of removed segments that are kept for new ones, which are then written without a change of the file
  /// system's own books. 0..1024.
  uint32_t free_files_max = 8;
  /// For what would block a worker. 1..64.
  uint32_t threads = 4;
  /// Of all segments together, and the reserve. 0: what the file system has. Else 2 MiB (one segment)..1 PiB.
  uint64_t bytes_max = 0;

  /// InvalidArgument names the option, what it is, and what it may be.
  Status Validate() const;
};

}  // namespace farleaf::index::storage
