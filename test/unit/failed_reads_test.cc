// Scans and gets of many keys of which a batch fails: what they return is right, or nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

const Geometry kFailedReadsGeometry{Layout::kBytes, 512, 512, 36, 24};

class FailedReadsTest : public testing::Test {
 protected:
  static constexpr uint64_t kKeys = 2'500;  // more than values are fetched together

  FailedReadsTest() {
    TreeOptions options;
    options.scan_leaves_max = 16;
    member_.Create("tree", kFailedReadsGeometry, options);
    for (uint64_t i = 0; i < kKeys; ++i) {
      // Two of three out of line.
      std::string value = "value " + std::to_string(i);
      value.resize(i % 3 == 0 ? 16 : 40, '.');
      OpContext op = member_.Op();
      auto put = member_.Run(member_.tree().Put(op, Fixed(i), value));
      EXPECT_TRUE(put.ok()) << put.status();
      model_[Fixed(i)] = value;
    }
  }
  /// The batch behind `count` others fails, and those behind it.
  void FailBehind(int count) {
    member_.script().rule = [count](const dsm::Batch&,
                                    const dsm::RunVerbs& run) mutable -> std::optional<Status> {
      if (count-- <= 0) return Status::Unavailable("the connection broke");
      run(dsm::kAllVerbs);
      return Status::Ok();
    };
  }
  Status Scan(ScanDirection direction, std::vector<KeyValue>* rows) {
    OpContext op = member_.Op();
    ScanRange range;
    range.direction = direction;
    return member_.Run(member_.tree().Scan(op, range, rows));
  }

  ScriptedPool pool_{1};
  ScriptedMember member_{pool_};
  std::map<std::string, std::string> model_;
};

TEST_F(FailedReadsTest, AScanThatFailsReturnsWholeRows) {
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    std::vector<std::pair<std::string, std::string>> expected(model_.begin(), model_.end());
    if (direction == ScanDirection::kReverse) std::reverse(expected.begin(), expected.end());
    bool failed = true;
    size_t some_rows = 0;
    for (int batches = 0; failed; ++batches) {
      SCOPED_TRACE(testing::Message() << batches << " batches succeed");
      std::vector<KeyValue> rows(3, KeyValue{"old", "old"});
      FailBehind(batches);
      const Status scanned = Scan(direction, &rows);
      failed = !scanned.ok();
      EXPECT_TRUE(!failed || scanned.code() == StatusCode::kUnavailable) << scanned;
      EXPECT_TRUE(failed || rows.size() == kKeys) << rows.size();
      ASSERT_LE(rows.size(), kKeys);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i].key, expected[i].first) << i;
        ASSERT_EQ(rows[i].value, expected[i].second) << i << " of " << rows.size();
      }
      some_rows += failed && !rows.empty();
    }
    EXPECT_GT(some_rows, 0u);
  }
  member_.script().rule = nullptr;
}

TEST_F(FailedReadsTest, AScanThatRunsOutOfTimeReturnsWholeRows) {
  uint64_t batches_max = 0;
  bool failed = true;
  for (uint64_t batches = 0; failed; ++batches) {
    OpContext op = member_.Op();
    op.deadline_ns = member_.pool().clock().NowNs() + batches * 1'000;
    member_.script().rule = [this](const dsm::Batch&,
                                   const dsm::RunVerbs& run) -> std::optional<Status> {
      run(dsm::kAllVerbs);
      pool_.clock()->AdvanceNs(1'000);
      return Status::Ok();
    };
    std::vector<KeyValue> rows;
    const Status scanned = member_.Run(member_.tree().Scan(op, {}, &rows));
    failed = !scanned.ok();
    for (const KeyValue& row : rows) ASSERT_EQ(row.value, model_[row.key]);
    batches_max = batches;
  }
  EXPECT_GT(batches_max, 2u);
  member_.script().rule = nullptr;
}

TEST_F(FailedReadsTest, AMultiGetThatFailsReturnsNothing) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : model_) keys.push_back(key);
  keys.push_back(Fixed(kKeys));  // absent
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  bool failed = true;
  for (int batches = 0; failed; ++batches) {
    FailBehind(batches);
    OpContext op = member_.Op();
    std::vector<std::optional<std::string>> values;
    const Status got = member_.Run(member_.tree().MultiGet(op, views, &values));
    failed = !got.ok();
    if (failed) {
      EXPECT_TRUE(values.empty()) << "a key that was not answered looks absent";
      continue;
    }
    ASSERT_EQ(values.size(), keys.size());
    EXPECT_FALSE(values.back());
    for (size_t i = 0; i < kKeys; ++i) EXPECT_EQ(values[i], model_[keys[i]]);
  }
  member_.script().rule = nullptr;
}

}  // namespace
}  // namespace farleaf::index
