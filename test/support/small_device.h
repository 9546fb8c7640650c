// SmallDevice: a file system of a few MiB, where the system lets us mount one.
//
// Thread rule: one thread.
#pragma once

#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "dsm/base/check.h"

namespace farleaf::test {

class SmallDevice {
 public:
  explicit SmallDevice(uint64_t mib) {
    path_ = (std::filesystem::temp_directory_path() / "farleaf-device-XXXXXX").string();
    FARLEAF_CHECK(::mkdtemp(path_.data()) != nullptr, path_);
    const std::string size = "size=" + std::to_string(mib) + "m";
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDevice() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
  }
  SmallDevice(const SmallDevice&) = delete;

  /// If not, the test is to be skipped.
  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace farleaf::test
