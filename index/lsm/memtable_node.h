// Entries and nodes of a memtable (memtable.h).
//
// Thread rule: a Record is immutable; of a Node, whoever has locked it stores, and everybody loads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "dsm/base/bytes.h"
#include "dsm/base/spin_lock.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm::memtable_internal {

/// In memory: this, the key, [u64 expires_ms], the value or the ValuePointer.
struct Record {
  uint64_t tag;  ///< sequence << 8 | expires << 7 | kind
  uint32_t key_bytes;
  uint32_t value_bytes;

  static constexpr uint64_t kExpires = 0x80;
  Sequence sequence() const { return tag >> 8; }
  EntryKind kind() const { return static_cast<EntryKind>(tag & 0x7f); }
  const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
  char* bytes() { return reinterpret_cast<char*>(this + 1); }
  std::string_view key() const { return {bytes(), key_bytes}; }
};

/// Where an entry is, or would be.
struct Place {
  std::string_view key;
  Sequence sequence;
};
inline Place PlaceOf(const Record& record) { return {record.key(), record.sequence()}; }

/// Below 0: `record` comes before `place`.
inline int Compare(const Record& record, const Place& place) {
  const int order = record.key().compare(place.key);
  if (order != 0) return order;
  if (record.sequence() == place.sequence) return 0;
  return record.sequence() > place.sequence ? -1 : 1;
}

/// 8 bytes of the key from `skip` on, padded with zeros, as a number: if two keys' numbers differ, they are ordered as the
/// keys are; if not, they say nothing.
inline uint64_t PrefixOf(std::string_view key, size_t skip) {
  if (skip + 8 <= key.size()) return LoadBig64(key.data() + skip);
  if (skip >= key.size()) return 0;
  char padded[8] = {};
  std::memcpy(padded, key.data() + skip, key.size() - skip);
  return LoadBig64(padded);
}

inline constexpr uint32_t kSlots = 64;

template <typename T>
class Field {
 public:
  T load() const { return value_.load(std::memory_order_acquire); }
  void store(T value) { value_.store(value, std::memory_order_release); }

 private:
  std::atomic<T> value_;
};

struct alignas(64) Node {
  std::atomic<uint64_t> version{0};  ///< odd: locked
  const uint32_t level;              ///< 0: leaf
  Field<uint32_t> count;             ///< of records
  Field<uint32_t> skip;              ///< bytes that all keys between the fences begin with
  const Record* const low;           ///< the first entry; null: there is nothing to the left
  Field<const Record*> high;         ///< the first entry of the next; null: there is none
  alignas(64) std::array<Field<uint64_t>, kSlots> prefixes;
  /// A leaf's entries; an inner node's separators: records[i] is the low fence of child i + 1.
  std::array<Field<const Record*>, kSlots> records;

  Node(uint32_t its_level, const Record* its_low) : level(its_level), low(its_low) {}
  bool is_leaf() const { return level == 0; }
  inline Field<Node*>& child(uint32_t i);
  Node* Child(uint32_t i) const { return const_cast<Node*>(this)->child(i).load(); }

  /// The version, once it is unlocked.
  uint64_t Stable() const {
    uint32_t turns = 0;
    for (;;) {
      const uint64_t now = version.load(std::memory_order_acquire);
      if ((now & 1) == 0) return now;
      SpinPause(&turns);
    }
  }
  /// Whether all that was loaded since is of one state. Loads are acquires, and so happen before this one.
  bool Unchanged(uint64_t since) const { return version.load(std::memory_order_acquire) == since; }
  bool TryLock(uint64_t since) {
    return version.compare_exchange_strong(since, since + 1, std::memory_order_acq_rel);
  }
  void Unlock() { version.fetch_add(1, std::memory_order_release); }

  void Prefetch() const {
    const char* const lines = reinterpret_cast<const char*>(this);
    for (size_t line = 0; line < 9; ++line) __builtin_prefetch(lines + line * 64);
  }

  enum class Equal : uint8_t { kBehind, kBefore };
  /// How many records come before `place`; the one that is `place` is counted with Equal::kBefore.
  uint32_t CountBefore(const Place& place, Equal equal) const {
    const uint32_t entries = std::min(count.load(), kSlots);
    if (entries == 0) return 0;
    const uint64_t prefix = PrefixOf(place.key, skip.load());
    uint32_t first = 0, left = entries;
    while (left > 1) {  // branch-free
      const uint32_t half = left / 2;
      first += prefixes[first + half - 1].load() < prefix ? half : 0;
      left -= half;
    }
    first += prefixes[first].load() < prefix;
    uint32_t last = first;  // [first, last): not decided by the prefix
    for (uint32_t step = 1; last < entries && prefixes[last].load() == prefix; step *= 2) {
      last = std::min(last + step, entries);
      if (prefixes[last - 1].load() != prefix) break;
    }
    while (first < last) {
      const uint32_t middle = first + (last - first) / 2;
      const bool before = prefixes[middle].load() == prefix &&
                          Compare(*records[middle].load(), place) < (equal == Equal::kBefore);
      (before ? first : last) = before ? middle + 1 : middle;
    }
    return first;
  }
};

struct InnerNode : Node {
  using Node::Node;
  std::array<Field<Node*>, kSlots + 1> children;
};

inline Field<Node*>& Node::child(uint32_t i) { return static_cast<InnerNode*>(this)->children[i]; }

}  // namespace farleaf::index::lsm::memtable_internal
