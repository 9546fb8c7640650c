// What the micro benchmarks share: a seed, the keys of a tree, its separators, and leaves of 1 KiB.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace farleaf::micro {

inline constexpr uint64_t kSeed = 1;
inline constexpr size_t kLineBytes = 64;  ///< of the processor's caches
inline constexpr size_t kLeafBytes = 1024;
inline constexpr size_t kLeafImageBytes = kLeafBytes - 8;  ///< what is copied and checksummed
inline constexpr uint64_t kKeysPerLeaf =
    42;  ///< of a 1 KiB leaf of 16-byte entries, two thirds full

/// Key number `number`, as ycsb's fixed8 keys in hashed order.
uint64_t KeyOf(uint64_t number);

/// A sorted array of separators and one leaf for each, checksummed, of a tree with `keys` keys.
class Leaves {
 public:
  explicit Leaves(uint64_t keys);

  uint64_t keys() const { return keys_; }
  size_t count() const { return separators_.size(); }
  /// Index of the leaf that holds `key`: the last separator that is not above it. Branch-free.
  size_t Find(uint64_t key) const;
  std::span<const std::byte> leaf(size_t i) const {
    return std::span(bytes_).subspan(i * kLeafBytes, kLeafBytes);
  }

 private:
  uint64_t keys_;
  std::vector<uint64_t> separators_;  ///< ascending; the first is 0
  std::vector<std::byte> bytes_;
};

/// CPU time that this thread has used, which others on the machine do not add to.
uint64_t ThreadCpuNs();

/// Copies the leaf's image to `to` and answers whether its checksum is right.
bool CopyAndCheck(std::span<const std::byte> leaf, std::span<std::byte> to);

}  // namespace farleaf::micro
