#include "server/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace farleaf::server {

namespace {

uint64_t OpenDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* const entry = ::readdir(folder)) count += entry->d_name[0] != '.';
  ::closedir(folder);
  return count - 1;  // without the folder's own
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessMemory ReadProcessMemory() {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  ProcessMemory memory;
  memory.machine_bytes =
      static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L)) * page_bytes;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return memory;
  unsigned long all = 0, resident = 0, shared = 0;
  const int read = std::fscanf(file, "%lu %lu %lu", &all, &resident, &shared);
  std::fclose(file);
  if (read != 3) return memory;
  memory.resident_bytes = resident * page_bytes;
  memory.own_bytes = (resident - std::min(resident, shared)) * page_bytes;
  return memory;
}

void AppendProcessMetrics(std::string_view program, uint64_t uptime_ns, MetricsText* out) {
  out->Gauge("farleaf_build_info", "The program and its release, as labels.",
             {{"program", program}, {"version", FARLEAF_VERSION}}, 1);
  out->Gauge("farleaf_uptime_seconds", "Since the program was started.", {},
             static_cast<double>(uptime_ns) * 1e-9);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  out->Counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", {},
               Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  out->Gauge("process_resident_memory_bytes", "Resident memory size in bytes.", {},
             static_cast<double>(ReadProcessMemory().resident_bytes));
  out->Gauge("process_open_fds", "Number of open file descriptors.", {},
             static_cast<double>(OpenDescriptors()));
}

}  // namespace farleaf::server
