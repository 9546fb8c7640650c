// SingleWriterModel: what concurrent clients may see of keys that have one writer each. Its writer
// numbers a key's writes 1, 2, 3, …; a get must not answer an older one than the last that was
// acknowledged, or seen by a get that had ended, when it was invoked, and not a newer one than the
// last that was invoked: that is linearizability, decided on the spot.
//
// Thread rule: thread-safe; of one key's writes, only one is on its way.
#pragma once

#include <algorithm>
#include <charconv>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/geometry.h"
#include "index/range_index.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {

class SingleWriterModel {
 public:
  SingleWriterModel(const Geometry& geometry, size_t keys) : geometry_(geometry), states_(keys) {}

  size_t keys() const { return states_.size(); }
  /// Byte-string keys are of lengths that differ, with long common prefixes.
  std::string Key(size_t key) const {
    if (geometry_.layout == Layout::kFixed8) return Fixed((key + 1) << 40);
    std::string number = std::to_string(1'000'000 + key);
    number.insert(4, 20, 'p');
    return number + std::string(Mix64(key) % (geometry_.key_bytes_max - number.size() + 1), 'x');
  }
  std::optional<size_t> KeyOf(std::string_view bytes) const {
    uint64_t key = 0;
    if (geometry_.layout == Layout::kFixed8) {
      key = (LoadBig64(bytes.data()) >> 40) - 1;
    } else {
      const std::string digits = std::string(bytes.substr(1, 3)) + std::string(bytes.substr(24, 3));
      std::from_chars(digits.data(), digits.data() + digits.size(), key);
    }
    if (key >= states_.size() || Key(key) != bytes) return std::nullopt;
    return key;
  }
  /// Lengths of byte-string values differ too; about one in five is out of line.
  std::string Value(uint64_t write) const {
    if (geometry_.layout == Layout::kFixed8) return Fixed(write);
    const uint64_t length =
        Mix64(write) % 5 == 0 ? geometry_.inline_value_bytes_max + 30 : 10 + Mix64(write) % 20;
    std::string value = std::to_string(write) + ".";
    value.resize(std::max<size_t>(value.size(), length), 'v');
    return value;
  }
  static uint64_t WriteOf(const Geometry& geometry, std::string_view value) {
    if (geometry.layout == Layout::kFixed8) return LoadBig64(value.data());
    uint64_t write = 0;
    std::from_chars(value.data(), value.data() + value.size(), write);
    return write;
  }

  // The writer's side. Write 0 is absence.
  bool IsPresent(size_t key) {
    std::lock_guard lock(mutex_);
    return states_[key].present[states_[key].acknowledged];
  }
  uint64_t BeginWrite(size_t key, bool present) {
    std::lock_guard lock(mutex_);
    states_[key].present.push_back(present);
    return states_[key].present.size() - 1;
  }
  void EndWrite(size_t key) {
    std::lock_guard lock(mutex_);
    states_[key].acknowledged = states_[key].present.size() - 1;
  }

  /// The write did not happen.
  void CancelWrite(size_t key) {
    std::lock_guard lock(mutex_);
    states_[key].present.pop_back();
  }

  // The reader's side.
  struct Seen {
    uint64_t at_least = 0;  ///< an answer must not be older
    uint64_t invoked = 0;   ///< writes
    bool quiet = false;     ///< no write was on its way
  };
  Seen BeginRead(size_t key) {
    std::lock_guard lock(mutex_);
    const State& state = states_[key];
    const uint64_t invoked = state.present.size() - 1;
    return {std::max(state.acknowledged, state.seen), invoked, state.acknowledged == invoked};
  }
  /// Empty, or what is wrong with the answer.
  std::string EndRead(size_t key, Seen begun, std::optional<std::string_view> value) {
    std::lock_guard lock(mutex_);
    State& state = states_[key];
    const uint64_t invoked = state.present.size() - 1;
    uint64_t write = begun.at_least;
    if (value) {
      write = WriteOf(geometry_, *value);
      if (write > invoked || !state.present[write] || *value != Value(write)) {
        return Describe(key) + ": nobody wrote this value: " + std::to_string(write);
      }
      if (write < begun.at_least) {
        return Describe(key) + ": stale: write " + std::to_string(write) + " when " +
               std::to_string(begun.at_least) + " was known";
      }
    } else {
      while (write <= invoked && state.present[write]) ++write;
      if (write > invoked) {
        return Describe(key) + ": absent, though present since write " +
               std::to_string(begun.at_least);
      }
    }
    state.seen = std::max(state.seen, write);
    return "";
  }
  /// Of a scan over [low, high): every row is what the key may be, and every key that stayed is there.
  std::string EndScan(size_t low, size_t high, const std::vector<Seen>& begun,
                      const std::vector<KeyValue>& rows, ScanDirection direction) {
    std::vector<std::optional<std::string_view>> found(high - low);
    std::optional<size_t> previous;
    for (const KeyValue& row : rows) {
      const auto key = KeyOf(row.key);
      if (!key) continue;  // of another kind
      if (*key < low || *key >= high) return Describe(*key) + ": outside the scan's bounds";
      const bool forward = direction == ScanDirection::kForward;
      if (previous && (forward ? *key <= *previous : *key >= *previous)) {
        return Describe(*key) + ": repeated, or not in order";
      }
      previous = key;
      found[*key - low] = row.value;
    }
    for (size_t key = low; key < high; ++key) {
      const Seen& seen = begun[key - low];
      const auto& value = found[key - low];
      std::lock_guard lock(mutex_);
      const State& state = states_[key];
      const uint64_t invoked = state.present.size() - 1;
      if (value) {
        const uint64_t write = WriteOf(geometry_, *value);
        if (write > invoked || !state.present[write] || write < seen.at_least) {
          return Describe(key) + ": scan shows write " + std::to_string(write) + " when " +
                 std::to_string(seen.at_least) + " was known";
        }
      } else if (seen.quiet && seen.invoked == invoked && state.present[invoked]) {
        return Describe(key) + ": missed by a scan though nobody touched it";
      }
    }
    return "";
  }

 private:
  struct State {
    std::vector<bool> present{false};  // by write
    uint64_t acknowledged = 0;
    uint64_t seen = 0;
  };
  static std::string Describe(size_t key) { return "key " + std::to_string(key); }

  Geometry geometry_;
  std::mutex mutex_;  // guards states_
  std::deque<State> states_;
};

}  // namespace farleaf::index
