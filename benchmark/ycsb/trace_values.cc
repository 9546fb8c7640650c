#include "benchmark/ycsb/trace_values.h"

#include <algorithm>
#include <cstring>

#include "benchmark/ycsb/kv_mix.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {

namespace {

// As RecordCodec's header, with the mark in place of the key number, which is never as large.
constexpr uint64_t kTraceMark = 0x3165'6361'7254'6c66;  // "flTrace1"
constexpr size_t kMarkAt = 0, kTraceVersionAt = 8, kTraceLengthAt = 16, kTraceCrcAt = 20;
constexpr uint64_t kLoadedNumbersMax = uint64_t{1} << 40;
constexpr uint64_t kHashedValueBytes = 9;
constexpr uint64_t kFillerBytes = 64 << 10;
constexpr uint64_t kTinySeed = 0x74696e79;

uint32_t TraceCrc(std::string_view key, std::string_view value) {
  uint32_t crc = Crc32c(AsBytes(key));
  crc = Crc32c(AsBytes(value.substr(0, kTraceCrcAt)), crc);
  return Crc32c(AsBytes(value.substr(kValueHeaderBytes)), crc);
}

}  // namespace

TraceValues::TraceValues(const RecordCodec* codec) : codec_(*codec) {
  Random random(0x7472616365);
  for (uint64_t i = 0; i < kFillerBytes; ++i) {
    filler_.push_back(static_cast<char>(' ' + random.Below(95)));
  }
}

void TraceValues::Fill(uint64_t offset, uint64_t from, std::string* value) const {
  offset %= kFillerBytes;
  while (from < value->size()) {
    const uint64_t count = std::min<uint64_t>(value->size() - from, kFillerBytes - offset);
    filler_.copy(value->data() + from, count, offset);
    from += count;
    offset = 0;
  }
}

void TraceValues::Make(std::string_view key, uint64_t version, uint64_t bytes,
                       std::string* value) const {
  if (codec_.layout() == KeyLayout::kFixed8) {
    FARLEAF_CHECK(bytes == 8, bytes);
    return codec_.MakeValue(key, 0, version, value);
  }
  value->resize(bytes);
  if (bytes < kHashedValueBytes) {
    const uint64_t hash = HashKey(key, kTinySeed);
    std::memcpy(value->data(), &hash, bytes);
    return;
  }
  if (bytes < kValueHeaderBytes) {
    const auto short_version = static_cast<uint32_t>(version);
    const uint64_t hash = HashKey(key, short_version);
    std::memcpy(value->data(), &short_version, 4);
    std::memcpy(value->data() + 4, &hash, 5);
    return Fill(hash, kHashedValueBytes, value);
  }
  StoreLittle<uint64_t>(value->data() + kMarkAt, kTraceMark);
  StoreLittle<uint64_t>(value->data() + kTraceVersionAt, version);
  StoreLittle<uint32_t>(value->data() + kTraceLengthAt, static_cast<uint32_t>(bytes));
  Fill(Mix64(version), kValueHeaderBytes, value);
  StoreLittle<uint32_t>(value->data() + kTraceCrcAt, TraceCrc(key, *value));
}

ValueOrigin TraceValues::Check(std::string_view key, std::string_view value,
                               std::string* problem) const {
  if (codec_.layout() == KeyLayout::kBytes && value.size() < kValueHeaderBytes) {
    uint32_t version = 0;
    std::memcpy(&version, value.data(), std::min<size_t>(value.size(), sizeof version));
    std::string own;
    Make(key, version, value.size(), &own);
    if (own == value) return ValueOrigin::kOwn;
    *problem = "expected a value that ycsb has written, found " + Printable(value);
    return ValueOrigin::kForeign;
  }
  if (codec_.layout() == KeyLayout::kBytes &&
      LoadLittle<uint64_t>(value.data() + kMarkAt) == kTraceMark) {
    return CheckMarked(key, value, problem);
  }
  auto wrong = codec_.Check(key, value);
  if (!wrong) return ValueOrigin::kOwn;
  *problem = std::move(*wrong);
  const bool loaded = codec_.layout() == KeyLayout::kBytes &&
                      LoadLittle<uint64_t>(value.data() + kMarkAt) < kLoadedNumbersMax &&
                      LoadLittle<uint32_t>(value.data() + kTraceLengthAt) == value.size();
  return loaded ? ValueOrigin::kDamaged : ValueOrigin::kForeign;
}

ValueOrigin TraceValues::CheckMarked(std::string_view key, std::string_view value,
                                     std::string* problem) const {
  const auto length = LoadLittle<uint32_t>(value.data() + kTraceLengthAt);
  if (length != value.size()) {
    *problem = "expected the " + std::to_string(length) + " bytes that its header tells, found " +
               std::to_string(value.size()) + ": " + Printable(value);
    return ValueOrigin::kDamaged;
  }
  const auto found = LoadLittle<uint32_t>(value.data() + kTraceCrcAt);
  const uint32_t expected = TraceCrc(key, value);
  if (found == expected) return ValueOrigin::kOwn;
  *problem = "expected checksum " + std::to_string(expected) + ", found " + std::to_string(found) +
             " in " + Printable(value);
  return ValueOrigin::kDamaged;
}

}  // namespace farleaf::ycsb
