#include <iostream>
#include <string>
#include <vector>

#include "benchmark/ycsb/command.h"
#include "dsm/base/clock.h"
#include "server/records/record.h"
#include "server/shutdown.h"

int main(int argc, char** argv) {
  // Before any thread: SIGINT and SIGTERM end a phase early, with its results.
  auto shutdown = farleaf::server::ShutdownSignal::Install();
  if (!shutdown.ok()) {
    std::cerr << "ycsb: " << shutdown.status() << "\n";
    return farleaf::ycsb::kExitFailed;
  }
  const farleaf::MonotonicClock clock;
  const farleaf::server::WallClock unix_clock;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return farleaf::ycsb::RunCommand(arguments, {.open_target = farleaf::ycsb::OpenTarget,
                                               .clock = &clock,
                                               .unix_clock = &unix_clock,
                                               .out = &std::cout,
                                               .error = &std::cerr,
                                               .interrupt_fd = (*shutdown)->fd()});
}
