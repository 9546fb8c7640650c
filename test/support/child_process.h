// ChildProcess: a program under test, its output, and its end.
//
// Waits are by condition, and end after a minute at the latest.
//
// Invariant: no child outlives its object.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farleaf {

class ChildProcess {
 public:
  /// Both output streams go to `output_file`. `input_file`: standard input; empty: this process's.
  ChildProcess(std::vector<std::string> arguments, std::string output_file,
               const std::string& input_file = "");
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  /// The exit code, or 128 + signal; nullopt if it still runs at the limit. Once.
  std::optional<int> Wait(int limit_ms = 60'000);
  bool running() const;
  /// How often its threads gave the processor up to wait for something.
  uint64_t VoluntarySwitches() const;
  std::string Output() const;
  /// Whether `text` appears in the output before the program ends, or at its end.
  bool WaitForOutput(std::string_view text) const;

 private:
  std::string output_file_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool ended_ = false;
};

}  // namespace farleaf
