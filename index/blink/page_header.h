// The header that every page of a tree begins with, and the version at its end (index/blink/node.h
// has the picture, format.md a worked example).
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dsm/address.h"
#include "dsm/base/bytes.h"

namespace farleaf::index::internal {

/// Bytes 0..31 of a page as they stand. For offsets and static checks: pages are read and written
/// field by field, since an image need not be aligned.
struct PageHeader {
  uint32_t checksum;
  uint16_t tree;
  uint8_t level;
  uint8_t flags;
  uint64_t version;
  uint64_t right;
  uint16_t count;
  uint16_t layout_words[3];
};
static_assert(sizeof(PageHeader) == 32);
static_assert(offsetof(PageHeader, tree) == 4 && offsetof(PageHeader, level) == 6 &&
              offsetof(PageHeader, flags) == 7 && offsetof(PageHeader, version) == 8 &&
              offsetof(PageHeader, right) == 16 && offsetof(PageHeader, count) == 24 &&
              offsetof(PageHeader, layout_words) == 26);

inline constexpr size_t kTailBytes = 8;  ///< the second version, at the end of the image

inline constexpr uint8_t kFlagDead = 1;
inline constexpr uint8_t kFlagNoHigh = 2;
inline constexpr uint8_t kFlagNoLow = 4;
inline constexpr uint8_t kFlagsAll = kFlagDead | kFlagNoHigh | kFlagNoLow;

template <std::unsigned_integral T>
T Field(const std::byte* page, size_t offset) {
  return LoadLittle<T>(page + offset);
}
inline uint8_t PageFlags(const std::byte* page) {
  return Field<uint8_t>(page, offsetof(PageHeader, flags));
}
inline uint8_t PageLevel(const std::byte* page) {
  return Field<uint8_t>(page, offsetof(PageHeader, level));
}
inline size_t PageCount(const std::byte* page) {
  return Field<uint16_t>(page, offsetof(PageHeader, count));
}
inline void SetPageCount(std::byte* page, size_t count) {
  StoreLittle(page + offsetof(PageHeader, count), static_cast<uint16_t>(count));
}
inline std::string_view PageChars(const std::byte* page, size_t offset, size_t length) {
  return {reinterpret_cast<const char*>(page) + offset, length};
}

}  // namespace farleaf::index::internal
