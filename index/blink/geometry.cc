#include "index/blink/geometry.h"

#include <algorithm>
#include <string>

#include "index/blink/node.h"

namespace farleaf::index {

namespace {

Status OutOfRange(std::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  return Status::InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                                 ", must be " + std::to_string(min) + ".." + std::to_string(max));
}

}  // namespace

Status Geometry::Validate() const {
  if (layout != Layout::kFixed8 && layout != Layout::kBytes) {
    return OutOfRange("layout", static_cast<uint8_t>(layout), 1, 2);
  }
  if (page_bytes < kPageBytesMin || page_bytes > kPageBytesMax) {
    return OutOfRange("page_bytes", page_bytes, kPageBytesMin, kPageBytesMax);
  }
  if (page_bytes % 64 != 0) {
    return Status::InvalidArgument("page_bytes is " + std::to_string(page_bytes) +
                                   ", must be a multiple of 64");
  }
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
  if (inline_value_bytes_max > page_bytes) {
    return OutOfRange("inline_value_bytes_max", inline_value_bytes_max, 0, page_bytes);
  }
  const uint32_t value_max = std::max<uint32_t>(inline_value_bytes_max, kOutOfLineBytes);
  const uint32_t needed = 3 * key_bytes_max + 2 * value_max + 72;
  if (needed > page_bytes) {
    return Status::InvalidArgument(
        "key_bytes_max " + std::to_string(key_bytes_max) + " with inline_value_bytes_max " +
        std::to_string(inline_value_bytes_max) + " needs page_bytes of " + std::to_string(needed) +
        ", not " + std::to_string(page_bytes) + ": lower one of them or take larger pages");
  }
  return Status::Ok();
}

}  // namespace farleaf::index
