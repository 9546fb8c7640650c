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

// A short value, little-endian.
constexpr size_t kShortVersionAt = 0, kShortHashAt = 4;
constexpr uint64_t kShortHashMask = (uint64_t{1} << 40) - 1;

/// Over everything but the CRC's own four bytes.
uint32_t ValueCrc(std::string_view key, std::string_view value) {
  uint32_t crc = Crc32c(AsBytes(key));
  crc = Crc32c(AsBytes(value.substr(0, kCrcAt)), crc);
  return Crc32c(AsBytes(value.substr(kValueHeaderBytes)), crc);
}

uint64_t ShortHash(std::string_view key, uint32_t version) {
  return HashKey(key, version) & kShortHashMask;
}
uint64_t ShortHashIn(std::string_view value) {
  return LoadLittle<uint32_t>(value.data() + kShortHashAt) |
         uint64_t{LoadLittle<uint8_t>(value.data() + kShortHashAt + 4)} << 32;
}

std::string Hex(uint64_t word) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(word));
  return text;
}

}  // namespace

RecordCodec::RecordCodec(KeyLayout layout, InsertOrder order, uint64_t zero_padding,
                         uint64_t value_bytes, KvMix mix)
    : layout_(layout),
      order_(order),
      zero_padding_(zero_padding),
      value_bytes_(value_bytes),
      mix_(mix) {
  if (layout == KeyLayout::kFixed8) return;
  if (mix == KvMix::kNone) {
    FARLEAF_CHECK(value_bytes >= kValueHeaderBytes, value_bytes);
  } else {
    FARLEAF_CHECK(zero_padding == kMixKeyDigits, zero_padding);
    value_bytes_ = kPairBytes.back() - kMixKeyBytes;
  }
  Random random(0x66617266);
  for (uint64_t i = 0; i < value_bytes_ + kFillerOffsets; ++i) {
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

uint64_t RecordCodec::ValueBytes(std::string_view key) const {
  if (mix_ == KvMix::kNone) return value_bytes_;
  return kPairBytes[static_cast<size_t>(SizeOfKey(mix_, key))] - kMixKeyBytes;
}

void RecordCodec::MakeValue(std::string_view key, uint64_t number, uint64_t version,
                            std::string* value) const {
  const uint64_t value_bytes = ValueBytes(key);
  value->resize(value_bytes);
  if (layout_ == KeyLayout::kFixed8) {
    StoreBig64(value->data(), Fixed8Value(LoadBig64(key.data()), version));
    return;
  }
  if (value_bytes < kValueHeaderBytes) {
    const auto short_version = static_cast<uint32_t>(version);
    const uint64_t hash = ShortHash(key, short_version);
    StoreLittle<uint32_t>(value->data() + kShortVersionAt, short_version);
    StoreLittle<uint32_t>(value->data() + kShortHashAt, static_cast<uint32_t>(hash));
    StoreLittle<uint8_t>(value->data() + kShortHashAt + 4, static_cast<uint8_t>(hash >> 32));
    return;
  }
  StoreLittle<uint64_t>(value->data() + kNumberAt, number);
  StoreLittle<uint64_t>(value->data() + kVersionAt, version);
  StoreLittle<uint32_t>(value->data() + kLengthAt, static_cast<uint32_t>(value_bytes));
  filler_.copy(value->data() + kValueHeaderBytes, value_bytes - kValueHeaderBytes,
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
  if (mix_ != KvMix::kNone) {
    if (key.size() != kMixKeyBytes) {
      return "expected a key of " + std::to_string(kMixKeyBytes) + " bytes, found " +
             std::to_string(key.size());
    }
    const uint64_t expected_bytes = ValueBytes(key);
    if (value.size() != expected_bytes) {
      return "expected " + std::to_string(expected_bytes) +
             " bytes (farleaf.kvmix=" + std::string(KvMixName(mix_)) + "), found " +
             std::to_string(value.size()) + ": " + Printable(value);
    }
    if (expected_bytes < kValueHeaderBytes) return CheckShort(key, value);
  }
  // Without a mix another run may have loaded other sizes, so the length is the header's own.
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

std::optional<std::string> RecordCodec::CheckShort(std::string_view key,
                                                   std::string_view value) const {
  const auto version = LoadLittle<uint32_t>(value.data() + kShortVersionAt);
  const uint64_t expected = ShortHash(key, version), found = ShortHashIn(value);
  if (found == expected) return std::nullopt;
  return "expected hash " + Hex(expected) + " (version " + std::to_string(version) + "), found " +
         Hex(found);
}

uint64_t RecordCodec::VersionOf(std::string_view value) const {
  if (layout_ == KeyLayout::kBytes && value.size() < kValueHeaderBytes) {
    return LoadLittle<uint32_t>(value.data() + kShortVersionAt);
  }
  return layout_ == KeyLayout::kFixed8 ? LoadBig64(value.data()) & kVersionMask
                                       : LoadLittle<uint64_t>(value.data() + kVersionAt);
}

std::optional<uint64_t> RecordCodec::NumberOfOrderedKey(std::string_view key) const {
  if (order_ == InsertOrder::kHashed) return std::nullopt;
  if (layout_ == KeyLayout::kFixed8) {
    return key.size() == 8 ? std::optional(LoadBig64(key.data())) : std::nullopt;
  }
  // Decimal numbers sort like numbers if all have as many digits.
  const bool padded = zero_padding_ >= kMixKeyDigits && key.starts_with(kKeyPrefix) &&
                      key.size() == kKeyPrefix.size() + zero_padding_;
  if (!padded) return std::nullopt;
  uint64_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [stopped, error] = std::from_chars(key.data() + kKeyPrefix.size(), end, number);
  return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
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
