#include "test/support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "dsm/base/check.h"

extern char** environ;

namespace farleaf {

ChildProcess::ChildProcess(std::vector<std::string> arguments, std::string output_file,
                           const std::string& input_file)
    : output_file_(std::move(output_file)) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output_file_.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  if (!input_file.empty())
    posix_spawn_file_actions_addopen(&actions, 0, input_file.c_str(), O_RDONLY | O_NOCTTY, 0);
  const int error = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  FARLEAF_CHECK(error == 0, argv[0], error);
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  FARLEAF_CHECK(pidfd_ >= 0, errno);
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(pidfd_);
}

void ChildProcess::Signal(int signal) { ::kill(pid_, signal); }

std::optional<int> ChildProcess::Wait(int limit_ms) {
  pollfd waited{pidfd_, POLLIN, 0};
  if (::poll(&waited, 1, limit_ms) <= 0) return std::nullopt;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::running() const {
  pollfd waited{pidfd_, POLLIN, 0};
  return ::poll(&waited, 1, 0) == 0;
}

uint64_t ChildProcess::VoluntarySwitches() const {
  uint64_t sum = 0;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "status");
    for (std::string name; file >> name;) {
      uint64_t count = 0;
      if (name == "voluntary_ctxt_switches:" && file >> count) sum += count;
    }
  }
  return sum;
}

std::string ChildProcess::Output() const {
  std::ifstream file(output_file_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool ChildProcess::WaitForOutput(std::string_view text) const {
  pollfd waited{pidfd_, POLLIN, 0};
  for (int turn = 0; turn < 6'000; ++turn) {
    const bool ended = ::poll(&waited, 1, turn == 0 ? 0 : 10) != 0;
    if (Output().find(text) != std::string::npos) return true;
    if (ended) return false;
  }
  return false;
}

}  // namespace farleaf
