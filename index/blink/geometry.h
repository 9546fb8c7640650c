// Geometry: the properties of a tree that fix its pages' format. Stored in the tree's catalog
// entry, chosen when the tree is created, never by a rebuild; but for the key of its digests, which is
// the pool's.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string_view>

#include "dsm/base/status.h"

namespace farleaf::index {

using TreeId = uint16_t;  ///< 1..128, unique in the pool
using Level = uint8_t;    ///< 0 is the leaves
inline constexpr Level kLevelMax = 16;

enum class Layout : uint8_t {
  kFixed8 = 1,  ///< keys and values of exactly 8 bytes
  kBytes = 2,   ///< byte strings, slotted pages; large values out of line
};

/// How a leaf's entries stand in its page in the pool. Internal nodes are always sorted.
enum class LeafLayout : uint8_t {
  kSorted = 1,  ///< the page is the node, under one checksum
  kParted = 2,  ///< parts that each answer for their keys (parted_leaf.h); kFixed8 only
};

inline constexpr uint32_t kPageBytesMin = 256;
inline constexpr uint32_t kPageBytesMax = 4096;
inline constexpr uint64_t kPageAlignment = 64;
inline constexpr uint32_t kKeyBytesMax = 1024;
inline constexpr uint64_t kValueBytesMax = uint64_t{16} << 20;

/// Of a parted leaf (parted_leaf.h): 64 bytes, and 128 for each part.
inline constexpr uint32_t kLeafPartsMin = 4;
inline constexpr uint32_t kLeafPartsMax = 31;
inline constexpr uint32_t kLeafPartsDefault = 28;

struct Geometry {
  Layout layout = Layout::kFixed8;
  uint32_t leaf_bytes = 1024;           ///< a leaf's page; a multiple of 64
  uint32_t node_bytes = 1024;           ///< an internal node's page; a multiple of 64
  uint32_t key_bytes_max = 8;           ///< kFixed8: 8
  uint32_t inline_value_bytes_max = 8;  ///< longer values go to a block; kFixed8: 8
  LeafLayout leaf_layout = LeafLayout::kSorted;
  /// Of the digests in parted leaves (fence_digest.h): nobody who only chooses keys knows it. CreateTree and
  /// ListTrees set it.
  uint64_t digest_key = 0;
  bool operator==(const Geometry&) const = default;

  /// Pages of one size.
  static Geometry Fixed8(uint32_t page_bytes = 1024) { return Fixed8(page_bytes, page_bytes); }
  static Geometry Fixed8(uint32_t leaf_bytes, uint32_t node_bytes) {
    return {Layout::kFixed8, leaf_bytes, node_bytes, 8, 8, LeafLayout::kSorted};
  }
  /// Leaves of this many parts, 4..31; why the default, is in README.md.
  static Geometry Parted(uint32_t parts = kLeafPartsDefault, uint32_t node_bytes = 1024) {
    return {Layout::kFixed8, 64 + 128 * parts, node_bytes, 8, 8, LeafLayout::kParted};
  }
  /// Inline up to 128 bytes: longer values make leaves of few entries, which are split often (README.md).
  static Geometry Bytes(uint32_t inline_value_bytes_max = 128) {
    return {Layout::kBytes, 4096, 4096, kKeyBytesMax, inline_value_bytes_max};
  }

  /// What a tree has if nothing else is asked for: parted leaves, where keys and values are of 8 bytes.
  static Geometry DefaultOf(Layout layout, LeafLayout leaves) {
    if (layout == Layout::kBytes) return Bytes();
    return leaves == LeafLayout::kParted ? Parted() : Fixed8();
  }
  static constexpr LeafLayout DefaultLeaves(Layout layout) {
    return layout == Layout::kFixed8 ? LeafLayout::kParted : LeafLayout::kSorted;
  }

  /// InvalidArgument naming the field, its value and range. kBytes needs pages that can always be
  /// split (format.md has the argument), for leaf_bytes and node_bytes alike:
  /// 3 * key_bytes_max + 2 * max(inline_value_bytes_max, 24) + 72 <= leaf_bytes, node_bytes.
  Status Validate() const;

  uint32_t page_bytes(Level level) const { return level == 0 ? leaf_bytes : node_bytes; }
  /// The bytes that travel: all but the lock word at the end.
  uint32_t image_bytes(Level level) const { return page_bytes(level) - 8; }
};

}  // namespace farleaf::index
