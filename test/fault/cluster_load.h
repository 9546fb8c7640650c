// Clients of a cluster that write, each its own keys, and read all: what one reads is at least what was acknowledged,
// or seen by anybody, before it asked, and nothing that was not begun to be written by then. Of reads that may be
// stale: before as long ago as the answer says.
//
// Thread rule: one thread; the clients have threads of their own.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"

namespace farleaf::test {

class ClusterLoad {
 public:
  /// Keys begin with one of these: the regions are parted among them.
  static constexpr char kFirst = 'a', kLast = 'z';
  static constexpr size_t kLetters = kLast - kFirst + 1;

  explicit ClusterLoad(std::string url, uint64_t deadline_ms = 30'000);
  ~ClusterLoad() { Stop(); }
  /// Each client reads all of its keys before it ends.
  void Stop();

  uint64_t acknowledged() const { return acknowledged_; }
  /// Answers of copies that were not quite of now.
  uint64_t stale_reads() const { return stale_reads_; }
  uint64_t failed() const { return failed_; }
  std::string first_failure() const;
  /// Of a write that was acknowledged.
  struct Written {
    std::string key;
    uint64_t begun_ns, ended_ns;
  };
  /// From here on `TakeWrites` has them all.
  void KeepWrites() { keeps_writes_ = true; }
  std::vector<Written> TakeWrites();
  /// Since the last call: how long a client waited at most for one of its operations.
  uint64_t TakeLongestNs();
  /// The same, by the first letters of the keys, of what was to be of now.
  std::array<uint64_t, kLetters> TakeLongestByLetter();

 private:
  struct Known {
    uint64_t tried = 0;                     ///< numbers that were begun to be written
    uint64_t least = 0;                     ///< acknowledged, or seen
    std::map<uint64_t, uint64_t> least_at;  ///< by the time at which it came to be that
    void Least(uint64_t number, uint64_t now_ns);
    uint64_t LeastBefore(uint64_t time_ns) const;
  };

  void Run(size_t number);
  void DoOne(client::Tree& tree, size_t number, Random& random);
  void Write(client::Tree& tree, const std::string& key, size_t bytes);
  void Read(client::Tree& tree, const std::string& key);
  void ReadStale(client::Tree& tree, const std::string& key);
  void Fail(const std::string& what);

  const std::string url_;
  const uint64_t deadline_ms_;
  const MonotonicClock clock_;
  std::atomic<bool> stopping_{false}, keeps_writes_{false};
  std::atomic<uint64_t> acknowledged_{0}, failed_{0}, stale_reads_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Known> keys_;
  std::vector<Written> writes_;
  std::array<uint64_t, kLetters> longest_ns_{};
  uint64_t longest_stale_ns_ = 0;
  std::string first_failure_;
  std::vector<std::thread> threads_;
};

}  // namespace farleaf::test
