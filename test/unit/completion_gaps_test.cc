// The longest time in which no thread got anything done, from what each thread has kept by itself.
#include "benchmark/ycsb/completion_gaps.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "benchmark/ycsb/process_usage.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {
namespace {

constexpr uint64_t kFloor = CompletionGaps::kFloorNs;

uint64_t Longest(const std::vector<CompletionGaps>& threads, TimeSpan phase) {
  std::vector<const CompletionGaps*> all;
  for (const CompletionGaps& thread : threads) all.push_back(&thread);
  return LongestCommonGap(all, phase);
}

CompletionGaps GapsOf(const std::vector<uint64_t>& completions) {
  CompletionGaps gaps;
  for (uint64_t at_ns : completions) gaps.Complete(at_ns);
  return gaps;
}

TEST(CompletionGapsTest, OneThreadsLongestGapIsFound) {
  const CompletionGaps gaps = GapsOf({1000, 1000 + kFloor, 1000 + 5 * kFloor, 1000 + 6 * kFloor});
  EXPECT_EQ(Longest({gaps}, {1000, 1000 + 6 * kFloor}), 4 * kFloor);
}

TEST(CompletionGapsTest, BeginningAndEndOfThePhaseAreGapsToo) {
  const CompletionGaps gaps = GapsOf({10 * kFloor, 11 * kFloor});
  EXPECT_EQ(Longest({gaps}, {1, 12 * kFloor}), 10 * kFloor - 1);
  EXPECT_EQ(Longest({gaps}, {9 * kFloor, 30 * kFloor}), 19 * kFloor);
  EXPECT_EQ(Longest({CompletionGaps()}, {5, 5 + 3 * kFloor}), 3 * kFloor);
}

TEST(CompletionGapsTest, ThreadThatGoesOnEndsTheStallOfTheOthers) {
  const CompletionGaps stalled = GapsOf({1, 1 + 100 * kFloor});
  std::vector<uint64_t> busy;
  for (uint64_t i = 0; i <= 50; ++i) busy.push_back(1 + 2 * i * kFloor);
  EXPECT_EQ(Longest({stalled, GapsOf(busy)}, {1, 1 + 100 * kFloor}), 2 * kFloor);
}

TEST(CompletionGapsTest, ShortGapsAreToldAsTheFloor) {
  const CompletionGaps gaps = GapsOf({1, 2, 3, 1000});
  EXPECT_EQ(Longest({gaps}, {1, 1 + kFloor * 3 / 2}), kFloor * 3 / 2 - 999);
  EXPECT_EQ(Longest({GapsOf({1, 1000, kFloor})}, {1, kFloor}),
            kFloor - 1);  // the phase is no longer
}

TEST(CompletionGapsTest, RandomThreadsAgreeWithATimelineOfAll) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<CompletionGaps> threads(1 + random.Below(4));
    std::vector<uint64_t> timeline;
    uint64_t end_ns = 1;
    for (CompletionGaps& thread : threads) {
      uint64_t at_ns = 1;
      for (int i = 0; i < 200; ++i) {
        at_ns += random.Below(random.OneIn(5) ? 40 * kFloor : 2 * kFloor);
        thread.Complete(at_ns);
        timeline.push_back(at_ns);
      }
      end_ns = std::max(end_ns, at_ns);
    }
    timeline.push_back(1);
    std::sort(timeline.begin(), timeline.end());
    uint64_t longest_ns = 0;
    for (size_t i = 1; i < timeline.size(); ++i) {
      longest_ns = std::max(longest_ns, timeline[i] - timeline[i - 1]);
    }
    EXPECT_EQ(Longest(threads, {1, end_ns}), std::max(longest_ns, kFloor));
  }
}

TEST(CompletionGapsTest, ManyGapsRaiseTheFloorAndKeepTheLongest) {
  CompletionGaps gaps;
  uint64_t at_ns = 1;
  gaps.Complete(at_ns);
  for (int i = 0; i < 100'000; ++i) {
    at_ns += i == 777 ? 50 * kFloor : kFloor + static_cast<uint64_t>(i) % kFloor;
    gaps.Complete(at_ns);
  }
  EXPECT_GT(gaps.floor_ns(), kFloor);
  EXPECT_LE(gaps.Within({1, at_ns}).size(), CompletionGaps::kKeptMax);
  EXPECT_EQ(Longest({gaps}, {1, at_ns}), 50 * kFloor);
}

// --- what the kernel tells ---

TEST(ProcessUsageTest, DirectoryBytesAreThoseOfItsFilesBlocks) {
  const std::filesystem::path directory =
      ::testing::TempDir() + "farleaf_usage_" + std::to_string(::getpid());
  std::filesystem::create_directories(directory / "below");
  const uint64_t empty = DirectoryBytes(directory);
  for (const char* name : {"one", "below/two"}) {
    std::ofstream(directory / name) << std::string(1 << 20, 'x') << std::flush;
  }
  const uint64_t grown = DirectoryBytes(directory) - empty;
  EXPECT_GE(grown, uint64_t{2} << 20);
  EXPECT_LT(grown, uint64_t{3} << 20);
  // A hole takes no space.
  std::filesystem::resize_file(directory / "one", uint64_t{1} << 30);
  EXPECT_LT(DirectoryBytes(directory) - empty, uint64_t{3} << 20);
  std::filesystem::remove_all(directory);
  EXPECT_EQ(DirectoryBytes(directory), 0u);
}

TEST(ProcessUsageTest, PeakOfMemoryCountsAnew) {
  if (PeakResidentBytes() == 0) GTEST_SKIP() << "the kernel does not tell";
  {
    // Not by the allocator, which may keep what is freed.
    constexpr size_t kBytes = size_t{64} << 20;
    void* const large =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(large, MAP_FAILED);
    std::memset(large, 'x', kBytes);
    EXPECT_GE(PeakResidentBytes(), kBytes);
    ::munmap(large, kBytes);
  }
  const uint64_t before = PeakResidentBytes();
  ResetPeakResident();
  EXPECT_LE(PeakResidentBytes(), before);
}

}  // namespace
}  // namespace farleaf::ycsb
