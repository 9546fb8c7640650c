// RangedHost: the trees of another host as one server of several has them, each of which serves some ranges of keys. It
// tells the map of ranges, and counts operations on keys that are another server's, which it executes all the same, as one
// that forwards them would.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/host_decorator.h"

namespace farleaf::test {

class RangedHost final : public HostDecorator {
 public:
  using Ranges = std::vector<client::protocol::ServedRange>;

  using HostDecorator::HostDecorator;

  /// By its own name, `url`, it knows which ranges are its own.
  void SetMap(const std::string& url, uint32_t view, Ranges ranges);
  /// From here on, one operation of eight, for up to a millisecond. REQUIRES: none is running.
  void HoldSomeUp() { hold_some_up_ = true; }
  uint32_t view() const override { return view_; }
  void GetRangeMap(uint32_t* view, Ranges* ranges) const override;
  /// Operations on keys that are another's, by this map and by the one before: what was begun under that one may be noted
  /// when this one is there.
  uint64_t misrouted() const { return misrouted_; }
  uint64_t operations() const { return operations_; }

  /// Of an operation on the keys in [start, end). Returns how long it is to be held up, in ns.
  uint64_t Note(std::string_view start, std::optional<std::string_view> end);

 protected:
  std::unique_ptr<index::RangeIndex> Decorate(index::RangeIndex* index) override;

 private:
  bool IsOwn(const Ranges& ranges, std::string_view start,
             std::optional<std::string_view> end) const;

  bool hold_some_up_ = false;
  std::atomic<uint64_t> misrouted_{0}, operations_{0};
  std::atomic<uint32_t> view_{1};
  mutable std::mutex mutex_;  // guards what follows, and changes of view_
  std::string url_;
  Ranges ranges_{{.start = "", .url = ""}}, before_ = ranges_;
};

}  // namespace farleaf::test
