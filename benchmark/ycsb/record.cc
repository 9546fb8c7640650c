#include "benchmark/ycsb/record.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "benchmark/ycsb/distributions.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {

namespace {

constexpr uint64_t kVersionMask = 0xff'ffff;
constexpr uint64_t kFillerOffsets = 4096;
constexpr std::string_view kKeyPrefix = "user";

// Header of a byte-string value, little-endian.
constexpr size_t kNumberAt = 0, kVersionAt = 8, kLengthAt = 16, kCrcAt = 20;

/// Over everything but the CRC's own four bytes.
uint32_t ValueCrc(std::string_view key, std::string_view value) {
  uint32_t crc = Crc32c(AsBytes(key));
  crc = Crc32c(AsBytes(value.substr(0, kCrcAt)), crc);
  return Crc32c(AsBytes(value.substr(kValueHeaderBytes)), crc);
}

std::string Hex(uint64_t word) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(word));
  return text;
}

}  // namespace

RecordCodec::RecordCodec(KeyLayout layout, InsertOrder order, uint64_t zero_padding,
                         uint64_t value_bytes)
    : layout_(layout), order_(order), zero_padding_(zero_padding), value_bytes_(value_bytes) {
  if (layout == KeyLayout::kFixed8) return;
  FARLEAF_CHECK(value_bytes >= kValueHeaderBytes, value_bytes);
  Random random(0x66617266);
  for (uint64_t i = 0; i < value_bytes + kFillerOffsets; ++i) {
    filler_.push_back(static_cast<char>(' ' + random.Below(95)));
  }
}

void RecordCodec::MakeKey(uint64_t number, std::string* key) const {
  const bool hashed = order_ == InsertOrder::kHashed;
  if (layout_ == KeyLayout::kFixed8) {
    key->resize(8);
    StoreBig64(key->data(), hashed ? Mix64(number) : number);
    return;
  }
  char digits[24];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, hashed ? YcsbHash(number) : number).ptr;
  const auto count = static_cast<size_t>(end - digits);
  key->assign(kKeyPrefix);
  if (count < zero_padding_) key->append(zero_padding_ - count, '0');
  key->append(digits, count);
}

uint64_t RecordCodec::Fixed8Value(uint64_t key, uint64_t version) const {
  version &= kVersionMask;
  return Mix64(key ^ Mix64(version)) << 24 | version;
}

void RecordCodec::MakeValue(std::string_view key, uint64_t number, uint64_t version,
                            std::string* value) const {
  value->resize(value_bytes_);
  if (layout_ == KeyLayout::kFixed8) {
    StoreBig64(value->data(), Fixed8Value(LoadBig64(key.data()), version));
    return;
  }
  StoreLittle<uint64_t>(value->data() + kNumberAt, number);
  StoreLittle<uint64_t>(value->data() + kVersionAt, version);
  StoreLittle<uint32_t>(value->data() + kLengthAt, static_cast<uint32_t>(value_bytes_));
  filler_.copy(value->data() + kValueHeaderBytes, value_bytes_ - kValueHeaderBytes,
               Mix64(number ^ version) % kFillerOffsets);
  StoreLittle<uint32_t>(value->data() + kCrcAt, ValueCrc(key, *value));
}

std::optional<std::string> RecordCodec::Check(std::string_view key, std::string_view value) const {
  if (layout_ == KeyLayout::kBytes) return CheckBytes(key, value);
  if (key.size() != 8) return "expected a key of 8 bytes, found " + std::to_string(key.size());
  if (value.size() != 8) return "expected 8 bytes, found " + std::to_string(value.size());
  const uint64_t found = LoadBig64(value.data());
  const uint64_t expected = Fixed8Value(LoadBig64(key.data()), found & kVersionMask);
  if (found == expected) return std::nullopt;
  return "expected " + Hex(expected) + " (version " + std::to_string(found & kVersionMask) +
         "), found " + Hex(found);
}

std::optional<std::string> RecordCodec::CheckBytes(std::string_view key,
                                                   std::string_view value) const {
  // Another run may have loaded other sizes, so the length is the header's own.
  if (value.size() < kValueHeaderBytes) {
    return "expected at least " + std::to_string(kValueHeaderBytes) + " bytes, found " +
           std::to_string(value.size()) + ": " + Printable(value);
  }
  const auto length = LoadLittle<uint32_t>(value.data() + kLengthAt);
  if (length != value.size()) {
    return "expected the " + std::to_string(length) + " bytes that its header tells, found " +
           std::to_string(value.size()) + ": " + Printable(value);
  }
  const auto number = LoadLittle<uint64_t>(value.data() + kNumberAt);
  std::string own_key;
  MakeKey(number, &own_key);
  if (own_key != key) {
    return "expected a value of this key, found one of key " + Printable(own_key);
  }
  const auto found = LoadLittle<uint32_t>(value.data() + kCrcAt);
  const uint32_t expected = ValueCrc(key, value);
  if (found == expected) return std::nullopt;
  return "expected checksum " + Hex(expected) + ", found " + Hex(found) + " in " + Printable(value);
}

uint64_t RecordCodec::VersionOf(std::string_view value) const {
  return layout_ == KeyLayout::kFixed8 ? LoadBig64(value.data()) & kVersionMask
                                       : LoadLittle<uint64_t>(value.data() + kVersionAt);
}

std::optional<uint64_t> RecordCodec::NumberOfOrderedKey(std::string_view key) const {
  if (order_ == InsertOrder::kHashed || layout_ == KeyLayout::kBytes || key.size() != 8) {
    return std::nullopt;  // decimal numbers without padding do not sort like numbers
  }
  return LoadBig64(key.data());
}

std::string Printable(std::string_view bytes) {
  constexpr size_t kShownMax = 48;
  const bool text =
      std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) { return c >= ' ' && c < 127; });
  if (bytes.size() == 8 && !text) return Hex(LoadBig64(bytes.data()));
  std::string shown = "'";
  for (unsigned char c : bytes.substr(0, kShownMax)) {
    shown += c >= ' ' && c < 127 ? static_cast<char>(c) : '.';
  }
  shown += "'";
  if (bytes.size() > kShownMax) shown += "… (" + std::to_string(bytes.size()) + " bytes)";
  return shown;
}

}  // namespace farleaf::ycsb
