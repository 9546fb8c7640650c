// Options of a tree that may be off: tests run with each of them off, and with all at once.
//
// Thread rule: pure functions over plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "index/blink/options.h"

namespace farleaf::test {

/// Each is something that a tree does beyond what its answers need.
enum class TreeOption : uint8_t {
  kReadSharing,
  kWriteCombining,
  kHandOver,
  kInPlace,
  kSmallWriteBacks,
  kBackOff,
  kLearnSplits,
  kValueHints,
  kValueLists,
  kOrderedLeaves,
  kScanAhead,  ///< scans read several leaves at a time
  kWideCache,  ///< the cache has room for more than one node directly above the leaves
  kMerging,
  kCache,
};
inline constexpr std::string_view kTreeOptionNames[] = {
    "share_reads", "combine_writes", "hand_over",   "in_place",    "small_write_backs",
    "back_off",    "learn_splits",   "value_hints", "value_lists", "ordered_leaves",
    "scan_ahead",  "wide_cache",     "merging",     "cache"};
inline constexpr size_t kTreeOptions = std::size(kTreeOptionNames);

void TurnOff(TreeOption option, index::TreeOptions* options);

/// A set of them.
class OptionSet {
 public:
  constexpr OptionSet() = default;
  constexpr OptionSet(std::initializer_list<TreeOption> options) {
    for (const TreeOption option : options) Add(option);
  }
  static OptionSet All() {
    OptionSet all;
    all.bits_ = (1u << kTreeOptions) - 1;
    return all;
  }
  /// Without these a tree still caches its search layer and merges its nodes: their protocols run undisturbed.
  static OptionSet Shortcuts() {
    OptionSet shortcuts;
    shortcuts.bits_ = (1u << static_cast<unsigned>(TreeOption::kWideCache)) - 1;
    return shortcuts;
  }
  constexpr void Add(TreeOption option) { bits_ |= 1u << static_cast<unsigned>(option); }
  void Add(OptionSet others) { bits_ |= others.bits_; }
  bool Has(TreeOption option) const { return bits_ >> static_cast<unsigned>(option) & 1; }
  bool HasAnyOf(OptionSet others) const { return (bits_ & others.bits_) != 0; }
  bool empty() const { return bits_ == 0; }
  void TurnOff(index::TreeOptions* options) const;
  bool operator==(const OptionSet&) const = default;

 private:
  uint32_t bits_ = 0;
};

/// For messages: "all, shortcuts, share_reads, ...".
std::string AllowedOptions();

/// One of the names, "all", "shortcuts", or several joined by '+'.
Result<OptionSet> ParseOptionSet(std::string_view names);

inline index::TreeOptions Without(OptionSet options, index::TreeOptions others = {}) {
  options.TurnOff(&others);
  return others;
}

/// What a test runs with.
struct OptionsCase {
  std::string name;
  OptionSet off;
};
inline void PrintTo(const OptionsCase& options, std::ostream* out) { *out << options.name; }

std::vector<OptionsCase> AllOnAndAllOff();
/// All on, each by itself off, all shortcuts off, all off.
std::vector<OptionsCase> EachOptionOff();

/// Does not compile with another option in the struct: one that may be off has its place above.
inline void EveryOptionIsKnown(const index::TreeOptions& options) {
  [[maybe_unused]] const auto& [cache, cache_bytes, hop_threshold, lock_wait_ms, merge_below,
                                merge_up_to, scan_leaves_max, value_hint_bytes, value_list_bytes,
                                placement, read_sharing, write_combining, hand_over, in_place,
                                small_write_backs, back_off, learn_splits] = options;
}

}  // namespace farleaf::test
