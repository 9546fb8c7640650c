// What an LSM store says when it cannot get on: of reads with a deadline, and of logs that cannot be written.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/support/allocated_bytes.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {
namespace {

using index::KeyValue;

class LsmStoreLimitsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kKeys = 5'000;

  static std::string Key(uint64_t number) { return "key" + std::to_string(kKeys + number); }
  static std::string Value(uint64_t number) {
    return std::to_string(number) + std::string(number % 5 == 0 ? 700 : 30, 'v');
  }
  void PutAll() {
    for (uint64_t number = 0; number < kKeys; ++number) {
      dsm::OpContext op{*worker_, counts_};
      const std::string key = Key(number), value = Value(number);
      ASSERT_TRUE(worker_->Run(host_.index(0).Put(op, key, value)).ok());
    }
  }
  dsm::OpContext Expired() { return {*worker_, counts_, 1}; }
  Status Upkeep() {
    dsm::OpContext op{*worker_, counts_};
    return worker_->Run(host_.index(0).Upkeep(op));
  }
  template <typename Condition>
  void AwaitUpkeep(Condition holds) {  // the test's timeout bounds it
    while (!holds(Upkeep())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  LsmHost host_{{LsmHost::SmallStore()}};
  std::unique_ptr<dsm::Worker> worker_ = host_.OpenWorker();
  dsm::FabricCounts counts_;
};

TEST_F(LsmStoreLimitsTest, ReadsEndWithTheirDeadlinesAndRowsAreWhole) {
  PutAll();
  for (const bool on_disk : {false, true}) {
    SCOPED_TRACE(on_disk);
    if (on_disk) {
      worker_->GoOnline();
      host_.store().FlushSoon();
      worker_->GoOffline();
      worker_ = nullptr;
      host_.Close();
      host_.Open();
      worker_ = host_.OpenWorker();
      AwaitUpkeep([this](const Status&) {
        worker_->GoOnline();
        const auto memtables = host_.store().memtables();
        if (!memtables.active_empty) host_.store().FlushSoon();
        worker_->GoOffline();
        return memtables.active_empty && !memtables.flushing_bytes;
      });
    }
    for (const auto direction : {index::ScanDirection::kForward, index::ScanDirection::kReverse}) {
      dsm::OpContext op = Expired();
      std::vector<KeyValue> rows;
      const Status scanned =
          worker_->Run(host_.index(0).Scan(op, {.start = {}, .direction = direction}, &rows));
      EXPECT_EQ(scanned.code(), StatusCode::kDeadlineExceeded) << scanned;
      EXPECT_LT(rows.size(), kKeys);
      for (const KeyValue& row : rows) {
        EXPECT_EQ(row.value, Value(std::stoull(row.key.substr(3)) - kKeys)) << row.key;
      }
    }
    dsm::OpContext op = Expired();
    std::string value;
    const auto got = worker_->Run(host_.index(0).Get(op, Key(5), &value));
    if (on_disk) {
      EXPECT_EQ(got.status().code(), StatusCode::kDeadlineExceeded) << got.status();
    } else {
      EXPECT_TRUE(got.ok() && *got && value == Value(5)) << "nothing is waited for";
    }
  }
  worker_ = nullptr;
}

// The scan passes leaves whose keys are deleted, all of which are still there.
TEST_F(LsmStoreLimitsTest, AScanOverDeletedKeysHoldsNoMoreThanTheCacheHas) {
  constexpr uint64_t kRows = 100'000, kRowBytes = 160;
  for (uint64_t number = 0; number < kRows; ++number) {
    dsm::OpContext op{*worker_, counts_};
    const std::string key = std::to_string(1'000'000 + number), value(kRowBytes, 'v');
    ASSERT_TRUE(worker_->Run(host_.index(0).Put(op, key, value)).ok());
  }
  const std::string first = std::to_string(1'000'000), last = std::to_string(1'000'000 + kRows - 1);
  const index::lsm::Change deletion{
      .kind = index::lsm::ChangeKind::kDeleteRange, .key = first, .end = last};
  dsm::OpContext op{*worker_, counts_};
  ASSERT_TRUE(worker_->Run(host_.store().Write(op, {&deletion, 1})).ok());
  for (const auto direction : {index::ScanDirection::kForward, index::ScanDirection::kReverse}) {
    std::atomic<bool> scanned{false};
    uint64_t bytes_max = 0;
    std::thread sampler([&] {
      while (!scanned) bytes_max = std::max(bytes_max, host_.store().cache().bytes());
    });
    std::vector<KeyValue> rows;
    const index::ScanRange range{.start = first, .limit = 2, .direction = direction};
    const Status status = worker_->Run(host_.index(0).Scan(op, range, &rows));
    scanned = true;
    sampler.join();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(rows.size(), 1u);
    EXPECT_LT(bytes_max, 2 * LsmHost::SmallStore().cache_bytes);
  }
  worker_ = nullptr;
}

dsm::Task<void> PutAgainAndAgain(dsm::OpContext& op, LsmHost& host, uint64_t puts) {
  const std::string value(200, 'v');
  for (uint64_t i = 0; i < puts; ++i) {
    const std::string key = "key" + std::to_string(i % 100);
    Status put = co_await host.index(0).BlindPut(op, key, value);
    EXPECT_TRUE(put.ok()) << put;
  }
}

// Nothing of it waits, so that its worker would pass no quiescent point: 100 memtables. (Files are in memory, too.)
TEST_F(LsmStoreLimitsTest, WritesThatNeverWaitKeepNoMemtablesForEver) {
  if (!AllocatedBytes()) GTEST_SKIP() << "a sanitizer's allocator";
  const uint64_t memtable_bytes = LsmHost::SmallStore().memtable_bytes;
  const size_t before = *AllocatedBytes();
  dsm::OpContext op{*worker_, counts_};
  worker_->Run(PutAgainAndAgain(op, host_, 100 * memtable_bytes / 200));
  EXPECT_LT(*AllocatedBytes(), before + 40 * memtable_bytes);
  worker_ = nullptr;
}

TEST_F(LsmStoreLimitsTest, LogsThatCannotBeWrittenAreToldOfUntilTheyCan) {
  const auto full = std::make_shared<std::atomic<bool>>(false);  // the host outlives the test
  host_.storage().fail = [full](const index::storage::Io& io) {
    const bool fails = *full && io.kind == index::storage::IoKind::kWrite;
    return fails ? Status::ResourceExhausted("no space left on device") : Status::Ok();
  };
  *full = true;
  dsm::OpContext op{*worker_, counts_};
  ASSERT_TRUE(worker_->Run(host_.index(0).Put(op, "few", "bytes")).ok());
  AwaitUpkeep([](const Status& writing) { return !writing.ok(); });
  EXPECT_NE(Upkeep().message().find("no space left"), std::string_view::npos) << Upkeep();
  *full = false;
  AwaitUpkeep([](const Status& writing) { return writing.ok(); });
  worker_ = nullptr;
}

}  // namespace
}  // namespace farleaf::test
