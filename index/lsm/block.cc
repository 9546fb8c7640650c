#include "index/lsm/block.h"

#include <algorithm>

#include "dsm/base/crc32c.h"
#include "index/lsm/compression.h"
#include "index/lsm/log_record.h"

namespace farleaf::index::lsm {

uint32_t BlockChecksum(uint64_t stamp, uint64_t at, std::span<const std::byte> stored) {
  std::byte place[16];
  StoreLittle(place, stamp);
  StoreLittle(place + 8, at);
  return Crc32c(stored.subspan(4), Crc32c(place));
}

Fault CheckStored(uint64_t stamp, uint64_t at, std::span<const std::byte> stored) {
  if (stored.size() < kBlockHeaderBytes || stored.size() > kRawBytesMax)
    return "block of no possible length";
  const BlockHeader header = BlockHeader::Load(stored.data());
  if (header.stored_bytes != stored.size()) return "block of another length";
  if (header.checksum != BlockChecksum(stamp, at, stored)) return "block with a wrong checksum";
  if (header.raw_bytes < kBlockHeaderBytes || header.raw_bytes > kRawBytesMax) {
    return "block of no possible raw length";
  }
  if (header.compression() > Compression::kZstd) return "block of an unknown compression";
  if (header.compression() == Compression::kNone && header.raw_bytes != header.stored_bytes) {
    return "uncompressed block whose lengths differ";
  }
  return nullptr;
}

Fault Unpack(std::span<const std::byte> stored, std::span<std::byte> raw) {
  std::memcpy(raw.data(), stored.data(), kBlockHeaderBytes);
  const auto from = stored.subspan(kBlockHeaderBytes);
  const auto to = raw.subspan(kBlockHeaderBytes);
  const Compression compression = BlockHeader::Load(stored.data()).compression();
  if (compression == Compression::kNone) {
    std::memcpy(to.data(), from.data(), to.size());
    return nullptr;
  }
  return Decompress(compression, from, to) ? nullptr : "block that cannot be decompressed";
}

namespace {

/// Whether four varints, and nothing else, are in `value`, and make a pointer.
bool IsPointer(std::string_view value, size_t dictionary_count) {
  uint64_t field[4];
  const char* at = value.data();
  const char* const end = at + value.size();
  for (uint64_t& each : field) {
    at = GetVarint(at, end, &each);
    if (!at) return false;
  }
  const auto& [dictionary, offset, bytes, value_bytes] = field;
  return at == end && dictionary < dictionary_count && offset < storage::kSegmentBytes &&
         bytes <= storage::kSegmentBytes - offset && bytes >= ValueRecordBytes(0, 0) &&
         value_bytes <= bytes - ValueRecordBytes(0, 0);
}

bool IsChild(std::string_view value, uint64_t table_bytes) {
  uint64_t units = 0, bytes = 0;
  const char* const end = value.data() + value.size();
  const char* at = GetVarint(value.data(), end, &units);
  if (at) at = GetVarint(at, end, &bytes);
  if (at != end || units > table_bytes / kBlockUnit) return false;
  const BlockPlace place{units * kBlockUnit, static_cast<uint32_t>(bytes)};
  return bytes >= kBlockHeaderBytes && bytes <= kRawBytesMax && place.at + bytes <= table_bytes &&
         place.offset() + bytes <= storage::kSegmentBytes;
}

Fault CheckEntry(const BlockHeader& header, const BlockLimits& limits, const char* at,
                 const char* end) {
  const auto tag = static_cast<uint8_t>(*at++);
  uint64_t above = tag >> internal::kTagLengthShift, ignored = 0;
  if (above == internal::kTagLengthLong) {
    at = GetVarint(at, end, &above);
    if (!at || above > kKeyBytesMax) return "entry with a bad key length";
    above += internal::kTagLengthLong;
  }
  const uint64_t suffix = header.suffix_base + above;
  if (header.prefix_bytes + suffix > kKeyBytesMax) return "entry with too long a key";
  const uint64_t rest = suffix > 4 ? suffix - 4 : 0;
  if (rest > static_cast<uint64_t>(end - at)) return "entry whose key is cut off";
  at += rest;
  if ((tag & internal::kTagSequence) != 0) {
    at = GetVarint(at, end, &ignored);
    if (!at || ignored > kSequenceMax) return "entry with a bad sequence";
  }
  if ((tag & internal::kTagExpiry) != 0) {
    at = GetVarint(at, end, &ignored);
    if (!at) return "entry with a bad expiry";
  }
  const std::string_view value(at, static_cast<size_t>(end - at));
  const unsigned kind = tag & internal::kTagKindMask;
  if (header.level > 0) {
    return kind == 0 && IsChild(value, limits.table_bytes) ? nullptr : "separator with a bad child";
  }
  switch (kind) {
    case static_cast<unsigned>(EntryKind::kValue):
      return value.size() <= kInlineValueBytesMax ? nullptr : "entry with too long a value";
    case static_cast<unsigned>(EntryKind::kPointer):
      return IsPointer(value, limits.dictionary_count) ? nullptr : "entry with a bad pointer";
    case static_cast<unsigned>(EntryKind::kDeleted):
      return value.empty() ? nullptr : "deleted entry with a value";
    default:
      return "entry of an unknown kind";
  }
}

}  // namespace

Fault Block::Check(std::span<const std::byte> raw, const BlockLimits& limits) {
  const BlockHeader header = BlockHeader::Load(raw.data());
  if (header.level != limits.level) return "block of another level";
  if (header.count == 0) return "empty block";
  if ((header.flags & BlockHeader::kReservedFlag) != 0 || header.reserved != 0) {
    return "block of an unknown format";
  }
  const uint64_t filter_bytes = uint64_t{header.filter_lines} * kFilterLineBytes;
  if (filter_bytes != 0 &&
      (header.level != 1 || header.probes() == 0 || raw.size() % kFilterLineBytes != 0)) {
    return "block with a bad filter";
  }
  const uint64_t width = (header.flags & BlockHeader::kWide) != 0 ? 4 : 2;
  const uint64_t entries = kBlockHeaderBytes + uint64_t{4} * header.count +
                           width * (header.count + 1u) + header.prefix_bytes;
  if (entries + filter_bytes > raw.size()) return "block that is cut off";
  const uint64_t entries_max = raw.size() - filter_bytes;
  const Block block(raw.data());
  uint64_t begin = block.offset(0);
  if (begin != entries) return "block with a hole";
  for (uint32_t i = 0; i < header.count; ++i) {
    const uint64_t end = block.offset(i + 1);
    if (end <= begin || end > entries_max) return "entry that is cut off";
    if (const Fault fault = CheckEntry(header, limits, block.raw_ + begin, block.raw_ + end)) {
      return fault;
    }
    begin = end;
  }
  return nullptr;
}

PackedEntry Block::entry(uint32_t i) const {
  PackedEntry entry;
  const char* at = raw_ + offset(i);
  const char* const end = raw_ + offset(i + 1);
  const auto tag = static_cast<uint8_t>(*at++);
  uint64_t above = tag >> internal::kTagLengthShift;
  if (above == internal::kTagLengthLong) [[unlikely]] {
    at = GetCheckedVarint(at, &above);
    above += internal::kTagLengthLong;
  }
  entry.suffix_bytes = Load<uint16_t>(22) + static_cast<uint32_t>(above);
  entry.rest = at;
  entry.rest_bytes = entry.suffix_bytes > 4 ? entry.suffix_bytes - 4 : 0;
  at += entry.rest_bytes;
  entry.kind = static_cast<EntryKind>(tag & internal::kTagKindMask);
  if ((tag & internal::kTagSequence) != 0) at = GetCheckedVarint(at, &entry.sequence);
  if ((tag & internal::kTagExpiry) != 0) at = GetCheckedVarint(at, &entry.expires_ms);
  entry.value = {at, static_cast<size_t>(end - at)};
  return entry;
}

PackedPointer Block::ParsePointer(std::string_view value) {
  PackedPointer pointer;
  const char* at = GetCheckedVarint(value.data(), &pointer.dictionary_index);
  at = GetCheckedVarint(at, &pointer.offset);
  at = GetCheckedVarint(at, &pointer.bytes);
  GetCheckedVarint(at, &pointer.value_bytes);
  return pointer;
}

namespace {

/// The first of `count` ascending numbers for which `before` does not hold. Without jumps that could be guessed wrong.
template <typename Before>
uint32_t FirstNot(const uint32_t* numbers, uint32_t count, const Before& before) {
  const uint32_t* first = numbers;
  while (count > 0) {
    const uint32_t half = (count + 1) / 2;
    first += before(first[half - 1]) ? half : 0;
    count -= half;
  }
  return static_cast<uint32_t>(first - numbers);
}

}  // namespace

template <typename Before>
Block::Position Block::Partition(std::string_view key, const Before& before) const {
  const uint32_t count = this->count();
  const std::string_view prefix = this->prefix();
  const size_t common = std::min(prefix.size(), key.size());
  const int order = common == 0 ? 0 : std::memcmp(key.data(), prefix.data(), common);
  if (order != 0 || key.size() < prefix.size()) return {order > 0 ? count : 0, false};
  const std::string_view suffix = key.substr(common);
  const uint32_t sought = internal::HeadOf(suffix.data(), suffix.size());
  const uint32_t* const heads = this->heads();
  uint32_t first = FirstNot(heads, count, [sought](uint32_t head) { return head < sought; });
  if (first == count || heads[first] != sought) return {first, false};
  uint32_t left = 1;
  if (first + 1 < count && heads[first + 1] == sought) {
    left += FirstNot(heads + first + 1, count - first - 1,
                     [sought](uint32_t head) { return head <= sought; });
  }
  const std::string_view rest = suffix.substr(std::min<size_t>(4, suffix.size()));
  uint32_t same_at = UINT32_MAX;
  while (left > 0) {
    const uint32_t half = left / 2, middle = first + half;
    const PackedEntry entry = this->entry(middle);
    const size_t both = std::min<size_t>(entry.rest_bytes, rest.size());
    int compared = std::memcmp(entry.rest, rest.data(), both);
    if (compared == 0 && entry.suffix_bytes != suffix.size()) {
      compared = entry.suffix_bytes < suffix.size() ? -1 : 1;
    }
    const bool goes_right = compared < 0 || (compared == 0 && before(entry.sequence));
    if (goes_right) {
      first = middle + 1;
      left -= half + 1;
    } else {
      if (compared == 0) same_at = middle;
      left = half;
    }
  }
  return {first, same_at == first};
}

Block::Position Block::LowerBound(std::string_view key, Sequence sequence) const {
  return Partition(key, [sequence](Sequence of_entry) { return of_entry > sequence; });
}

uint32_t Block::ChildOf(std::string_view key, Sequence sequence) const {
  const uint64_t rank = SeparatorRank(sequence);
  const uint32_t right =
      Partition(key, [rank](uint64_t of_entry) { return of_entry <= rank; }).index;
  return right == 0 ? 0 : right - 1;
}

BlockPlace Block::Child(uint32_t i) const { return ParseChild(entry(i).value); }

}  // namespace farleaf::index::lsm
