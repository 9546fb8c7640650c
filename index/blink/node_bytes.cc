#include "index/blink/node_bytes.h"

#include <cstring>

#include "dsm/base/check.h"
#include "index/blink/node.h"

namespace farleaf::index::internal {

bool BytesPage::Check(const Geometry& geometry, std::span<const std::byte> image) {
  const BytesPage view(geometry, image);
  const std::byte* page = image.data();
  const size_t low = view.LowLength(), high = Field<uint16_t>(page, kHighLength);
  const size_t count = PageCount(page), heap_begin = view.HeapBegin(), heap_end = view.HeapEnd();
  if (low > geometry.key_bytes_max || high > geometry.key_bytes_max) return false;
  if (heap_begin > heap_end || view.SlotOffset(count) > heap_begin) return false;
  // Only what the accessors' safety needs, since every read of a page pays this; that keys and
  // values are no longer than the geometry allows is for Validate.
  const uint32_t child_bytes = PageLevel(page) == 0 ? 0 : 8;
  const std::byte* at = page + view.SlotOffset(0);
  uint32_t in_use = 0;
  for (size_t i = 0; i < count; ++i, at += BytesSlot::kBytes) {
    const BytesSlot slot = BytesSlot::Decode(at);
    const uint32_t bytes = slot.rest + slot.value;
    in_use += bytes;
    if (slot.offset < heap_begin || slot.offset + bytes > heap_end || slot.shared > low)
      return false;
    if (child_bytes != 0 ? slot.value != child_bytes || slot.out_of_line
                         : slot.out_of_line && slot.value != kOutOfLineBytes) {
      return false;
    }
  }
  return in_use + view.Garbage() == heap_end - heap_begin;
}

namespace {

/// A call of memcpy. What GCC knows to be short, as lengths of 16 bits are, it copies by `rep movsq`, which takes some 30 cycles to begin: a seventh
/// of a scan of short rows.
[[gnu::noipa]] void Append(std::string_view bytes, std::string* out) { out->append(bytes); }

}  // namespace

void BytesPage::AppendKey(size_t i, std::string* out) const {
  if (i == 0 && PageLevel(page_) > 0) {
    out->append(Low());
    return;
  }
  const BytesSlot slot = Slot(i);
  Append(Low().substr(0, slot.shared), out);
  Append(Rest(slot), out);
}

BytesProbe BytesPage::ProbeBeside(std::string_view low, std::string_view key) {
  const size_t shared = CommonPrefix(low, key);
  BytesProbe probe;
  probe.below_low =
      shared < low.size() && (shared == key.size() || static_cast<unsigned char>(key[shared]) <
                                                          static_cast<unsigned char>(low[shared]));
  probe.shared = static_cast<uint32_t>(shared);
  probe.rest = key.substr(shared);
  probe.head = Head(probe.rest);
  return probe;
}

int BytesPage::Compare(size_t i, const BytesProbe& probe) const {
  if (probe.below_low) return 1;
  const BytesSlot slot = Slot(i);
  const uint64_t order = SlotOrder(slot.shared, slot.head), wanted = probe.order();
  if (order != wanted) return order < wanted ? -1 : 1;
  return CompareRests(Rest(slot), probe.rest);
}

size_t BytesPage::Search(size_t first, const BytesProbe& probe, Bound bound) const {
  const size_t count = PageCount(page_);
  if (probe.below_low || first >= count) return first;
  const int before = bound == Bound::kLower ? 0 : 1;  // entries comparing below it are passed
  const uint64_t wanted = probe.order();
  const std::byte* const slots = Slots();
  const auto order = [&](size_t i) { return SlotOrderAt(slots + i * BytesSlot::kBytes); };
  const auto rest_passes = [&](size_t i) {
    return CompareRests(Rest(BytesSlot::Decode(slots + i * BytesSlot::kBytes)), probe.rest) <
           before;
  };
  if (order(count - 1) != wanted) [[likely]] {
    first = FirstNotBelow(slots, first, count, wanted);
    // Few have the same order, most often one or none.
    if (first == count || order(first) != wanted || !rest_passes(first)) return first;
    if (++first == count || order(first) != wanted) return first;
  }
  size_t end = count;
  while (first < end) {
    const size_t middle = first + (end - first) / 2;
    const uint64_t at = order(middle);
    if (at != wanted ? at < wanted : rest_passes(middle)) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

Status BytesPage::Validate() const {
  const bool leaf = PageLevel(page_) == 0;
  const size_t count = PageCount(page_);
  std::string previous(Low()), key;
  for (size_t i = leaf ? 0 : 1; i < count; ++i) {
    const BytesSlot slot = Slot(i);
    key.clear();
    AppendKey(i, &key);
    const std::string entry = "entry " + std::to_string(i);
    if (key.empty() || key.size() > geometry_->key_bytes_max) {
      return Status::Corruption(entry + " has a key of " + std::to_string(key.size()) + " bytes");
    }
    if (leaf && !slot.out_of_line && slot.value > geometry_->inline_value_bytes_max) {
      return Status::Corruption(entry + " has an inline value of " + std::to_string(slot.value) +
                                " bytes");
    }
    const bool first = i == (leaf ? 0u : 1u);
    if (first && leaf ? key < previous : key <= previous) {
      return Status::Corruption(
          entry + (first ? " is below the low fence" : " is not above the one before it"));
    }
    if (slot.shared != CommonPrefix(Low(), key)) {
      return Status::Corruption(entry + " does not share what it could with the low fence");
    }
    if (slot.head != Head(Rest(slot))) {
      return Status::Corruption(entry + "'s head differs from its key");
    }
    previous.swap(key);
  }
  if (count > 0 && (PageFlags(page_) & kFlagNoHigh) == 0 && previous >= High()) {
    return Status::Corruption("entry " + std::to_string(count - 1) +
                              " is not below the high fence");
  }
  if (Field<uint16_t>(page_, kReserved) != 0) return Status::Corruption("bytes 30..31 are not 0");
  return Status::Ok();
}

void BytesPageWriter::Init(std::string_view low, std::string_view high) {
  StoreLittle(out_ + kLowLength, static_cast<uint16_t>(low.size()));
  StoreLittle(out_ + kHighLength, static_cast<uint16_t>(high.size()));
  low.copy(reinterpret_cast<char*>(out_) + kFences, low.size());
  high.copy(reinterpret_cast<char*>(out_) + kFences + low.size(), high.size());
  SetHeap(HeapEnd(), 0);
}

bool BytesPageWriter::Insert(size_t i, KeyIs key_is, std::string_view key, std::string_view value,
                             bool out_of_line) {
  const size_t count = PageCount(page_);
  size_t shared = 0;
  std::string_view rest;
  if (key_is == KeyIs::kStored) {
    shared = CommonPrefix(Low(), key);
    rest = key.substr(shared);
  }
  const size_t bytes = rest.size() + value.size();
  if (UsedBytes() + BytesSlot::kBytes + bytes > CapacityBytes()) return false;
  if (SlotOffset(count + 1) + bytes > HeapBegin()) Compact();

  const size_t at = HeapBegin() - bytes;
  auto* chars = reinterpret_cast<char*>(out_);
  rest.copy(chars + at, rest.size());
  value.copy(chars + at + rest.size(), value.size());
  std::memmove(out_ + SlotOffset(i + 1), out_ + SlotOffset(i), (count - i) * BytesSlot::kBytes);
  BytesSlot{Head(rest),
            static_cast<uint32_t>(at),
            static_cast<uint32_t>(rest.size()),
            static_cast<uint32_t>(shared),
            static_cast<uint32_t>(value.size()),
            out_of_line}
      .Encode(out_ + SlotOffset(i));
  SetHeap(at, Garbage());
  SetPageCount(out_, count + 1);
  return true;
}

bool BytesPageWriter::ReplaceValue(size_t i, std::string_view value, bool out_of_line) {
  BytesSlot slot = Slot(i);
  if (value.size() <= slot.value) {
    value.copy(reinterpret_cast<char*>(out_) + slot.offset + slot.rest, value.size());
    SetHeap(HeapBegin(), Garbage() + slot.value - value.size());
  } else {
    if (UsedBytes() + value.size() - slot.value > CapacityBytes()) return false;
    const std::string rest(Rest(slot));
    SetHeap(HeapBegin(), Garbage() + slot.rest + slot.value);
    slot.rest = slot.value = 0;
    slot.Encode(out_ + SlotOffset(i));
    const size_t bytes = rest.size() + value.size();
    if (SlotOffset(PageCount(page_)) + bytes > HeapBegin()) Compact();
    const size_t at = HeapBegin() - bytes;
    auto* chars = reinterpret_cast<char*>(out_);
    rest.copy(chars + at, rest.size());
    value.copy(chars + at + rest.size(), value.size());
    SetHeap(at, Garbage());
    slot.offset = static_cast<uint32_t>(at);
    slot.rest = static_cast<uint32_t>(rest.size());
  }
  slot.value = static_cast<uint32_t>(value.size());
  slot.out_of_line = out_of_line;
  slot.Encode(out_ + SlotOffset(i));
  return true;
}

void BytesPageWriter::Remove(size_t i) {
  const size_t count = PageCount(page_);
  const BytesSlot slot = Slot(i);
  SetHeap(HeapBegin(), Garbage() + slot.rest + slot.value);
  std::memmove(out_ + SlotOffset(i), out_ + SlotOffset(i + 1), (count - i - 1) * BytesSlot::kBytes);
  SetPageCount(out_, count - 1);
}

void BytesPageWriter::Compact() {
  std::byte packed[kPageBytesMax];
  size_t begin = HeapEnd();
  for (size_t i = 0; i < PageCount(page_); ++i) {
    BytesSlot slot = Slot(i);
    const size_t bytes = slot.rest + slot.value;
    begin -= bytes;
    std::memcpy(packed + begin, page_ + slot.offset, bytes);
    slot.offset = static_cast<uint32_t>(begin);
    slot.Encode(out_ + SlotOffset(i));
  }
  std::memcpy(out_ + begin, packed + begin, HeapEnd() - begin);
  SetHeap(begin, 0);
}

}  // namespace farleaf::index::internal
