// What scans that take several leaves cost, in round trips and bytes, on a warm cache: between bounds, which say
// where reading ahead ends, and with leaves read one by one beside many in one batch. index/blink/README.md has the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/mean_cost.h"
#include "test/support/other_view.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

struct Kind {
  const char* name;
  Geometry geometry;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

/// A tree of random keys of one kind, and their order.
class SortedKeys {
 public:
  SortedKeys(const Geometry& geometry, uint64_t keys, TreeOptions options = {})
      : local_({.geometry = geometry,
                .tree = options,
                .fabric = {.servers = 2, .region_bytes = uint64_t{128} << 20}}) {
    for (uint64_t i = 0; i < keys; ++i) {
      keys_.push_back(Fixed(Mix64(i)));
      if (geometry.layout == Layout::kBytes) keys_.back() += Fixed(i) + Fixed(Mix64(i + keys));
      local_.Insert(keys_.back(), Fixed(i));
    }
    std::sort(keys_.begin(), keys_.end());
    local_.Scan({});  // so that something is remembered of all leaves
  }
  const std::string& key(size_t i) const { return keys_[i]; }
  size_t size() const { return keys_.size(); }
  LocalTree& local() { return local_; }
  double entries_per_leaf() {
    return static_cast<double>(keys_.size()) /
           static_cast<double>(local_.tree().stats().splits + 1);
  }

 private:
  LocalTree local_;
  std::vector<std::string> keys_;
};

class ScanCostTest : public testing::TestWithParam<Kind> {};

// Without a limit, so that bounds alone say what is read ahead: all that the range has in one round trip, and nothing
// beyond the leaves at its ends.
TEST_P(ScanCostTest, ARangeReadsTheLeavesThatItCovers) {
  const Geometry& geometry = GetParam().geometry;
  SortedKeys keys(geometry, 20'000);
  const double leaf_bytes = geometry.leaf_bytes, leaf_entries = keys.entries_per_leaf();
  const size_t rows = 400, last = keys.size() - rows;
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    MeanCost between, to_the_end, from_the_beginning;
    const auto scan = [&](ScanRange range, MeanCost* cost) {
      range.direction = direction;
      EXPECT_EQ(keys.local().Scan(range).size(), rows);
      cost->Add(keys.local().cost());
    };
    for (size_t first = rows; first < last; first += 97) {
      scan({.start = keys.key(first), .end = keys.key(first + rows)}, &between);
    }
    for (int i = 0; i < 10; ++i) {
      scan({.start = keys.key(last)}, &to_the_end);
      scan({.end = keys.key(rows)}, &from_the_beginning);
    }
    const double covered = static_cast<double>(rows) / leaf_entries + 1;
    std::printf("%s, %s, a range of %.1f leaves\n", GetParam().name,
                direction == ScanDirection::kForward ? "forward" : "reverse", covered);
    for (const auto& [name, cost] : {std::pair{"between", &between},
                                     {"to the end", &to_the_end},
                                     {"from the beginning", &from_the_beginning}}) {
      cost->Print(name);
      EXPECT_LE(cost->round_trips(), 1.02) << name;
      EXPECT_LE(cost->bytes(), (covered + 1.5) * leaf_bytes) << name;
    }
  }
}

TEST_P(ScanCostTest, LeavesReadInOneBatchCostFewerRoundTrips) {
  SortedKeys keys(GetParam().geometry, 60'000);
  OtherView one_by_one(keys.local(), {.scan_leaves_max = 1});
  one_by_one.WarmCache();
  one_by_one.Scan({});
  const auto scans = [&](auto& view, uint64_t limit) {
    MeanCost cost;
    for (size_t first = 0; first + limit < keys.size(); first += limit == 100 ? 97 : 4'999) {
      EXPECT_EQ(view.Scan({.start = keys.key(first), .limit = limit}).size(), limit);
      cost.Add(view.cost());
    }
    return cost;
  };
  for (const uint64_t limit : {100, 10'000}) {
    const MeanCost single = scans(one_by_one, limit), batch = scans(keys.local(), limit);
    std::printf("%s, scan of %lu, leaves one by one, then 64 in one batch\n", GetParam().name,
                limit);
    single.Print("1");
    batch.Print("64");
    const double leaves = static_cast<double>(limit) / keys.entries_per_leaf();
    EXPECT_GE(single.round_trips(), 0.9 * leaves);
    EXPECT_LE(batch.round_trips(), 1.1 + leaves / 60);
    EXPECT_LE(batch.bytes(), single.bytes() + 1.5 * GetParam().geometry.leaf_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Leaves, ScanCostTest,
                         testing::Values(Kind{"Sorted", Geometry::Fixed8()},
                                         Kind{"Parted", Geometry::Parted()},
                                         Kind{"Bytes", Geometry::Bytes()}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace farleaf::index
