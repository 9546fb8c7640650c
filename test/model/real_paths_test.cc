// Real keys: the paths of this machine's file system as byte strings, their sizes as values. What
// the tree scans is compared with what `LC_ALL=C sort -u` makes of the same paths.
//
// Up to 100,000 paths; all of them at the long scale (test/support/test_scale.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/check.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kRowsAPiece = 4'096;

std::vector<std::string> ReadNulTerminated(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::string> items;
  for (std::string item; std::getline(in, item, '\0');) items.push_back(item);
  return items;
}

class RealPathsTest : public testing::Test {
 protected:
  void SetUp() override {
    // One look at the file system, which others change meanwhile: everything below is from this list.
    // Names may hold any byte but NUL and the slash, newlines included.
    Run("find / -xdev -printf '%s %p\\0' >'" + File("found") + "' 2>/dev/null || true");
    const size_t paths_max = test::Amount{.small = 20'000, .usual = 100'000, .large = SIZE_MAX};
    std::ofstream chosen(File("chosen"), std::ios::binary);
    uint64_t key_bytes = 0;
    for (std::string& line : ReadNulTerminated(File("found"))) {
      if (sizes_.size() == paths_max) break;
      const size_t space = line.find(' ');
      ASSERT_NE(space, std::string::npos) << line;
      const std::string path = line.substr(space + 1);
      if (path.size() > kKeyBytesMax) {
        ++too_long_;
        continue;
      }
      key_bytes += path.size();
      sizes_[path] = line.substr(0, space);
      chosen << path << '\0';
    }
    chosen.close();
    ASSERT_GT(sizes_.size(), 1'000u) << "find saw too little of this file system";
    Run("LC_ALL=C sort -z -u '" + File("chosen") + "' >'" + File("sorted") + "'");
    sorted_ = ReadNulTerminated(File("sorted"));
    ASSERT_EQ(sorted_.size(), sizes_.size());
    std::printf("%zu paths of %.1f bytes on average; %zu longer than %u bytes left out\n",
                sorted_.size(), static_cast<double>(key_bytes) / sorted_.size(), too_long_,
                kKeyBytesMax);
    const uint64_t region_bytes = RoundUp(2 * key_bytes + (uint64_t{64} << 20), 1 << 20);
    tree_ = std::make_unique<LocalTree>(LocalTree::Options{
        .geometry = Geometry::Bytes(), .fabric = {.servers = 2, .region_bytes = region_bytes}});
  }
  void TearDown() override {
    for (const char* name : {"found", "chosen", "sorted"}) std::remove(File(name).c_str());
  }

  static std::string File(const std::string& name) {
    return testing::TempDir() + "farleaf-real-paths-" +
           testing::UnitTest::GetInstance()->current_test_info()->name() + "-" + name;
  }
  static void Run(const std::string& command) {
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void Shuffle(std::vector<std::string>& paths, uint64_t seed) {
    Random random(seed);
    for (size_t i = paths.size(); i > 1; --i) std::swap(paths[i - 1], paths[random.Below(i)]);
  }

  /// That a whole scan, in pieces, gives exactly `paths` in this order, with their sizes.
  void ExpectScanEquals(const std::vector<std::string>& paths) {
    size_t seen = 0;
    std::string start;
    for (;;) {
      const auto rows = tree_->Scan({.start = start, .limit = kRowsAPiece});
      for (const KeyValue& row : rows) {
        ASSERT_LT(seen, paths.size());
        ASSERT_EQ(row.key, paths[seen]) << "row " << seen;
        ASSERT_EQ(row.value, sizes_[row.key]) << row.key;
        ++seen;
      }
      if (rows.size() < kRowsAPiece) break;
      start = rows.back().key + '\0';  // the next key there can be
    }
    ASSERT_EQ(seen, paths.size());
  }
  void ExpectChecks(uint64_t keys) {
    dsm::FabricCounts counts;
    OpContext op{tree_->worker(), counts};
    auto report = tree_->worker().Run(CheckPool(op, tree_->pool(), {}));
    ASSERT_TRUE(report.ok()) << report.status();
    const auto& described = report->findings.described();
    ASSERT_TRUE(report->ok()) << report->findings.count() << " findings, the first: "
                              << (described.empty() ? "" : described[0].text);
    const TreeReport& tree = report->trees[0];
    EXPECT_EQ(tree.keys(), keys);
    EXPECT_EQ(tree.missing_separators(), 0u);
    std::printf("%lu keys in %lu leaves, height %zu, fill %.0f %%, %.1f bytes of pool per key\n",
                tree.keys(), tree.leaves(), tree.height(), 100 * tree.levels[0].mean_fill(),
                tree.pool_bytes_per_key());
  }

  std::unordered_map<std::string, std::string> sizes_;  // by path
  std::vector<std::string> sorted_;                     // paths
  size_t too_long_ = 0;
  std::unique_ptr<LocalTree> tree_;
};

TEST_F(RealPathsTest, ScanEqualsSortAndHalfOfItAfterDeletes) {
  const uint64_t seed = 31'337;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::string> shuffled = sorted_;
  Shuffle(shuffled, seed);
  for (const std::string& path : shuffled) ASSERT_TRUE(tree_->Insert(path, sizes_[path])) << path;
  ASSERT_NO_FATAL_FAILURE(ExpectScanEquals(sorted_));
  for (const std::string& path : shuffled) ASSERT_EQ(tree_->Get(path), sizes_[path]) << path;
  ASSERT_NO_FATAL_FAILURE(ExpectChecks(sorted_.size()));

  Shuffle(shuffled, seed + 1);
  const auto half = shuffled.begin() + static_cast<std::ptrdiff_t>(shuffled.size() / 2);
  for (auto path = shuffled.begin(); path != half; ++path) {
    ASSERT_TRUE(tree_->Delete(*path)) << *path;
  }
  std::vector<std::string> left(half, shuffled.end());
  std::sort(left.begin(), left.end());  // as unsigned bytes, like sort in the C locale
  ASSERT_NO_FATAL_FAILURE(ExpectScanEquals(left));
  for (auto path = shuffled.begin(); path != half; ++path) {
    ASSERT_EQ(tree_->Get(*path), std::nullopt) << *path;
  }
  for (const std::string& path : left) ASSERT_EQ(tree_->Get(path), sizes_[path]) << path;
  ASSERT_NO_FATAL_FAILURE(ExpectChecks(left.size()));
}

}  // namespace
}  // namespace farleaf::index
