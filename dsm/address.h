// GlobalAddress: a byte of pooled memory, as memory server id (16 bit) and offset (48 bit) in one
// 64-bit word, so that it can be stored, compared and swapped in one access (RF-tree paper, 3.2,
// "Pointer Representation").
//
// Invariant: the all-zero word is the null address (offset 0 of server 0 is its region header and
// never an object).
// Thread rule: a value type.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "dsm/base/check.h"
#include "dsm/base/random.h"

namespace farleaf::dsm {

using ServerId = uint16_t;

class GlobalAddress {
 public:
  static constexpr int kOffsetBits = 48;
  static constexpr uint64_t kOffsetMax = (uint64_t{1} << kOffsetBits) - 1;

  constexpr GlobalAddress() = default;
  GlobalAddress(ServerId server, uint64_t offset)
      : word_(uint64_t{server} << kOffsetBits | offset) {
    FARLEAF_DCHECK(offset <= kOffsetMax, offset);
  }
  static constexpr GlobalAddress FromWord(uint64_t word) {
    GlobalAddress address;
    address.word_ = word;
    return address;
  }

  constexpr uint64_t word() const { return word_; }
  constexpr ServerId server() const { return static_cast<ServerId>(word_ >> kOffsetBits); }
  constexpr uint64_t offset() const { return word_ & kOffsetMax; }
  constexpr bool is_null() const { return word_ == 0; }
  GlobalAddress operator+(uint64_t bytes) const { return {server(), offset() + bytes}; }
  constexpr auto operator<=>(const GlobalAddress&) const = default;

  /// "2:0x1a400": server, then offset.
  std::string ToString() const {
    char text[32];
    std::snprintf(text, sizeof text, "%u:0x%llx", server(),
                  static_cast<unsigned long long>(offset()));
    return text;
  }

 private:
  uint64_t word_ = 0;
};
static_assert(sizeof(GlobalAddress) == 8);

inline std::ostream& operator<<(std::ostream& out, GlobalAddress address) {
  return out << address.ToString();
}

}  // namespace farleaf::dsm

template <>
struct std::hash<farleaf::dsm::GlobalAddress> {
  size_t operator()(farleaf::dsm::GlobalAddress a) const { return farleaf::Mix64(a.word()); }
};
