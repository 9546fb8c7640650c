#include "index/blink/trimmed_node.h"

#include <cstring>

#include "dsm/base/check.h"

namespace farleaf::index {

using internal::BytesPage;
using internal::BytesSlot;
using internal::Fixed8;
using internal::kTailBytes;

namespace {

size_t EntriesKept(const ConstNode& node) { return node.dead() ? 0 : node.count(); }

BytesPage PageOf(const ConstNode& node) { return {node.geometry(), node.image()}; }

size_t SlotsBegin(const BytesPage& page) {
  return BytesPage::kFences + page.Low().size() + page.High().size();
}

void TrimFixed8(const ConstNode& node, std::byte* out) {
  const std::byte* page = node.image().data();
  const size_t count = EntriesKept(node);
  std::memcpy(out, page, Fixed8::kKeys + 8 * count);
  if (count > 0) {
    std::memcpy(out + Fixed8::kKeys + 8 * count, node.Value(0).bytes.data(), 8 * count);
  }
}

void TrimBytes(const ConstNode& node, std::span<std::byte> out) {
  const BytesPage page = PageOf(node);
  const size_t slots = SlotsBegin(page), count = EntriesKept(node);
  std::memcpy(out.data(), node.image().data(), slots);
  size_t heap = out.size() - kTailBytes;
  for (size_t i = 0; i < count; ++i) {
    BytesSlot slot = page.Slot(i);
    const size_t bytes = slot.rest + slot.value;
    heap -= bytes;
    std::memcpy(out.data() + heap, page.Rest(slot).data(), bytes);  // the value stands behind it
    slot.offset = static_cast<uint32_t>(heap);
    slot.Encode(out.data() + slots + i * BytesSlot::kBytes);
  }
  StoreLittle(out.data() + BytesPage::kHeapBegin, static_cast<uint16_t>(heap));
  StoreLittle(out.data() + BytesPage::kGarbage, uint16_t{0});
}

}  // namespace

size_t TrimmedImageBytes(const ConstNode& node) {
  const size_t count = EntriesKept(node);
  if (node.geometry().layout == Layout::kFixed8) {
    return Fixed8::kKeys + Fixed8::kEntryBytes * count + kTailBytes;
  }
  const BytesPage page = PageOf(node);
  size_t bytes = SlotsBegin(page) + count * BytesSlot::kBytes + kTailBytes;
  for (size_t i = 0; i < count; ++i) {
    const BytesSlot slot = page.Slot(i);
    bytes += slot.rest + slot.value;
  }
  return bytes;
}

void TrimImage(const ConstNode& node, std::span<std::byte> out) {
  FARLEAF_DCHECK(!node.is_leaf() && out.size() == TrimmedImageBytes(node), out.size());
  if (node.geometry().layout == Layout::kFixed8) {
    TrimFixed8(node, out.data());
  } else {
    TrimBytes(node, out);
  }
  internal::SetPageCount(out.data(), EntriesKept(node));
  StoreLittle(out.data() + out.size() - kTailBytes, node.version());
}

}  // namespace farleaf::index
