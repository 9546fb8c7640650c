// VerbLoad: a thread that keeps batches in flight to one memory server, whatever becomes of them, so that a
// test can break things and see how that ends and what was done.
//
// Thread rule: built, asked and stopped by one thread.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {

/// Of whatever is to happen soon, on a machine that does much else.
inline constexpr uint64_t kSoonMs = 40'000;

/// One thread that keeps 32 batches in flight to one memory server, whatever becomes of them. Each adds 1
/// to a word of its own.
class VerbLoad {
 public:
  static constexpr size_t kInFlight = 32;

  VerbLoad(Fabric& fabric, const Clock& clock, ServerId server, uint64_t offset)
      : server_(server), offset_(offset), clock_(clock), client_(fabric, clock), thread_([this] {
          Run();
        }) {}
  ~VerbLoad() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  uint64_t done() const { return done_; }
  uint64_t failed() const { return failed_; }
  uint64_t fenced() const { return fenced_; }
  /// In flight for the longest time, in milliseconds, of all that have ended.
  uint64_t longest_ms() const { return longest_ns_ / kNsPerMs; }
  /// Of the batch that failed last.
  Status last_failure() const {
    std::lock_guard lock(mutex_);
    return last_failure_;
  }
  /// Waits until so many more batches were done than now. How long that took, in milliseconds.
  uint64_t AwaitMoreDone(uint64_t more = 200) { return Await(done_, more); }
  uint64_t AwaitMoreFailed(uint64_t more = kInFlight) { return Await(failed_, more); }
  /// What was done is in the word, and what failed perhaps. REQUIRES: stopped.
  void ExpectWord(uint64_t word) const {
    EXPECT_GE(word, done());
    EXPECT_LE(word, done() + failed());
  }

 private:
  struct Slot {
    std::optional<Batch> batch;
    RoundTripState state;
    uint64_t old = 0;
    uint64_t posted_ns = 0;
  };

  void Run() {
    std::deque<Slot> slots(kInFlight);
    for (Slot& slot : slots) Post(slot);
    size_t in_flight = kInFlight;
    while (in_flight > 0) {
      if (client_.transport().Poll() == 0) {
        client_.transport().Wait(client_.wake_fd(), 10 * kNsPerMs);
      }
      for (Slot& slot : slots) {
        if (!slot.batch || !slot.state.done()) continue;
        Count(slot);
        slot.batch.reset();
        if (stop_) {
          --in_flight;
        } else {
          Post(slot);
        }
      }
    }
  }
  void Post(Slot& slot) {
    slot.batch.emplace(server_);
    slot.state = RoundTripState();
    slot.batch->FetchAdd(offset_, 1, &slot.old);
    slot.posted_ns = clock_.NowNs();
    client_.Post(*slot.batch, slot.state);
  }
  void Count(const Slot& slot) {
    const Status& status = slot.batch->status();
    longest_ns_ = std::max(longest_ns_.load(), clock_.NowNs() - slot.posted_ns);
    if (status.ok()) {
      ++done_;
      return;
    }
    fenced_ += status.code() == StatusCode::kFenced;
    ++failed_;
    std::lock_guard lock(mutex_);
    last_failure_ = status;
  }
  uint64_t Await(const std::atomic<uint64_t>& count, uint64_t more) {
    const uint64_t begin_ns = clock_.NowNs(), target = count + more;
    EXPECT_TRUE(Eventually([&] { return count >= target; })) << last_failure();
    return (clock_.NowNs() - begin_ns) / kNsPerMs;
  }

  const ServerId server_;
  const uint64_t offset_;
  const Clock& clock_;
  TestClient client_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> done_{0}, failed_{0}, fenced_{0}, longest_ns_{0};
  mutable std::mutex mutex_;  // guards last_failure_
  Status last_failure_;
  std::thread thread_;
};

inline void Tell(const std::string& what, uint64_t ms, const Status& status = Status::Ok()) {
  std::cout << "  " << what << ": " << ms << " ms";
  if (!status.ok()) std::cout << " (" << status << ")";
  std::cout << std::endl;
}

inline bool Names(const Status& status, std::string_view server) {
  return status.message().find(server) != std::string_view::npos;
}

}  // namespace farleaf::dsm
