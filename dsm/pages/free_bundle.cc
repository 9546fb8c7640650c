#include "dsm/pages/free_bundle.h"

#include <algorithm>
#include <array>
#include <string>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"

namespace farleaf::dsm {

namespace {

// u32 crc · u32 count · u64 listed word · u64 next · u64 carrier's version; then (offset, version)s.
constexpr uint64_t kHeaderBytes = 32;
constexpr uint64_t kPairBytes = 16;
constexpr uint64_t kTailBytes = 16;  // of a leaf or search page: its second version and lock word

// The class and the carrier's offset are covered too: a bundle of another class, or one that lies
// elsewhere, is none.
uint32_t BundleCrc(const PageClass& page_class, uint64_t carrier_offset,
                   std::span<const std::byte> bundle) {
  const std::array<uint64_t, 2> place{ChunkWordOf(page_class).Encode(), carrier_offset};
  return Crc32c(bundle.subspan(4), Crc32c(std::as_bytes(std::span(place))));
}

}  // namespace

uint32_t BundlePagesMax(const PageClass& page_class) {
  const uint64_t tail = page_class.kind == ChunkKind::kValue ? 0 : kTailBytes;
  const uint64_t room = page_class.page_bytes - BundleOffsetInPage(page_class) - tail;
  return static_cast<uint32_t>(
      std::min<uint64_t>(kBundlePagesMax, (room - kHeaderBytes) / kPairBytes));
}

uint64_t BundleBytes(uint32_t others) { return kHeaderBytes + others * kPairBytes; }

void EncodeBundle(const PageClass& page_class, const FreeBundle& bundle, std::span<std::byte> out) {
  const auto count = static_cast<uint32_t>(bundle.others.size());
  FARLEAF_CHECK(count <= BundlePagesMax(page_class) && out.size() == BundleBytes(count), count,
                out.size());
  StoreLittle<uint32_t>(out.data() + 4, count);
  StoreLittle<uint64_t>(out.data() + 8, bundle.listed_word);
  StoreLittle<uint64_t>(out.data() + 16, bundle.next_offset);
  StoreLittle<uint64_t>(out.data() + 24, bundle.carrier.version);
  std::byte* pair = out.data() + kHeaderBytes;
  for (const FreePage& page : bundle.others) {
    StoreLittle<uint64_t>(pair, page.offset);
    StoreLittle<uint64_t>(pair + 8, page.version);
    pair += kPairBytes;
  }
  StoreLittle<uint32_t>(out.data(), BundleCrc(page_class, bundle.carrier.offset, out));
}

Result<FreeBundle> DecodeBundle(const PageClass& page_class, const RegionLayout& layout,
                                uint64_t carrier_offset, std::span<const std::byte> bytes) {
  const auto corrupt = [&](const char* what) {
    return Status::Corruption("free list " + std::to_string(FreeListIndex(page_class)) +
                              " of memory server " + std::to_string(layout.server) +
                              ": bundle at " + std::to_string(carrier_offset) + ": " + what);
  };
  if (bytes.size() < kHeaderBytes) return corrupt("cut short");
  const auto count = LoadLittle<uint32_t>(bytes.data() + 4);
  if (count > BundlePagesMax(page_class) || BundleBytes(count) > bytes.size()) {
    return corrupt("too many pages");
  }
  if (LoadLittle<uint32_t>(bytes.data()) !=
      BundleCrc(page_class, carrier_offset, bytes.first(BundleBytes(count)))) {
    return corrupt("checksum mismatch");
  }
  FreeBundle bundle;
  bundle.next_offset = LoadLittle<uint64_t>(bytes.data() + 16);
  bundle.carrier = {carrier_offset, LoadLittle<uint64_t>(bytes.data() + 24)};
  bundle.listed_word = LoadLittle<uint64_t>(bytes.data() + 8);
  const LockWord listed = LockWord::Decode(bundle.listed_word);
  if (listed.state != LockWord::State::kFreePage || listed.owner != 0) {
    return corrupt("its pages' word is no free page's");
  }
  if (bundle.next_offset != 0 && !IsPageOffset(page_class, layout, bundle.next_offset)) {
    return corrupt("next bundle is outside");
  }
  bundle.others.reserve(count);
  for (const std::byte* pair = bytes.data() + kHeaderBytes; bundle.others.size() < count;
       pair += kPairBytes) {
    bundle.others.push_back({LoadLittle<uint64_t>(pair), LoadLittle<uint64_t>(pair + 8)});
    if (!IsPageOffset(page_class, layout, bundle.others.back().offset)) {
      return corrupt("names a page outside the chunks");
    }
  }
  return bundle;
}

bool IsPageOffset(const PageClass& page_class, const RegionLayout& layout, uint64_t offset) {
  if (offset < layout.first_chunk || offset >= layout.ChunkOffset(layout.chunk_count)) return false;
  const uint64_t in_chunk = offset - layout.ChunkOffset(layout.ChunkOf(offset));
  return PageIndexInChunk(page_class, layout.chunk_bytes, in_chunk).has_value();
}

}  // namespace farleaf::dsm
