// Runs a fuzz target on mutations of its seeds, deterministically and for a bounded number of runs,
// where libFuzzer is not available:
//
//   TARGET [--seed S] [--runs N]     runs 0..N-1
//   TARGET --seed S --run I          run I alone, in this process: for a debugger
//
// Every run depends on (seed, run) only. The runs happen in a child process, so that a failing one
// can be named.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

constexpr size_t kInputBytesMax = 64 << 10;

/// One small change. Each kind has found faults in some parser: a flipped bit, a boundary value in
/// an integer, bytes lost, doubled or strange.
void Mutate(Random& random, const std::vector<std::string>& seeds, std::string* input) {
  constexpr uint64_t kBoundaries[] = {
      0,          1,          7,          8,          16,         127,        128,
      255,        256,        4095,       4096,       65535,      65536,      0x7fffffff,
      0x80000000, 0xffffffff, 1ull << 47, 1ull << 48, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  const size_t at = input->empty() ? 0 : random.Below(input->size());
  const size_t rest = input->size() - at;
  switch (random.Below(7)) {
    case 0:
      if (rest > 0) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << random.Below(8)));
      break;
    case 1: {
      const uint64_t value = kBoundaries[random.Below(std::size(kBoundaries))];
      const size_t width = std::min<size_t>(size_t{1} << random.Below(4), rest);
      std::memcpy(input->data() + at, &value, width);
      break;
    }
    case 2:
      input->erase(at, random.Below(rest + 1));
      break;
    case 3: {
      const std::string copied = input->substr(at, random.Below(std::min<size_t>(rest, 256) + 1));
      input->insert(random.Below(input->size() + 1), copied);
      break;
    }
    case 4:
      input->insert(at, 1 + random.Below(16), static_cast<char>(random.Next()));
      break;
    case 5: {
      const std::string& other = seeds[random.Below(seeds.size())];
      input->replace(at, std::string::npos, other, random.Below(other.size() + 1));
      break;
    }
    case 6:
      if (rest > 0) (*input)[at] = static_cast<char>(random.Next());
      break;
  }
  if (input->size() > kInputBytesMax) input->resize(kInputBytesMax);
}

std::string InputOf(uint64_t seed, uint64_t run, const std::vector<std::string>& seeds) {
  if (run < seeds.size()) return seeds[run];
  Random random(Mix64(seed) ^ run);
  std::string input = seeds[random.Below(seeds.size())];
  for (uint64_t changes = 1 + random.Below(8); changes > 0; --changes) {
    Mutate(random, seeds, &input);
  }
  return input;
}

void RunOne(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

/// Returns the exit code.
int RunInChild(uint64_t seed, uint64_t runs, const std::vector<std::string>& seeds) {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FARLEAF_CHECK(page != MAP_FAILED, errno);
  auto* run = static_cast<volatile uint64_t*>(page);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends with its parent, which a test's time limit may kill
    for (uint64_t i = 0; i < runs; ++i) {
      *run = i;
      RunOne(InputOf(seed, i, seeds));
    }
    ::_exit(0);
  }
  int status = 0;
  FARLEAF_CHECK(child > 0 && ::waitpid(child, &status, 0) == child, errno);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::printf("%llu runs of seed %llu\n", static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(seed));
    return 0;
  }
  std::printf("failed; repeat with --seed %llu --run %llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(*run));
  return 1;
}

int Main(int argc, char** argv) {
  uint64_t seed = 1, runs = 10'000;
  std::optional<uint64_t> only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i], text = argv[i + 1];
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    if (flag == "--seed") seed = value;
    if (flag == "--runs") runs = value;
    if (flag == "--run") only = value;
  }
  const std::vector<std::string> seeds = FuzzSeeds();
  FARLEAF_CHECK(!seeds.empty());
  // Under sanitizers, which take several times as long, the quick test run asks for small tests.
  if (!only) return RunInChild(seed, farleaf::test::Amount{runs / 4, runs, runs * 10}, seeds);
  RunOne(InputOf(seed, *only, seeds));
  return 0;
}

}  // namespace
}  // namespace farleaf

int main(int argc, char** argv) { return farleaf::Main(argc, argv); }
