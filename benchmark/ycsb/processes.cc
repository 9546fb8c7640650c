#include "benchmark/ycsb/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/ycsb/merge.h"
#include "benchmark/ycsb/result_files.h"
#include "benchmark/ycsb/share.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kReady = 'r';  // what a process sends first; all that follows is its result

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) { FARLEAF_CHECK(fd >= 0, errno); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~FileDescriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  static Pipe Create() {
    int fds[2] = {-1, -1};
    FARLEAF_CHECK(::pipe2(fds, O_CLOEXEC) == 0, errno);
    return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
  }
  FileDescriptor out, in;
};

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::IoError("the results cannot be given to the first process");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Status::Ok();
}

/// The processes of one phase.
class ProcessGroup {
 public:
  ProcessGroup(const CommandLine& line, Phase phase, const CommandDeps& deps,
               const MeasureFunction& measure)
      : line_(line),
        phase_(phase),
        deps_(deps),
        measure_(measure),
        go_(Pipe::Create()),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  /// Until all have ended.
  void Run() {
    for (uint64_t i = 0; i < line_.processes; ++i) {
      Start(i);
      // One opens the target after another, so that the first makes the tree and others find it.
      while (!children_.back().ended && children_.back().sent.empty()) TakeSome();
      if (!children_.back().ended) continue;
      Stop();
      break;
    }
    go_.in.Close();
    while (std::any_of(children_.begin(), children_.end(), [](auto& c) { return !c.ended; })) {
      TakeSome();
    }
    for (Child& child : children_) {
      while (::waitpid(child.pid, &child.status, 0) < 0 && errno == EINTR) {
      }
    }
  }

  /// REQUIRES: Run. The worst of their exit codes.
  int code() const {
    const auto weight = [](int code) {
      return code == kExitUsage ? 3 : code == kExitOk ? 0 : code == kExitInterrupted ? 1 : 2;
    };
    int worst = kExitOk;
    for (const Child& child : children_) {
      const int code = WIFEXITED(child.status) ? WEXITSTATUS(child.status) : kExitFailed;
      if (weight(code) > weight(worst)) worst = code;
    }
    return worst;
  }

  /// REQUIRES: Run. Unavailable if one has not sent any.
  Result<std::vector<NamedResult>> Results() const {
    std::vector<NamedResult> results;
    for (size_t i = 0; i < children_.size(); ++i) {
      const Child& child = children_[i];
      const std::string name = "process " + std::to_string(i + 1);
      Json json = child.sent.empty() ? Json(Json::value_t::discarded)
                                     : Json::parse(child.sent.substr(1), nullptr, false);
      if (json.is_discarded()) {
        const bool killed = WIFSIGNALED(child.status);
        return Status::Unavailable(
            name + " ended without a result, by " +
            (killed ? "signal " + std::to_string(WTERMSIG(child.status))
                    : "exit code " + std::to_string(WEXITSTATUS(child.status))));
      }
      results.push_back({name, std::move(json)});
    }
    return results;
  }

 private:
  struct Child {
    pid_t pid;
    FileDescriptor from;
    std::string sent{};
    bool ended = false;
    int status = 0;
  };

  void Start(uint64_t index) {
    deps_.out->flush();
    deps_.error->flush();
    Pipe pipe = Pipe::Create();
    const pid_t parent = ::getpid(), pid = ::fork();
    FARLEAF_CHECK(pid >= 0, errno);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // SIGTERM may be blocked, for the first process's sake
      if (::getppid() != parent) ::_exit(kExitFailed);
      go_.in.Close();
      // Not back to main(): what this process has of the first one's must not end twice.
      ::_exit(RunAsChild(index, pipe.in.get()));
    }
    children_.push_back({.pid = pid, .from = std::move(pipe.out)});
  }

  int RunAsChild(uint64_t index, int results_fd) const {
    std::ostream nowhere(nullptr);
    CommandDeps deps = deps_;
    deps.out = &nowhere;
    deps.interrupt_fd = stop_.get();
    const CommandLine line = ShareOfProcess(line_, phase_, index);
    const auto wait_for_all = [this, results_fd] {
      char byte = kReady;
      if (!WriteAll(results_fd, {&byte, 1}).ok()) return;
      while (::read(go_.out.get(), &byte, 1) < 0 && errno == EINTR) {
      }
    };
    const auto deliver = [&line, results_fd](std::span<const PhaseResult> phases) {
      return WriteAll(results_fd, ToJson(line.configuration, phases).dump());
    };
    const int code = measure_(line, deps, {.opened = wait_for_all, .deliver = deliver});
    deps.error->flush();
    return code;
  }

  /// Waits until a process has sent something or ended, or all are to stop.
  void TakeSome() {
    std::vector<pollfd> watched;
    for (const Child& child : children_) {
      watched.push_back({child.ended ? -1 : child.from.get(), POLLIN, 0});
    }
    watched.push_back({stopped_ ? -1 : deps_.interrupt_fd, POLLIN, 0});
    const int ready = ::poll(watched.data(), watched.size(), -1);
    FARLEAF_CHECK(ready >= 0 || errno == EINTR, errno);
    if (ready < 0) return;
    if (watched.back().revents != 0) Stop();
    for (size_t i = 0; i < children_.size(); ++i) {
      if (watched[i].revents == 0) continue;
      char block[1 << 16];
      const ssize_t taken = ::read(children_[i].from.get(), block, sizeof block);
      if (taken > 0) children_[i].sent.append(block, static_cast<size_t>(taken));
      children_[i].ended = taken == 0 || (taken < 0 && errno != EINTR);
    }
  }

  void Stop() {
    stopped_ = true;
    const uint64_t one = 1;
    FARLEAF_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one, errno);
  }

  const CommandLine& line_;
  const Phase phase_;
  const CommandDeps& deps_;
  const MeasureFunction& measure_;
  Pipe go_;              // closed: measure
  FileDescriptor stop_;  // readable: the processes' interrupt_fd
  bool stopped_ = false;
  std::vector<Child> children_;
};

/// Appends the phase to `all`; returns the exit code.
int RunPhase(const CommandLine& line, Phase phase, const CommandDeps& deps,
             const MeasureFunction& measure, MergedResults* all) {
  ProcessGroup group(line, phase, deps, measure);
  group.Run();
  const int code = group.code();
  const auto results = group.Results();
  const auto merged = results.ok() ? MergeResults(*results) : results.status();
  if (!merged.ok()) {
    *deps.error << "ycsb: " << PhaseName(phase) << ": " << merged.status() << "\n";
    return code == kExitOk ? kExitFailed : code;
  }
  if (merged->phases.empty()) return code;
  merged->PrintText(*deps.out);
  deps.out->flush();
  all->configuration = merged->configuration;
  all->seeds = merged->seeds;
  all->phases.insert(all->phases.end(), merged->phases.begin(), merged->phases.end());
  all->overlaps.insert(all->overlaps.end(), merged->overlaps.begin(), merged->overlaps.end());
  return code;
}

}  // namespace

Status CheckProcesses(const CommandLine& line) {
  const RunConfiguration& run = line.configuration;
  for (const char* prefix : {"local:", "sim:", "lsm:", "replicated:", "rocksdb:", "blobdb:"}) {
    if (!run.target.starts_with(prefix)) continue;
    return Status::InvalidArgument(std::string("--processes: a target ") + prefix +
                                   " lives in one process: use more --threads");
  }
  if (line.cpu_clock) {
    return Status::InvalidArgument("--processes: --clock cpu is for one process");
  }
  if (!run.workload.trace_file.empty()) {
    return Status::InvalidArgument(
        "--processes: a trace (farleaf.trace) is replayed by one process: use more --threads");
  }
  if (line.phases.back() == Phase::kRun &&
      run.workload.proportions[static_cast<size_t>(OpKind::kInsert)] > 0) {
    return Status::InvalidArgument(
        "--processes: a run phase with inserts (insertproportion) is for one process, as all "
        "would insert the same keys: use more --threads");
  }
  return Status::Ok();
}

CommandLine ShareOfProcess(const CommandLine& line, Phase phase, uint64_t index) {
  CommandLine own = line;
  const uint64_t processes = line.processes;
  RunConfiguration& run = own.configuration;
  own.phases = {phase};
  own.processes = 1;
  if (index > 0) own.status_interval_s = 0;
  run.seed += index;
  run.rate /= static_cast<double>(processes);
  const auto share = [index, processes](uint64_t total) {
    return ShareBegin(total, index + 1, processes) - ShareBegin(total, index, processes);
  };
  run.workload.operation_count = share(run.workload.operation_count);
  if (phase == Phase::kLoad) {
    run.workload.insert_start += ShareBegin(run.workload.insert_count, index, processes);
    run.workload.insert_count = share(run.workload.insert_count);
  }
  return own;
}

int RunProcesses(const CommandLine& line, const CommandDeps& deps, const MeasureFunction& measure) {
  FARLEAF_CHECK(deps.unix_clock);
  ResultFiles files;
  const Status opened = files.Open(line.json_path, line.hdr_log_path);
  if (!opened.ok()) {
    *deps.error << "ycsb: " << opened.message() << "\n";
    return kExitUsage;
  }
  MergedResults all;
  int code = kExitOk;
  for (const Phase phase : line.phases) {
    code = RunPhase(line, phase, deps, measure, &all);
    if (code != kExitOk) break;
  }
  const Status written = files.Write(all.ToJson(), all.phases);
  if (!written.ok()) {
    *deps.error << "ycsb: " << written.message() << "\n";
    code = code == kExitOk ? kExitFailed : code;
  }
  return code;
}

}  // namespace farleaf::ycsb
