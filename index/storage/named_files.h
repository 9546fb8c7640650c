// NamedFiles: the few small files beside the segments, changed durably.
//
// A file is replaced by renaming a new one, NAME.new, over it. An append that fails is cut off again; where that fails
// too, a part of it stays behind what was there, as after a crash.
//
// Thread rule: thread-safe; all of it blocks.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "index/storage/data_directory.h"

namespace farleaf::index::storage {

class NamedFiles {
 public:
  explicit NamedFiles(const DataDirectory* directory) : directory_(directory) {}

  /// Removes what was not finished.
  Status CleanUp();
  Result<std::string> Read(const std::string& name);
  Status Replace(const std::string& name, std::string_view bytes);
  Status Append(const std::string& name, std::string_view bytes);
  Status Remove(std::string_view name);
  Result<std::vector<std::string>> List();

 private:
  const DataDirectory* directory_;
  std::mutex mutex_;  // one change at a time
};

}  // namespace farleaf::index::storage
