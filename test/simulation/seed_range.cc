#include "test/simulation/seed_range.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "dsm/base/check.h"

namespace farleaf::simulation {

namespace {

constexpr uint32_t kJobsMax = 64;
constexpr size_t kFailuresMax = 64;
constexpr size_t kTextBytes = 2'000;

/// Shared by parent and children.
struct Board {
  std::atomic<uint64_t> next_seed;
  std::atomic<bool> stop;
  std::atomic<uint64_t> running[kJobsMax];  ///< the seed that each job is at; 0: none
  std::atomic<uint32_t> failures;
  struct {
    uint64_t seed;
    char what[kTextBytes];
  } failed[kFailuresMax];

  void Fail(uint64_t seed, const std::string& what, size_t failures_max) {
    const uint32_t index = failures.fetch_add(1);
    if (index + 1 >= failures_max) stop = true;
    if (index >= failures_max) return;
    failed[index].seed = seed;
    std::strncpy(failed[index].what, what.c_str(), kTextBytes - 1);
  }
};

void RunJob(Board* board, uint32_t job, uint64_t last, size_t failures_max,
            const std::function<std::string(uint64_t)>& run,
            const std::function<void(uint32_t)>& end) {
  while (!board->stop) {
    const uint64_t seed = board->next_seed.fetch_add(1);
    if (seed > last) break;
    board->running[job] = seed;
    const std::string what = run(seed);
    if (!what.empty()) board->Fail(seed, what, failures_max);
  }
  board->running[job] = 0;
  end(job);
}

}  // namespace

std::vector<SeedFailure> RunSeeds(SeedRange range, uint32_t jobs, size_t failures_max,
                                  const std::function<std::string(uint64_t seed)>& run,
                                  const std::function<void(uint32_t job)>& end) {
  FARLEAF_CHECK(jobs > 0 && jobs <= kJobsMax && failures_max <= kFailuresMax, jobs, failures_max);
  void* shared =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FARLEAF_CHECK(shared != MAP_FAILED, errno);
  auto* board = new (shared) Board{};
  board->next_seed = range.first;
  std::map<pid_t, uint32_t> children;
  const auto start = [&](uint32_t job) {
    const pid_t child = ::fork();
    FARLEAF_CHECK(child >= 0, errno);
    if (child == 0) {
      RunJob(board, job, range.last, failures_max, run, end);
      ::_exit(0);
    }
    children[child] = job;
  };
  for (uint32_t job = 0; job < jobs; ++job) start(job);
  while (!children.empty()) {
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, 0);
    const auto ended = children.find(child);
    if (ended == children.end()) continue;
    const uint32_t job = ended->second;
    children.erase(ended);
    if (status == 0) continue;
    board->Fail(board->running[job],
                WIFSIGNALED(status)
                    ? "the run was ended by signal " + std::to_string(WTERMSIG(status)) +
                          "; its last words are above"
                    : "the run ended with status " + std::to_string(WEXITSTATUS(status)),
                failures_max);
    if (!board->stop) start(job);
  }
  std::vector<SeedFailure> failures;
  for (size_t i = 0; i < std::min<size_t>(board->failures, failures_max); ++i) {
    failures.push_back({board->failed[i].seed, board->failed[i].what});
  }
  ::munmap(shared, sizeof(Board));
  return failures;
}

}  // namespace farleaf::simulation
