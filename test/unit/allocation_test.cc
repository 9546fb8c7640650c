// What an operation allocates: nothing, once its like has run before; a string for a long value, a few lists for a
// scan.
#include <gtest/gtest.h>

#include "benchmark/micro/allocation_count.h"
#include "dsm/frame_pool.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 20'000, kScans = 500;

enum class Operation { kGet, kGetAbsent, kUpdate, kPut, kDeleteAndInsert };

Task<Status> Operate(OpContext& op, BlinkTree& tree, Operation operation, uint64_t from,
                     uint64_t to, std::string* value) {
  char key[8];
  for (uint64_t i = from; i < to; ++i) {
    StoreBig64(key, 2 * Mix64(i) + (operation == Operation::kGetAbsent ? 1 : 0));
    const std::string_view name(key, 8);
    bool as_expected = false;
    if (operation == Operation::kGet || operation == Operation::kGetAbsent) {
      auto found = co_await tree.Get(op, name, value);
      if (!found.ok()) co_return found.status();
      as_expected = *found == (operation == Operation::kGet);
    } else if (operation == Operation::kUpdate) {
      auto existed = co_await tree.Update(op, name, "12345678");
      if (!existed.ok()) co_return existed.status();
      as_expected = *existed;
    } else if (operation == Operation::kPut) {
      auto fresh = co_await tree.Put(op, name, "12345678");
      if (!fresh.ok()) co_return fresh.status();
      as_expected = !*fresh;
    } else {
      auto existed = co_await tree.Delete(op, name);
      if (!existed.ok()) co_return existed.status();
      auto inserted = co_await tree.Insert(op, name, "12345678");
      if (!inserted.ok()) co_return inserted.status();
      as_expected = *existed && *inserted;
    }
    EXPECT_TRUE(as_expected) << i;
  }
  co_return Status::Ok();
}

class AllocationTest : public ::testing::TestWithParam<LeafLayout> {
 protected:
  AllocationTest() {
    for (uint64_t i = 0; i < kKeys; ++i) tree_.Insert(Fixed(2 * Mix64(i)), Fixed(i));
  }
  /// By the second half of the keys, behind the same of the first half.
  uint64_t AllocationsOf(Operation operation) {
    std::string value;
    RunOn(operation, 0, kKeys / 2, &value);
    const uint64_t before = micro::AllocationCount();
    RunOn(operation, kKeys / 2, kKeys, &value);
    return micro::AllocationCount() - before;
  }

 private:
  void RunOn(Operation operation, uint64_t from, uint64_t to, std::string* value) {
    dsm::FabricCounts counts;
    OpContext op{tree_.worker(), counts};
    const Status status = tree_.worker().Run(Operate(op, tree_.tree(), operation, from, to, value));
    EXPECT_TRUE(status.ok()) << status;
  }
  LocalTree tree_{{.geometry = Geometry::DefaultOf(Layout::kFixed8, GetParam())}};
};

TEST_P(AllocationTest, OperationsOnAWarmTreeAllocateNothing) {
  if (!dsm::kFramesArePooled) GTEST_SKIP() << "sanitizers want every frame allocated";
  EXPECT_EQ(AllocationsOf(Operation::kGet), 0u);
  EXPECT_EQ(AllocationsOf(Operation::kGetAbsent), 0u);
  // The write-back of a sorted leaf makes a list of what changed.
  if (GetParam() == LeafLayout::kSorted) return;
  EXPECT_EQ(AllocationsOf(Operation::kUpdate), 0u);
  EXPECT_EQ(AllocationsOf(Operation::kPut), 0u);
  EXPECT_EQ(AllocationsOf(Operation::kDeleteAndInsert), 0u);
}

INSTANTIATE_TEST_SUITE_P(LeafLayouts, AllocationTest,
                         ::testing::Values(LeafLayout::kSorted, LeafLayout::kParted),
                         [](const auto& layout) {
                           return layout.param == LeafLayout::kSorted ? "Sorted" : "Parted";
                         });

/// Keys and values too long to lie inside of a std::string.
constexpr size_t kKeyBytes = 40, kValueBytes = 24;
constexpr size_t kShortBytes = 15;  ///< lie inside of one
std::string LongKey(uint64_t i) { return Fixed(Mix64(i)) + std::string(kKeyBytes - 8, 'k'); }

enum class ByteOperation { kGet, kGetAbsent, kSameLength, kOtherLength };

/// Its own strings stay as they are.
struct Words {
  std::string key, value, read;
};

Task<Status> OperateOnBytes(OpContext& op, BlinkTree& tree, ByteOperation operation, uint64_t from,
                            uint64_t to, Words* words) {
  for (uint64_t i = from; i < to; ++i) {
    StoreBig64(words->key.data(), Mix64(i) + (operation == ByteOperation::kGetAbsent ? 1 : 0));
    if (operation == ByteOperation::kGet || operation == ByteOperation::kGetAbsent) {
      auto found = co_await tree.Get(op, words->key, &words->read);
      if (!found.ok()) co_return found.status();
      EXPECT_EQ(*found, operation == ByteOperation::kGet) << i;
      continue;
    }
    const size_t shorter = operation == ByteOperation::kOtherLength ? 1 + i % 2 : 0;
    const std::string_view value = std::string_view(words->value).substr(shorter);
    auto fresh = co_await tree.Put(op, words->key, value);
    if (!fresh.ok()) co_return fresh.status();
    EXPECT_FALSE(*fresh) << i;
  }
  co_return Status::Ok();
}

class BytesAllocationTest : public ::testing::TestWithParam<InPlace> {
 protected:
  BytesAllocationTest() {
    for (uint64_t i = 0; i < kKeys; ++i) tree_.Put(LongKey(i), words_.value);
  }
  uint64_t AllocationsOf(ByteOperation operation) {
    RunOn(operation, 0, kKeys / 2);
    const uint64_t before = micro::AllocationCount();
    RunOn(operation, kKeys / 2, kKeys);
    return micro::AllocationCount() - before;
  }
  Words words_{LongKey(0), std::string(kValueBytes, 'v'), std::string(kValueBytes, '\0')};

 private:
  void RunOn(ByteOperation operation, uint64_t from, uint64_t to) {
    dsm::FabricCounts counts;
    OpContext op{tree_.worker(), counts};
    const Status status =
        tree_.worker().Run(OperateOnBytes(op, tree_.tree(), operation, from, to, &words_));
    EXPECT_TRUE(status.ok()) << status;
  }
  LocalTree tree_{{.geometry = Geometry::Bytes(), .tree = {.in_place = GetParam()}}};
};

TEST_P(BytesAllocationTest, GetsAndPutsOnAWarmTreeAllocateNothingButLongValues) {
  if (!dsm::kFramesArePooled) GTEST_SKIP() << "sanitizers want every frame allocated";
  EXPECT_EQ(AllocationsOf(ByteOperation::kGet), 0u);
  EXPECT_EQ(AllocationsOf(ByteOperation::kGetAbsent), 0u);
  // The new value is made in a string: of a longer one it is one allocation, and another if it was made
  // for the leaf where it is, in which it turned out not to fit.
  EXPECT_LE(AllocationsOf(ByteOperation::kSameLength), kKeys / 2);
  EXPECT_LE(AllocationsOf(ByteOperation::kOtherLength), kKeys / 2 * 2);
  words_.value.resize(kShortBytes);
  EXPECT_EQ(AllocationsOf(ByteOperation::kSameLength), 0u);
  EXPECT_EQ(AllocationsOf(ByteOperation::kOtherLength), 0u);
}

INSTANTIATE_TEST_SUITE_P(Leaves, BytesAllocationTest,
                         ::testing::Values(InPlace::kOn, InPlace::kOff), [](const auto& in_place) {
                           return in_place.param == InPlace::kOn ? "InPlace" : "Whole";
                         });

// ---- Scans

Task<Status> ScanMany(OpContext& op, BlinkTree& tree, size_t limit, std::vector<KeyValue>* rows) {
  std::string start(8, '\0');
  for (uint64_t i = 0; i < kScans; ++i) {
    StoreBig64(start.data(), Mix64(i));
    ScanRange range;
    range.start = start;
    range.limit = limit;
    Status status = co_await tree.Scan(op, range, rows);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

struct Scanned {
  const char* name;
  Geometry geometry;
  uint64_t
      allocations;  ///< of a scan of few rows: `position`, where a string does not hold it, and may grow
};
void PrintTo(const Scanned& scanned, std::ostream* out) { *out << scanned.name; }

class ScanAllocationTest : public ::testing::TestWithParam<Scanned> {};

// In rows that have been used before: then keys and values find their strings there.
TEST_P(ScanAllocationTest, ScansAllocateNothingButLongKeysToGoOnFrom) {
  if (!dsm::kFramesArePooled) GTEST_SKIP() << "sanitizers want every frame allocated";
  LocalTree tree({.geometry = GetParam().geometry});
  const bool fixed8 = GetParam().geometry.layout == Layout::kFixed8;
  for (uint64_t i = 0; i < kKeys; ++i) {
    if (fixed8) tree.Put(Fixed(Mix64(i)), Fixed(i));
    if (!fixed8) tree.Put(LongKey(i), std::string(kValueBytes, 'v'));
  }
  for (const size_t limit : {1, 20, 200}) {
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{tree.worker(), counts};
    EXPECT_TRUE(tree.worker().Run(ScanMany(op, tree.tree(), limit, &rows)).ok());
    counts = {};
    const uint64_t before = micro::AllocationCount();
    EXPECT_TRUE(tree.worker().Run(ScanMany(op, tree.tree(), limit, &rows)).ok());
    const uint64_t allocations = micro::AllocationCount() - before;
    std::printf("%s, scan of %zu: %.2f allocations, %.2f round trips\n", GetParam().name, limit,
                static_cast<double>(allocations) / kScans,
                static_cast<double>(counts.round_trips) / kScans);
    const uint64_t further_round_trips = counts.round_trips - kScans;
    EXPECT_LE(allocations, GetParam().allocations *
                               (kScans + 2 * further_round_trips + (limit > 20 ? 2 * kScans : 0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ScanAllocationTest,
                         ::testing::Values(Scanned{"Sorted", Geometry::Fixed8(), 0},
                                           Scanned{"Parted", Geometry::Parted(), 0},
                                           Scanned{"Bytes", Geometry::Bytes(), 2}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace farleaf::index
