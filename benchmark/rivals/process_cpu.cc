#include "benchmark/rivals/process_cpu.h"

#include <unistd.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "dsm/base/clock.h"

namespace farleaf::rivals {

Result<ProcessCpu> ReadProcessCpu(pid_t process) {
  ProcessCpu cpu;
  clockid_t clock;
  timespec time;
  if (const int error = ::clock_getcpuclockid(process, &clock); error != 0) {
    return Status::NotFound("process " + std::to_string(process) + ": " + std::strerror(error));
  }
  if (::clock_gettime(clock, &time) != 0) {
    return Status::IoError("the CPU clock of process " + std::to_string(process));
  }
  cpu.total_ns =
      static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
  // Behind the program's name in brackets: state, then 10 numbers, then utime and stime.
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  uint64_t user_ticks = 0, kernel_ticks = 0;
  if (!(fields >> user_ticks >> kernel_ticks)) {
    return Status::IoError("/proc/" + std::to_string(process) + "/stat");
  }
  const uint64_t tick_ns = kNsPerSecond / static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  cpu.user_ns = user_ticks * tick_ns;
  cpu.kernel_ns = kernel_ticks * tick_ns;
  return cpu;
}

}  // namespace farleaf::rivals
