// PutLoad: threads that put through a client while a test does something to the servers, and what the
// answers leave possible afterwards.
//
// Thread rule: one thread builds, stops and asks; it has threads of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "test/support/await.h"

namespace farleaf {

/// Threads that put ever higher numbers under keys of their own, a window of neighbouring keys at
/// once, so that few pages are locked at any time, and remember what was acknowledged.
class PutLoad {
 public:
  static constexpr int kThreads = 2, kKeys = 400, kWindow = 8, kAllKeys = kThreads * kKeys;

  explicit PutLoad(client::Tree tree) : tree_(std::move(tree)), keys_(kAllKeys) {
    for (int thread = 0; thread < kThreads; ++thread) {
      threads_.emplace_back([this, thread] { PutRounds(thread); });
    }
  }
  ~PutLoad() { Stop(); }

  void Stop() {
    stop_ = true;
    threads_.clear();
  }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t failed() const { return failed_; }
  bool WaitForAcknowledged(uint64_t more) const {
    return WaitUntil(
        [this, from = acknowledged_.load(), more] { return acknowledged_ >= from + more; });
  }
  bool WaitForFailed(uint64_t count = 1) const {
    return WaitUntil([this, count] { return failed_ >= count; });
  }
  std::vector<Status> failures() const {
    std::lock_guard lock(mutex_);
    return failures_;
  }
  /// Each message once, and how often it came.
  std::string DescribeFailures() const {
    std::map<std::string, int> counts;
    for (const Status& failure : failures()) ++counts[failure.ToString()];
    std::string text;
    for (const auto& [message, count] : counts) {
      text += std::to_string(count) + " times " + message + "\n";
    }
    return text;
  }
  /// Whether some history of what was answered leaves `value` under key `i`. REQUIRES: stopped.
  bool MayHold(int i, const client::Value& value) const {
    const Key& key = keys_[static_cast<size_t>(i)];
    if (value && value->size() != kValueBytes) return false;
    const uint64_t number = value ? std::stoull(*value) : 0;
    return number == key.acknowledged ||
           (number > key.acknowledged && key.unknown.contains(number));
  }
  std::string Describe(int i) const {
    const Key& key = keys_[static_cast<size_t>(i)];
    return KeyName(i) + ": acknowledged " + std::to_string(key.acknowledged) + ", unknown " +
           std::to_string(key.unknown.size());
  }
  /// A get of every key at once.
  static std::vector<Result<client::Value>> GetAll(client::Tree tree) {
    std::vector<std::future<Result<client::Value>>> gets;
    for (int i = 0; i < kAllKeys; ++i) {
      gets.push_back(tree.GetAsync(KeyName(i), {.deadline_ms = 20'000}));
    }
    std::vector<Result<client::Value>> values;
    for (auto& get : gets) values.push_back(get.get());
    return values;
  }
  static std::string KeyName(int i) { return "key" + std::to_string(1'000 + i); }
  static std::string ValueOf(uint64_t number) {
    std::string value = std::to_string(number);
    return value + std::string(kValueBytes - value.size(), ' ');
  }

 private:
  static constexpr size_t kValueBytes = 200;
  struct Key {
    uint64_t acknowledged = 0;   // 0: none
    std::set<uint64_t> unknown;  // puts that may have happened
  };

  template <typename Condition>
  static bool WaitUntil(const Condition& condition) {
    return test::Await(condition, 30'000);
  }

  void PutRounds(int thread) {
    for (uint64_t number = 1; !stop_; ++number) {
      for (int i = 0; i < kKeys && !stop_; i += kWindow) PutWindow(thread * kKeys + i, number);
    }
  }
  void PutWindow(int first, uint64_t number) {
    std::vector<std::future<Result<bool>>> puts;
    for (int i = first; i < first + kWindow; ++i) {
      puts.push_back(tree_.PutAsync(KeyName(i), ValueOf(number)));
    }
    for (int i = first; i < first + kWindow; ++i) {
      Key& key = keys_[static_cast<size_t>(i)];
      const Result<bool> put = puts[static_cast<size_t>(i - first)].get();
      if (put.ok()) {
        key.acknowledged = number;
        ++acknowledged_;
        continue;
      }
      if (put.status().code() == StatusCode::kUnknown) key.unknown.insert(number);
      std::lock_guard lock(mutex_);
      failures_.push_back(put.status());
      ++failed_;
    }
  }

  client::Tree tree_;
  std::vector<Key> keys_;  // a thread's own until it has ended
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> acknowledged_{0}, failed_{0};
  mutable std::mutex mutex_;
  std::vector<Status> failures_;
  std::vector<std::jthread> threads_;
};

}  // namespace farleaf
