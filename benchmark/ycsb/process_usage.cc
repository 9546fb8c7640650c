#include "benchmark/ycsb/process_usage.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"

namespace farleaf::ycsb {

namespace {

/// The number behind "name:" in a file of /proc.
std::optional<uint64_t> ReadField(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    uint64_t value = 0;
    if (word == name + ":" && file >> value) return value;
  }
  return std::nullopt;
}

}  // namespace

uint64_t ProcessCpuNs() {
  rusage usage{};
  FARLEAF_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0, errno);
  auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond +
           static_cast<uint64_t>(time.tv_usec) * kNsPerUs;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::optional<DeviceTraffic> ReadDeviceTraffic() {
  constexpr const char* kPath = "/proc/self/io";
  const auto read = ReadField(kPath, "read_bytes"), written = ReadField(kPath, "write_bytes"),
             cancelled = ReadField(kPath, "cancelled_write_bytes");
  if (!read || !written || !cancelled) return std::nullopt;
  return DeviceTraffic{*read, *written, *cancelled};
}

void ResetPeakResident() { std::ofstream("/proc/self/clear_refs") << '5'; }

uint64_t PeakResidentBytes() {
  return ReadField("/proc/self/status", "VmHWM").value_or(0) << 10;  // in kB
}

uint64_t DirectoryBytes(const std::string& directory) {
  constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks, whatever the file system
  uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(directory, error), end;
  while (!error && entry != end) {
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) == 0) {
      bytes += static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
    }
    entry.increment(error);
  }
  return bytes;
}

}  // namespace farleaf::ycsb
