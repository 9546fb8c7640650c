// Fixed-width little-endian and big-endian access to byte spans, and a bounds-checked reader and
// writer for everything that is parsed from or sent to the outside.
//
// Thread rule: pure functions and value types.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/check.h"

namespace farleaf {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian and loaded as they stand; test BytesTest.RoundTrip");

template <std::unsigned_integral T>
T LoadLittle(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <std::unsigned_integral T>
void StoreLittle(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Big-endian 8 bytes: the byte order in which fixed8 keys sort like their integers.
inline uint64_t LoadBig64(const void* from) {
  return __builtin_bswap64(LoadLittle<uint64_t>(from));
}
inline void StoreBig64(void* to, uint64_t value) {
  StoreLittle<uint64_t>(to, __builtin_bswap64(value));
}

inline std::string_view AsChars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> AsBytes(std::string_view chars) {
  return {reinterpret_cast<const std::byte*>(chars.data()), chars.size()};
}

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Reads fields from the front of a span. After the first short read every later read fails too, so
/// that a parser may read all its fields and check ok() once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  size_t remaining() const { return rest_.size(); }

  template <std::unsigned_integral T>
  T Read() {
    if (rest_.size() < sizeof(T)) {
      Fail();
      return 0;
    }
    T value = LoadLittle<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  std::span<const std::byte> ReadBytes(size_t count) {
    if (rest_.size() < count) {
      Fail();
      return {};
    }
    auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

/// Appends little-endian fields to a string buffer.
class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  template <std::unsigned_integral T>
  void Write(T value) {
    char raw[sizeof(T)];
    StoreLittle(raw, value);
    out_->append(raw, sizeof raw);
  }
  void WriteBytes(std::span<const std::byte> bytes) { out_->append(AsChars(bytes)); }
  void WriteBytes(std::string_view bytes) { out_->append(bytes); }

 private:
  std::string* out_;
};

}  // namespace farleaf
