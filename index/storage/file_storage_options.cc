#include "index/storage/file_storage_options.h"

#include "index/option_range.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

Status FileStorageOptions::Validate() const {
  if (directory.empty()) return Status::InvalidArgument("directory is empty: it has to be given");
  // 0 stands for what the system grants.
  if (open_files_max != 0) {
    FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("open_files_max", open_files_max, 16, 1'000'000));
  }
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("free_files_max", free_files_max, 0, 1024));
  FARLEAF_RETURN_IF_ERROR(InRange<uint32_t>("threads", threads, 1, 64));
  if (bytes_max == 0) return Status::Ok();
  return InRange<uint64_t>("bytes_max", bytes_max, kSegmentBytes, uint64_t{1} << 50);
}

}  // namespace farleaf::index::storage
