// What an operation allocates: nothing, once its like has run before.
#include <gtest/gtest.h>

#include "benchmark/micro/allocation_count.h"
#include "dsm/frame_pool.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 20'000;

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

}  // namespace
}  // namespace farleaf::index
