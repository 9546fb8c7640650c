#include "dsm/redo_record.h"

#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c_few.h"

namespace farleaf::dsm {

namespace {

constexpr size_t kWord = 8;
/// In the place of a RedoKind: kChange, and the short header.
constexpr uint8_t kPlainChange = kRedoKindMax + 1;

struct Range {
  size_t offset = 0;
  std::span<const std::byte> bytes;
};

/// The range that `rest` begins with; nullopt if that is none.
std::optional<Range> FirstRange(std::span<const std::byte> rest) {
  if (rest.size() < kRedoRangeHeaderBytes) return std::nullopt;
  const size_t offset = LoadLittle<uint16_t>(rest.data());
  const size_t length = LoadLittle<uint16_t>(rest.data() + 2);
  if (LoadLittle<uint32_t>(rest.data() + 4) != 0) return std::nullopt;
  if (offset % kWord != 0 || length % kWord != 0 || length == 0) return std::nullopt;
  if (length > rest.size() - kRedoRangeHeaderBytes) return std::nullopt;
  return Range{offset, rest.subspan(kRedoRangeHeaderBytes, length)};
}

/// The first word from `at` on that has changed, or `end`.
size_t NextChange(const std::byte* before, const std::byte* after, size_t at, size_t end) {
  while (at < end && LoadLittle<uint64_t>(before + at) == LoadLittle<uint64_t>(after + at)) {
    at += kWord;
  }
  return at;
}

/// Of few words: of a memcpy the compiler would make an instruction that takes longer to begin.
void CopyWords(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kWord) {
    auto word = LoadLittle<uint64_t>(from + at);
    asm("" : "+r"(word));  // or it would see a memcpy in this, too
    StoreLittle(to + at, word);
  }
}

/// Writes everything of a record but its ranges, which stand in `out` already. Here and there fields are put together to
/// the words that the checksum, and whoever posts the record, load: a load waits until narrower stores have left the
/// processor's store buffer.
void Finish(const RedoHead& head, std::span<std::byte> out, size_t record_bytes) {
  std::byte* const to = out.data();
  const uint8_t kind = head.plain() ? kPlainChange : static_cast<uint8_t>(head.kind);
  const uint64_t first = uint64_t{record_bytes} << 32 |
                         uint64_t{static_cast<uint8_t>(kind | head.level << 3)} << 48 |
                         uint64_t{head.tree} << 56;
  StoreLittle(to, first);
  StoreLittle(to + 8, head.lock_word);
  StoreLittle(to + 16, head.page.word());
  StoreLittle(to + 24, head.write_back);
  if (!head.plain()) {
    StoreLittle(to + 32, head.follow_up.word());
    StoreLittle(to + 40, head.follow_up_word);
  }
  StoreLittle(to, first | Crc32cOfFew(out.subspan(4, record_bytes - 4)));
}

}  // namespace

size_t EncodeRedo(const RedoHead& head, std::span<const std::byte> before,
                  std::span<const std::byte> after, std::span<std::byte> out) {
  const RedoExtent whole{0, static_cast<uint32_t>(after.size())};
  return EncodeRedo(head, before, after, {&whole, 1}, out);
}

size_t EncodeRedo(const RedoHead& head, std::span<const std::byte> before,
                  std::span<const std::byte> after, std::span<const RedoExtent> extents,
                  std::span<std::byte> out) {
  FARLEAF_CHECK(before.size() == after.size() && after.size() % kWord == 0 &&
                    after.size() <= kRedoImageBytesMax && out.size() >= RedoBytesMax(after.size()),
                before.size(), after.size(), out.size());
  size_t end = head.header_bytes();
  for (const RedoExtent& extent : extents) {
    const size_t extent_end = size_t{extent.offset} + extent.length;
    FARLEAF_CHECK(extent_end <= after.size(), extent.offset, extent.length);
    size_t at = NextChange(before.data(), after.data(), extent.offset, extent_end);
    while (at < extent_end) {
      // One equal word between two changed ones costs what a range header does.
      size_t range_end = 0, next = at;
      do {
        range_end = next + kWord;
        next = NextChange(before.data(), after.data(), range_end, extent_end);
      } while (next < extent_end && next <= range_end + kWord);
      // There is room, unless extents touch each other.
      FARLEAF_CHECK(end + kRedoRangeHeaderBytes + (range_end - at) <= out.size(), end, at,
                    range_end);
      StoreLittle(out.data() + end, uint64_t{at} | uint64_t{range_end - at} << 16);
      CopyWords(out.data() + end + kRedoRangeHeaderBytes, after.data() + at, range_end - at);
      end += kRedoRangeHeaderBytes + (range_end - at);
      at = next;
    }
  }
  Finish(head, out, end);
  return end;
}

size_t RedoExtents(const RedoHead& head, std::span<const std::byte> record,
                   std::span<RedoExtent> out) {
  size_t count = 0;
  for (auto rest = record.subspan(head.header_bytes()); !rest.empty(); ++count) {
    const auto range = FirstRange(rest);
    FARLEAF_CHECK(range, count, rest.size());
    if (count < out.size()) {
      out[count] = {static_cast<uint32_t>(range->offset),
                    static_cast<uint32_t>(range->bytes.size())};
    }
    rest = rest.subspan(kRedoRangeHeaderBytes + range->bytes.size());
  }
  return count;
}

size_t CopyRedo(const RedoRecord& record, uint64_t lock_word, std::span<std::byte> out) {
  const size_t header_bytes = record.header_bytes();
  const size_t record_bytes = header_bytes + record.ranges.size();
  FARLEAF_CHECK(record_bytes <= out.size(), record_bytes, out.size());
  if (!record.ranges.empty()) {
    std::memcpy(out.data() + header_bytes, record.ranges.data(), record.ranges.size());
  }
  RedoHead head = record;
  head.lock_word = lock_word;
  Finish(head, out, record_bytes);
  return record_bytes;
}

std::optional<RedoRecord> ParseRedo(std::span<const std::byte> slot) {
  if (slot.size() < kRedoPlainHeaderBytes) return std::nullopt;
  const std::byte* const from = slot.data();
  const size_t record_bytes = LoadLittle<uint16_t>(from + 4);
  const uint8_t kind = LoadLittle<uint8_t>(from + 6) & 7;
  const bool plain = kind == kPlainChange;
  if (record_bytes < (plain ? kRedoPlainHeaderBytes : kRedoHeaderBytes) ||
      record_bytes > slot.size() || record_bytes > kRedoSlotBytes || record_bytes % kWord != 0) {
    return std::nullopt;
  }
  if (LoadLittle<uint32_t>(from) != Crc32cOfFew(slot.subspan(4, record_bytes - 4)))
    return std::nullopt;
  if (kind > kRedoKindMax && !plain) return std::nullopt;
  RedoRecord record;
  record.kind = plain ? RedoKind::kChange : static_cast<RedoKind>(kind);
  record.level = LoadLittle<uint8_t>(from + 6) >> 3;
  record.tree = LoadLittle<uint8_t>(from + 7);
  record.lock_word = LoadLittle<uint64_t>(from + 8);
  record.page = GlobalAddress::FromWord(LoadLittle<uint64_t>(from + 16));
  record.write_back = LoadLittle<uint64_t>(from + 24);
  if (!plain) {
    record.follow_up = GlobalAddress::FromWord(LoadLittle<uint64_t>(from + 32));
    record.follow_up_word = LoadLittle<uint64_t>(from + 40);
    if (record.plain()) return std::nullopt;  // would have been written short
  }
  record.ranges = slot.first(record_bytes).subspan(record.header_bytes());
  size_t next_offset = 0;
  for (auto rest = record.ranges; !rest.empty();) {
    const auto range = FirstRange(rest);
    if (!range || range->offset < next_offset) return std::nullopt;
    next_offset = range->offset + range->bytes.size();
    rest = rest.subspan(kRedoRangeHeaderBytes + range->bytes.size());
  }
  return record;
}

bool ApplyRedo(const RedoRecord& record, std::span<std::byte> image) {
  const auto for_each = [&](auto use) {
    for (auto rest = record.ranges; !rest.empty();) {
      const auto range = FirstRange(rest);
      if (!range || range->offset > image.size() ||
          range->bytes.size() > image.size() - range->offset) {
        return false;
      }
      use(*range);
      rest = rest.subspan(kRedoRangeHeaderBytes + range->bytes.size());
    }
    return true;
  };
  if (!for_each([](const Range&) {})) return false;
  return for_each([&](const Range& range) {
    std::memcpy(image.data() + range.offset, range.bytes.data(), range.bytes.size());
  });
}

}  // namespace farleaf::dsm
