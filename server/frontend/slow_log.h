// SlowLog: the requests of a server that took longest to answer, the most recent ones of those, for an operator to
// ask for.
//
// Invariant: it has at most `entries` of them, each with at most kKeyBytesMax bytes of its key.
// Thread rule: any thread. Whoever was not slow touches nothing that others write.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace farleaf::server {

struct SlowLogOptions {
  uint64_t slow_us = 10'000;  ///< from here on a request is slow; 0: none is
  uint32_t entries = 128;
};

struct SlowRequest {
  uint64_t id = 0;       ///< counts up from 1
  uint64_t time_ms = 0;  ///< since 1970, when it was answered
  uint64_t duration_us = 0;
  uint64_t round_trips = 0;
  std::string protocol, command;
  std::string key;     ///< its first bytes, printable: others are \xNN
  std::string client;  ///< address
  bool failed = false;
};

class SlowLog {
 public:
  static constexpr size_t kKeyBytesMax = 64;

  explicit SlowLog(SlowLogOptions options) : options_(options) {}

  bool IsSlow(uint64_t duration_ns) const {
    return options_.slow_us != 0 && duration_ns >= options_.slow_us * 1'000;
  }
  /// `request.key` is as the client sent it; id is given here.
  void Add(SlowRequest request);
  /// The newest first.
  std::vector<SlowRequest> Entries() const;
  /// How many there have been.
  uint64_t count() const;
  void Clear();
  /// Entries as a JSON array, one a line.
  std::string ToJson() const;

 private:
  const SlowLogOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::deque<SlowRequest> entries_;
  uint64_t count_ = 0;
};

/// At most `bytes_max` bytes, those that are not printable as \xNN, "…" behind them if there are more.
std::string PrintablePrefix(std::string_view bytes, size_t bytes_max);

}  // namespace farleaf::server
