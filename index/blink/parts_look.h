// LookAtParts: parts of a parted leaf copied from where it lies, by loads, as a READ would copy them.
//
// They are believed by what a READ's are believed by (parted_leaf.h): each part's check says that its words stood there
// together, its digest of which leaf it is, and the structure, the same in all, that the leaf was not written whole between
// the first part's copy and the last one's. So a look asks for neither the lock word nor the version, which a look at
// byte strings needs (leaf_peek.h).
//
// Thread rule: one owner; the leaf is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dsm/transport.h"
#include "index/blink/part_window.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

/// `image`: the page without its lock word, into which the parts of `window` are copied; `range` and `digest`: of the fences that
/// the leaf should have. Adds READs and bytes to `read`. Nullopt: another leaf, or one that is being written. `Page`: MappedPage,
/// or what a test puts in its place.
template <typename Page>
std::optional<LeafParts> LookAtParts(const Page& leaf, PartMask window, LeafRange range,
                                     uint64_t digest, std::span<std::byte> image,
                                     dsm::FabricCounts* read) {
  ForEachRun(window, [&](size_t first, size_t count) {
    const size_t offset = first * kPartBytes, bytes = count * kPartBytes;
    leaf.Copy(offset, bytes, image.data() + offset);
    ++read->reads;
    read->bytes_read += bytes;
  });
  const LeafParts parts(image, window, range);
  if (!parts.Fits(digest)) return std::nullopt;
  return parts;
}

}  // namespace farleaf::index
