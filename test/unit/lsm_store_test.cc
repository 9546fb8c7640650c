// The LSM store as a whole: levels that turn over, snapshots of scans, reopening.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dsm/base/random.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {
namespace {

using index::KeyValue;
using index::ScanRange;

class LsmStoreTest : public ::testing::Test {
 protected:
  std::string Key(uint64_t number) {
    char key[24];
    std::snprintf(key, sizeof key, "key%09llu", static_cast<unsigned long long>(number));
    return key;
  }
  std::string Value(uint64_t number, uint64_t version) {
    Random random(number * 1000 + version);
    const size_t bytes = number % 5 == 0 ? 700 : 30;
    std::string value = std::to_string(number) + "." + std::to_string(version) + ".";
    while (value.size() < bytes) value.push_back(static_cast<char>('a' + random.Below(26)));
    return value;
  }
  void OpenWorker() { worker_ = host_.OpenWorker(); }
  dsm::OpContext Op() { return {*worker_, counts_}; }
  void Put(const std::string& key, const std::string& value) {
    dsm::OpContext op = Op();
    auto put = worker_->Run(host_.index(0).Put(op, key, value));
    ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_EQ(*put, !model_.contains(key)) << key;
    model_[key] = value;
  }
  void Delete(const std::string& key) {
    dsm::OpContext op = Op();
    auto deleted = worker_->Run(host_.index(0).Delete(op, key));
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    ASSERT_EQ(*deleted, model_.erase(key) == 1) << key;
  }
  void ExpectGet(const std::string& key) {
    dsm::OpContext op = Op();
    std::string value;
    auto found = worker_->Run(host_.index(0).Get(op, key, &value));
    ASSERT_TRUE(found.ok()) << found.status();
    const auto at = model_.find(key);
    ASSERT_EQ(*found, at != model_.end()) << key;
    if (*found) {
      ASSERT_EQ(value, at->second) << key;
    }
  }
  void ExpectAll(index::ScanDirection direction) {
    dsm::OpContext op = Op();
    std::vector<KeyValue> rows;
    Status scanned = worker_->Run(
        host_.index(0).Scan(op, ScanRange{.start = {}, .direction = direction}, &rows));
    ASSERT_TRUE(scanned.ok()) << scanned;
    std::vector<KeyValue> expected;
    for (const auto& [key, value] : model_) expected.push_back({key, value});
    if (direction == index::ScanDirection::kReverse) std::reverse(expected.begin(), expected.end());
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], expected[i]) << i;
  }

  LsmHost host_{{LsmHost::SmallStore()}};
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::map<std::string, std::string> model_;
};

TEST_F(LsmStoreTest, WhatWasPutIsFoundThroughManyFlushesAndCompactions) {
  OpenWorker();
  Random random(1);
  constexpr uint64_t kKeys = 60'000;
  for (uint64_t i = 0; i < 200'000; ++i) {
    const uint64_t number = random.Below(kKeys);
    if (random.Below(10) == 0) {
      Delete(Key(number));
    } else {
      Put(Key(number), Value(number, i));
    }
    if (HasFatalFailure()) return;
  }
  for (uint64_t number = 0; number < kKeys; ++number) {
    ExpectGet(Key(number));
    if (HasFatalFailure()) return;
  }
  ExpectAll(index::ScanDirection::kForward);
  ExpectAll(index::ScanDirection::kReverse);
  worker_ = nullptr;
  host_.Close();
  host_.Open();
  OpenWorker();
  ExpectAll(index::ScanDirection::kForward);
  for (uint64_t number = 0; number < kKeys; number += 7) ExpectGet(Key(number));
  worker_ = nullptr;
}

}  // namespace
}  // namespace farleaf::test
