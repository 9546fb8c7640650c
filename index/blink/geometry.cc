#include "index/blink/geometry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dsm/base/status.h"
#include "index/blink/node.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

namespace {

Status OutOfRange(std::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  return Status::InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                                 ", must be " + std::to_string(min) + ".." + std::to_string(max));
}

Status ValidatePageBytes(std::string_view field, uint32_t bytes) {
  if (bytes < kPageBytesMin || bytes > kPageBytesMax) {
    return OutOfRange(field, bytes, kPageBytesMin, kPageBytesMax);
  }
  if (bytes % 64 == 0) return Status::Ok();
  return Status::InvalidArgument(std::string(field) + " is " + std::to_string(bytes) +
                                 ", must be a multiple of 64");
}

Status ValidateLeafLayout(const Geometry& geometry) {
  if (geometry.leaf_layout == LeafLayout::kSorted) return Status::Ok();
  if (geometry.leaf_layout != LeafLayout::kParted) {
    return OutOfRange("leaf_layout", static_cast<uint8_t>(geometry.leaf_layout), 1, 2);
  }
  if (geometry.layout != Layout::kFixed8) {
    return Status::InvalidArgument(
        "leaf_layout parted is for trees of layout fixed8, not of byte strings");
  }
  const uint32_t parts = (geometry.leaf_bytes - kLeafTrailerBytes) / kPartBytes;
  if (geometry.leaf_bytes == kLeafTrailerBytes + parts * kPartBytes && parts >= kLeafPartsMin &&
      parts <= kLeafPartsMax) {
    return Status::Ok();
  }
  return Status::InvalidArgument(
      "leaf_bytes of a parted leaf is " + std::to_string(geometry.leaf_bytes) +
      ", must be 64 + 128 * parts with parts of 4..31; or ask for sorted leaves");
}

}  // namespace

Status Geometry::Validate() const {
  if (layout != Layout::kFixed8 && layout != Layout::kBytes) {
    return OutOfRange("layout", static_cast<uint8_t>(layout), 1, 2);
  }
  FARLEAF_RETURN_IF_ERROR(ValidatePageBytes("leaf_bytes", leaf_bytes));
  FARLEAF_RETURN_IF_ERROR(ValidatePageBytes("node_bytes", node_bytes));
  FARLEAF_RETURN_IF_ERROR(ValidateLeafLayout(*this));
  if (layout == Layout::kFixed8) {
    if (key_bytes_max != 8) return OutOfRange("key_bytes_max of fixed8", key_bytes_max, 8, 8);
    if (inline_value_bytes_max != 8) {
      return OutOfRange("inline_value_bytes_max of fixed8", inline_value_bytes_max, 8, 8);
    }
    return Status::Ok();
  }
  if (key_bytes_max < 1 || key_bytes_max > kKeyBytesMax) {
    return OutOfRange("key_bytes_max", key_bytes_max, 1, kKeyBytesMax);
  }
  if (inline_value_bytes_max > leaf_bytes) {
    return OutOfRange("inline_value_bytes_max", inline_value_bytes_max, 0, leaf_bytes);
  }
  const uint32_t value_max = std::max<uint32_t>(inline_value_bytes_max, kOutOfLineBytes);
  const uint32_t needed = 3 * key_bytes_max + 2 * value_max + 72;
  for (const auto& [field, bytes] :
       {std::pair("leaf_bytes", leaf_bytes), std::pair("node_bytes", node_bytes)}) {
    if (needed <= bytes) continue;
    return Status::InvalidArgument(
        "key_bytes_max " + std::to_string(key_bytes_max) + " with inline_value_bytes_max " +
        std::to_string(inline_value_bytes_max) + " needs " + field + " of " +
        std::to_string(needed) + ", not " + std::to_string(bytes) +
        ": lower one of them or take larger pages");
  }
  return Status::Ok();
}

}  // namespace farleaf::index
