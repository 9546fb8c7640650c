// MixedLoad: gets, puts and deletes of skewed keys through one client, and whether every answer fits
// those before it. Several loads share the leaves of a tree, but not the keys: load number `owner` of
// `owners` has every owners-th key.
//
// A key holds what the last acknowledged write left there, or what a later write of unknown outcome
// left. Such a write may take effect any time until the next acknowledged one, which stands behind it.
//
// Thread rule: one thread builds, stops and asks; the load has a thread of its own while it runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmark/ycsb/distributions.h"
#include "client/client.h"
#include "dsm/base/bytes.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"

namespace farleaf {

class MixedLoad {
 public:
  struct Options {
    uint64_t seed = 1;
    int owner = 0, owners = 2;
    uint64_t keys = 1'000;
    size_t window = 16;  ///< in flight, each on a key of its own
    uint64_t deadline_ms = 10'000;
    client::TreeLayout layout = client::TreeLayout::kBytes;  ///< of the tree
  };
  enum class OnFailure : uint8_t { kEnd, kGoOn };

  explicit MixedLoad(Options options)
      : options_(options), random_(options.seed), popular_(0, options.keys), held_(options.keys) {}
  ~MixedLoad() { Stop(); }

  /// Runs until Stop; with kEnd, until an operation fails.
  void Start(client::Tree tree, OnFailure on_failure) {
    stop_ = false;
    running_ = true;
    thread_ = std::jthread([this, tree = std::move(tree), on_failure]() mutable {
      while (!stop_ && (on_failure == OnFailure::kGoOn || failures_.empty())) RunWindow(tree);
      running_ = false;
    });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool running() const { return running_; }
  uint64_t acknowledged() const { return acknowledged_; }

  // When stopped:
  std::vector<Status> TakeFailures() { return std::exchange(failures_, {}); }
  /// Answers that fit nothing; empty if all was well.
  const std::string& wrong() const { return wrong_; }
  uint64_t longest_wait_ms() const { return longest_wait_ns_ / kNsPerMs; }

  /// Reads every key, and writes every key, through `tree`, which may be another server's than the load's: each has `deadline_ms`.
  void ReadAll(client::Tree tree, uint64_t deadline_ms) { ForAll(tree, Kind::kGet, deadline_ms); }
  void WriteAll(client::Tree tree, uint64_t deadline_ms) { ForAll(tree, Kind::kPut, deadline_ms); }

 private:
  enum class Kind : uint8_t { kGet, kPut, kDelete };
  struct Held {
    std::optional<uint64_t> settled;             // nullopt: absent
    std::set<std::optional<uint64_t>> possible;  // writes of unknown outcome since
  };
  struct Started {
    uint64_t key = 0;
    Kind kind = Kind::kGet;
    uint64_t number = 0;  // of a put
    std::future<Result<bool>> written;
    std::future<Result<client::Value>> read;
  };

  std::string KeyName(uint64_t key) const {
    const uint64_t number =
        key * static_cast<uint64_t>(options_.owners) + static_cast<uint64_t>(options_.owner);
    return fixed8() ? Eight(number) : "key" + std::to_string(1'000'000 + number);
  }
  std::string ValueOf(uint64_t number) const {
    if (fixed8()) return Eight(number);
    std::string value = std::to_string(number);
    return value + std::string(100 - value.size(), ' ');
  }
  uint64_t NumberOf(const std::string& value) const {
    if (!fixed8()) return std::strtoull(value.c_str(), nullptr, 10);
    return value.size() == 8 ? LoadBig64(value.data()) : 0;
  }
  bool fixed8() const { return options_.layout == client::TreeLayout::kFixed8; }
  static std::string Eight(uint64_t number) {
    std::string eight(8, 0);
    StoreBig64(eight.data(), number);
    return eight;
  }

  void RunWindow(client::Tree& tree) {
    std::set<uint64_t> keys;
    while (keys.size() < options_.window) keys.insert(popular_.Next(random_));
    std::vector<Started> window;
    const uint64_t begin_ns = clock_.NowNs();
    for (const uint64_t key : keys) {
      const uint64_t dice = random_.Below(100);  // workload a, with deletes
      Post(tree, key, dice < 50 ? Kind::kGet : dice < 92 ? Kind::kPut : Kind::kDelete,
           options_.deadline_ms, window);
    }
    for (Started& started : window) End(started);
    longest_wait_ns_ = std::max(longest_wait_ns_, clock_.NowNs() - begin_ns);
  }
  void ForAll(client::Tree& tree, Kind kind, uint64_t deadline_ms) {
    std::vector<Started> window;
    for (uint64_t key = 0; key < options_.keys; ++key) Post(tree, key, kind, deadline_ms, window);
    for (Started& started : window) End(started);
  }

  void Post(client::Tree& tree, uint64_t key, Kind kind, uint64_t deadline_ms,
            std::vector<Started>& window) {
    Started started{key, kind, ++last_number_, {}, {}};
    const client::CallOptions call{.deadline_ms = deadline_ms};
    if (kind == Kind::kGet) started.read = tree.GetAsync(KeyName(key), call);
    if (kind == Kind::kPut) {
      started.written = tree.PutAsync(KeyName(key), ValueOf(started.number), call);
    }
    if (kind == Kind::kDelete) started.written = tree.DeleteAsync(KeyName(key), call);
    window.push_back(std::move(started));
  }

  void End(Started& started) {
    Held& held = held_[started.key];
    if (started.kind == Kind::kGet) {
      const Result<client::Value> read = started.read.get();
      if (!read.ok()) return failures_.push_back(read.status());
      Judge(started.key, held, *read);
    } else {
      std::optional<uint64_t> value;
      if (started.kind == Kind::kPut) value = started.number;
      const Result<bool> written = started.written.get();
      if (!written.ok()) {
        if (written.status().code() == StatusCode::kUnknown) held.possible.insert(value);
        return failures_.push_back(written.status());
      }
      held = {value, {}};
    }
    ++acknowledged_;
  }
  void Judge(uint64_t key, const Held& held, const client::Value& read) {
    std::optional<uint64_t> number;
    if (read) number = NumberOf(*read);
    const bool whole = !read || *read == ValueOf(*number);
    if (whole && (number == held.settled || held.possible.contains(number))) return;
    wrong_ += KeyName(key) + ": read '" + (read ? *read : "nothing") + "', acknowledged " +
              (held.settled ? std::to_string(*held.settled) : "nothing") + ", of unknown outcome " +
              std::to_string(held.possible.size()) + "\n";
  }

  const Options options_;
  Random random_;
  ycsb::ScrambledZipfian popular_;
  const MonotonicClock clock_;
  std::vector<Held> held_;
  uint64_t last_number_ = 0;
  uint64_t longest_wait_ns_ = 0;
  std::vector<Status> failures_;
  std::string wrong_;
  std::atomic<bool> stop_{false}, running_{false};
  std::atomic<uint64_t> acknowledged_{0};
  std::jthread thread_;
};

}  // namespace farleaf
