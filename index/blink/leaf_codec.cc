#include "index/blink/leaf_codec.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "index/blink/page_header.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

namespace {

/// Where the page header stands in a raw image.
const std::byte* RawHeader(const Geometry& geometry, Level level, std::span<const std::byte> raw) {
  if (StandsAsNode(geometry, level)) return raw.data();
  return raw.data() + PartsOf(static_cast<uint32_t>(raw.size()) + 8) * kPartBytes;  // the trailer
}

}  // namespace

OpenOutcome OpenLeaf(const Geometry& geometry, std::span<const std::byte> raw,
                     std::span<std::byte> node) {
  FARLEAF_CHECK(!StandsAsNode(geometry, 0), "no parted leaf", geometry.leaf_bytes);
  return OpenPartedLeaf(geometry, raw, node);
}

void PackLeaf(const Geometry& geometry, std::span<const std::byte> node,
              std::span<const std::byte> previous_raw, std::span<std::byte> raw,
              Placement placement) {
  FARLEAF_CHECK(!StandsAsNode(geometry, 0), "no parted leaf", geometry.leaf_bytes);
  PackPartedLeaf(geometry, ConstNode(geometry, node), previous_raw, raw, placement);
}

OpenOutcome OpenLeafInPlace(const Geometry& geometry, std::span<std::byte> image) {
  alignas(16) std::byte node[kPageBytesMax];
  const OpenOutcome outcome = OpenLeaf(geometry, image, std::span(node).first(image.size()));
  if (outcome == OpenOutcome::kValid) std::memcpy(image.data(), node, image.size());
  return outcome;
}

void PackLeafInPlace(const Geometry& geometry, std::span<std::byte> image) {
  alignas(16) std::byte raw[kPageBytesMax];
  PackLeaf(geometry, image, {}, std::span(raw).first(image.size()));
  std::memcpy(image.data(), raw, image.size());
}

bool IsOtherLayout(const Geometry& geometry, std::span<const std::byte> raw) {
  if (!StandsAsNode(geometry, 0)) return Crc32c(raw.subspan(4)) == LoadLittle<uint32_t>(raw.data());
  Geometry other = geometry;
  other.layout = Layout::kFixed8;
  other.leaf_layout = LeafLayout::kParted;
  other.key_bytes_max = other.inline_value_bytes_max = 8;
  if (!other.Validate().ok()) return false;  // no parted leaf has this size
  alignas(16) std::byte node[kPageBytesMax];
  return OpenPartedLeaf(other, raw, std::span(node).first(raw.size())) == OpenOutcome::kValid;
}

uint64_t LastVersion(const Geometry& geometry, Level level, std::span<const std::byte> raw) {
  // Of a page that is half-written each version word holds one that was written; the head may also be
  // that of the page's last life.
  const auto head = LoadLittle<uint64_t>(RawHeader(geometry, level, raw) +
                                         offsetof(internal::PageHeader, version));
  const auto tail = LoadLittle<uint64_t>(raw.data() + raw.size() - internal::kTailBytes);
  return std::max(head, tail);
}

TreeId RawTree(const Geometry& geometry, Level level, std::span<const std::byte> raw) {
  return LoadLittle<uint16_t>(RawHeader(geometry, level, raw) +
                              offsetof(internal::PageHeader, tree));
}

}  // namespace farleaf::index
