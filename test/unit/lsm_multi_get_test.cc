// MultiGet of an LSM store: what it reads of the device, how much of that at once, and what it says when it cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/multi_get.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {
namespace {

constexpr uint64_t kDelayNs = kNsPerMs;

/// Keys of which every second one is there, in the tables of a store that has nothing of them in memory.
class LsmMultiGetTest : public ::testing::Test {
 protected:
  static std::string KeyOf(size_t number) { return "key" + std::to_string(10'000 + number); }
  static std::optional<std::string> ValueOf(size_t number) {
    if (number % 2 != 0) return std::nullopt;
    return std::to_string(number) + std::string(number % 3 == 0 ? 700 : 200, 'v');
  }

  void SetUp() override {
    for (size_t number = 0; number < kKeys; ++number) keys_.push_back(KeyOf(number));
    OpenWorker();
    for (size_t number = 0; number < kKeys; number += 2) {
      dsm::OpContext op{*worker_, counts_};
      ASSERT_TRUE(worker_->Run(host_.index(0).Put(op, keys_[number], *ValueOf(number))).ok());
    }
    Flush();
    OpenCold();
  }
  void TearDown() override { worker_.reset(); }
  void OpenWorker() { worker_ = host_.OpenWorker(); }
  void Flush() {
    for (bool flushed = false; !flushed;) {
      worker_->GoOnline();
      host_.store().FlushSoon();
      worker_->GoOffline();
      ASSERT_TRUE(worker_->Run(host_.store().AwaitFlushed(*worker_)).ok());
      worker_->GoOnline();
      flushed = host_.store().memtables().active_empty;
      worker_->GoOffline();
    }
  }
  /// What was written is on the device, and nothing of it in memory.
  void OpenCold() {
    worker_.reset();
    host_.storage().delay_ns = 0;
    host_.Close();
    host_.Open();
    host_.StopBackground();
    host_.storage().delay_ns = kDelayNs;
    OpenWorker();
  }
  /// Of each `step`th key, from the last one on: of leaves that lie apart.
  std::vector<std::string_view> Every(size_t step) const {
    std::vector<std::string_view> views;
    for (size_t number = 0; number < kKeys; number += step) views.push_back(keys_[number]);
    std::ranges::reverse(views);
    return views;
  }
  Status MultiGet(const std::vector<std::string_view>& keys, uint64_t deadline_ns = UINT64_MAX) {
    dsm::OpContext op{*worker_, counts_};
    op.deadline_ns = deadline_ns;
    return worker_->Run(host_.index(0).MultiGet(op, keys, &values_));
  }
  void ExpectValues(const std::vector<std::string_view>& keys) {
    ASSERT_EQ(values_.size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto at = std::ranges::find(keys_, keys[i]);
      ASSERT_EQ(values_[i], ValueOf(static_cast<size_t>(at - keys_.begin()))) << keys[i];
    }
  }
  uint64_t reads() { return host_.storage().counts().reads; }

  static constexpr size_t kKeys = 6'000;
  LsmHost host_{{LsmHost::SmallStore()}};
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::vector<std::string> keys_;
  std::vector<std::optional<std::string>> values_;
};

TEST_F(LsmMultiGetTest, ReadsAreOnTheirWayTogetherAndNoneTwice) {
  const std::vector<std::string_view> keys = Every(47);
  const size_t present = (keys.size() + 1) / 2;
  ASSERT_GE(present, 2 * index::lsm::kLookupsTogether);
  const uint64_t before = reads();
  for (const std::string_view key : keys) {
    ASSERT_TRUE(MultiGet({key}).ok());
    ExpectValues({key});
  }
  const uint64_t one_by_one = reads() - before;
  EXPECT_GT(one_by_one, present) << "a leaf of each, and the large values";
  EXPECT_LT(host_.storage().runs_at_once_max(), index::lsm::kLookupsTogether);

  OpenCold();
  const uint64_t cold = reads();
  ASSERT_TRUE(MultiGet(keys).ok());
  ExpectValues(keys);
  EXPECT_EQ(host_.storage().runs_at_once_max(), index::lsm::kLookupsTogether);
  EXPECT_EQ(reads() - cold, one_by_one);
  ASSERT_TRUE(MultiGet(keys).ok());
  ExpectValues(keys);
  EXPECT_EQ(reads() - cold, one_by_one) << "all of it is in memory";
}

TEST_F(LsmMultiGetTest, KeysOfOneLeafReadItOnce) {
  // Their values are in the leaf.
  const std::vector<std::string_view> keys = {keys_[2], keys_[4], keys_[8], keys_[10], keys_[14]};
  const uint64_t cold = reads();
  ASSERT_TRUE(MultiGet(keys).ok());
  ExpectValues(keys);
  const uint64_t together = reads() - cold;
  OpenCold();
  const uint64_t before = reads();
  ASSERT_TRUE(MultiGet({keys_[2]}).ok());
  EXPECT_EQ(together, reads() - before) << "as one of them alone";
  EXPECT_GT(together, 0u);
}

TEST_F(LsmMultiGetTest, OneThatCannotReadAllReturnsNothingAndBeginsNoMore) {
  const std::vector<std::string_view> keys = Every(25);
  host_.storage().fail = [](const MemoryStorage::Io& io) {
    const bool fails = io.kind == MemoryStorage::IoKind::kRead;
    return fails ? Status::Unavailable("the device is gone") : Status::Ok();
  };
  const uint64_t before = reads();
  const Status got = MultiGet(keys);
  EXPECT_EQ(got.code(), StatusCode::kUnavailable) << got;
  EXPECT_NE(got.message().find("the device is gone"), std::string::npos) << got;
  EXPECT_TRUE(values_.empty());
  EXPECT_LE(reads() - before, index::lsm::kLookupsTogether);
  host_.storage().fail = nullptr;
  ASSERT_TRUE(MultiGet(keys).ok());
  ExpectValues(keys);
}

TEST_F(LsmMultiGetTest, TheDeadlineIsThatOfAllOfThem) {
  const MonotonicClock clock;
  const Status got = MultiGet(Every(5), clock.NowNs() + kDelayNs / 2);
  EXPECT_EQ(got.code(), StatusCode::kDeadlineExceeded) << got;
  EXPECT_TRUE(values_.empty());
}

TEST_F(LsmMultiGetTest, AKeyThatCannotBeIsRefusedBeforeAnythingIsRead) {
  const uint64_t before = reads();
  EXPECT_EQ(MultiGet({keys_[0], "", keys_[1]}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(values_.empty());
  EXPECT_EQ(reads(), before);
  ASSERT_TRUE(MultiGet({}).ok());
  EXPECT_TRUE(values_.empty());
}

}  // namespace
}  // namespace farleaf::test
