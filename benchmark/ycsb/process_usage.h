// What this process has taken of the machine, by the kernel's account: all its threads, those of a store in it included.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace farleaf::ycsb {

/// User and system time.
uint64_t ProcessCpuNs();

/// Bytes that went to and from block devices (/proc/self/io). What is read from the page cache counts for nothing; what is
/// written to it counts when it becomes dirty, and no more if its file is removed before the kernel has written it.
struct DeviceTraffic {
  uint64_t bytes_read = 0;
  uint64_t bytes_dirtied = 0;
  uint64_t bytes_cancelled = 0;  ///< of those dirtied: were never written

  /// What was dirtied before a phase may be cancelled in it.
  uint64_t bytes_written() const {
    return bytes_dirtied - std::min(bytes_dirtied, bytes_cancelled);
  }
  DeviceTraffic operator-(const DeviceTraffic& before) const {
    return {bytes_read - before.bytes_read, bytes_dirtied - before.bytes_dirtied,
            bytes_cancelled - before.bytes_cancelled};
  }
};
/// Since the process began; nullopt where the kernel does not tell.
std::optional<DeviceTraffic> ReadDeviceTraffic();

/// From here on PeakResidentBytes counts anew, where the kernel lets it.
void ResetPeakResident();
/// 0 where the kernel does not tell.
uint64_t PeakResidentBytes();

/// Disk space of all files below `directory`, by their blocks; files that vanish meanwhile count or do not.
uint64_t DirectoryBytes(const std::string& directory);

}  // namespace farleaf::ycsb
