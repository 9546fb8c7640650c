// LeafCodec: between a page as it stands in the pool, its *raw image*, and the sorted node that the
// tree works on, its *node image*. Both are image_bytes(level) long.
//
// An internal node, and a leaf of LeafLayout::kSorted, stands in the pool as its node: the two images
// are the same bytes, opening checks them in place and packing is nothing. Of a parted leaf both
// differ.
//
// Seals and checksums are the raw image's: a node image that was changed carries the version, and a
// checksum only where it is the raw image as well. Redo records hold differences of raw images, and a
// lock that is handed over brings the raw image along.
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "index/blink/geometry.h"
#include "index/blink/leaf_homes.h"
#include "index/blink/node.h"

namespace farleaf::index {

/// Whether a page of this level stands in the pool as its node.
constexpr bool StandsAsNode(const Geometry& geometry, Level level) {
  return level > 0 || geometry.leaf_layout == LeafLayout::kSorted;
}

/// Verifies a leaf's raw image and builds its node, with the raw image's version, in `node`, which is
/// no part of `raw`. Not kValid: `node` holds anything. REQUIRES: !StandsAsNode(geometry, 0).
OpenOutcome OpenLeaf(const Geometry& geometry, std::span<const std::byte> raw,
                     std::span<std::byte> node);
/// Builds the raw image of a node that has its version (SealNode). Entries stay where they stood in
/// `previous_raw`, so that few bytes change; empty: a new page. `raw` is no part of the others.
/// REQUIRES: !StandsAsNode(geometry, 0).
void PackLeaf(const Geometry& geometry, std::span<const std::byte> node,
              std::span<const std::byte> previous_raw, std::span<std::byte> raw,
              Placement placement = Placement::kOrdered);
/// OpenLeaf whose node takes the raw image's place, if kValid; else `image` stays as it is.
OpenOutcome OpenLeafInPlace(const Geometry& geometry, std::span<std::byte> image);
/// PackLeaf of a new page, likewise.
void PackLeafInPlace(const Geometry& geometry, std::span<std::byte> image);

/// Makes the node of what a READ of a whole page brought. Not kValid: `image` stays raw.
inline OpenOutcome OpenPage(const Geometry& geometry, Level level, std::span<std::byte> image) {
  if (StandsAsNode(geometry, level)) [[likely]] {
    return ConstNode::Open(geometry, image);
  }
  return OpenLeafInPlace(geometry, image);
}

/// Makes the raw image of a new page's node, in its place.
inline void PackNewPage(const Geometry& geometry, Level level, std::span<std::byte> image) {
  if (!StandsAsNode(geometry, level)) PackLeafInPlace(geometry, image);
}

/// Gives a node its version, after its last change and before it is packed or written.
inline void SealNode(Node node, uint64_t version) {
  if (StandsAsNode(node.geometry(), node.level())) [[likely]] {
    node.Seal(version);
  } else {
    node.SetVersion(version);
  }
}

/// Whether a raw image that is no leaf of `geometry` is a whole leaf of the other layout: the page has
/// been reused by another tree.
bool IsOtherLayout(const Geometry& geometry, std::span<const std::byte> raw);
/// At least the version of every image that was written to this page, whatever of them is there.
uint64_t LastVersion(const Geometry& geometry, Level level, std::span<const std::byte> raw);
/// The tree that a raw image names, whether or not it is whole.
TreeId RawTree(const Geometry& geometry, Level level, std::span<const std::byte> raw);

}  // namespace farleaf::index
