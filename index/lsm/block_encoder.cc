#include "index/lsm/block_encoder.h"

namespace farleaf::index::lsm {

void BlockEncoder::Clear() {
  items_.clear();
  keys_.clear();
  tail_.clear();
  key_sum_ = 0;
  prefix_ = 0;
  key_bytes_min_ = UINT32_MAX;
  key_bytes_max_ = 0;
}

char* BlockEncoder::EncodeEntries(uint32_t prefix, uint32_t base, std::byte* heads, char* offsets,
                                  bool wide, char* block, char* to) const {
  const auto set_offset = [&](size_t i) {
    const auto offset = static_cast<uint32_t>(to - block);
    if (wide) {
      StoreLittle<uint32_t>(offsets + 4 * i, offset);
    } else {
      StoreLittle<uint16_t>(offsets + 2 * i, static_cast<uint16_t>(offset));
    }
  };
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const size_t tail_end = i + 1 < items_.size() ? items_[i + 1].tail_at : tail_.size();
    set_offset(i);
    const char* const suffix = keys_.data() + item.key_at + prefix;
    const uint32_t suffix_bytes = item.key_bytes - prefix;
    StoreLittle<uint32_t>(heads + 4 * i, internal::HeadOf(suffix, suffix_bytes));
    const uint32_t above = suffix_bytes - base;
    *to++ = static_cast<char>(item.tag | std::min(above, internal::kTagLengthLong)
                                             << internal::kTagLengthShift);
    if (above >= internal::kTagLengthLong) [[unlikely]] {
      to = PutVarint(to, above - internal::kTagLengthLong);
    }
    if (suffix_bytes > 4) {
      CopyWithSlack(to, suffix + 4, suffix_bytes - 4);
      to += suffix_bytes - 4;
    }
    const size_t tail_bytes = tail_end - item.tail_at;
    CopyWithSlack(to, tail_.data() + item.tail_at, tail_bytes);
    to += tail_bytes;
  }
  set_offset(items_.size());
  return to;
}

std::span<std::byte> BlockEncoder::Encode(const Head& head, char* to) {
  FARLEAF_CHECK(!items_.empty() && items_.size() <= UINT16_MAX, items_.size());
  const size_t count = items_.size();
  const uint32_t prefix = prefix_, base = key_bytes_min_ - prefix;
  const bool wide = Bytes() > UINT16_MAX;
  char* const heads = to + kBlockHeaderBytes;
  char* const offsets = heads + 4 * count;
  char* at = offsets + (wide ? 4 : 2) * (count + 1);
  std::memcpy(at, keys_.data(), prefix);
  at = EncodeEntries(prefix, base, reinterpret_cast<std::byte*>(heads), offsets, wide, to,
                     at + prefix);
  auto raw_bytes = static_cast<size_t>(at - to);
  if (head.filter_lines > 0) {
    raw_bytes = RoundUp(raw_bytes, kFilterLineBytes) + head.filter_lines * size_t{kFilterLineBytes};
    std::memset(at, 0, raw_bytes - static_cast<size_t>(at - to));
  }
  FARLEAF_CHECK(raw_bytes <= kRawBytesMax, raw_bytes);
  BlockHeader header;
  header.raw_bytes = static_cast<uint32_t>(raw_bytes);
  header.stored_bytes = header.raw_bytes;
  header.number = head.number;
  header.count = static_cast<uint16_t>(count);
  header.level = head.level;
  header.flags = static_cast<uint8_t>((wide ? BlockHeader::kWide : 0) |
                                      head.filter_probes << BlockHeader::kProbesShift);
  header.prefix_bytes = static_cast<uint16_t>(prefix);
  header.suffix_base = static_cast<uint16_t>(base);
  header.filter_lines = static_cast<uint16_t>(head.filter_lines);
  header.Store(reinterpret_cast<std::byte*>(to));
  Clear();
  return {reinterpret_cast<std::byte*>(to), raw_bytes};
}

}  // namespace farleaf::index::lsm
