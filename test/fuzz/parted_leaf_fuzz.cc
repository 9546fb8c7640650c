// Whatever the page of a parted leaf holds: it is refused, or opens to a node that may be viewed and
// packed again; and whatever its parts hold, asking and changing them stays inside the image.
//
// An input: how many parts, 1 byte; which of them are in hand, 4 bytes; the image (cut, or filled with 0).
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/parted_leaf_fixture.h"

namespace {
using namespace farleaf;
using namespace farleaf::index;

constexpr size_t kHeadBytes = 5;

/// Every part gets the trailer's identity and a right check, and the trailer, made one of a leaf, a right
/// checksum: what stands behind all that is reached.
void Mend(size_t parts, Bytes* image) {
  const std::span<std::byte> trailer = std::span(*image).subspan(parts * kPartBytes);
  trailer[offsetof(index::internal::PageHeader, level)] = std::byte{0};
  trailer[offsetof(index::internal::PageHeader, flags)] &=
      static_cast<std::byte>(index::internal::kFlagsAll);
  index::internal::SetPageCount(trailer.data(), 0);
  trailer[offsetof(index::internal::PageHeader, right)] &= std::byte{0xc0};  // where a page can be
  const auto version =
      LoadLittle<uint64_t>(trailer.data() + offsetof(index::internal::PageHeader, version));
  StoreLittle(trailer.data() + trailer.size() - 8, version);
  StoreLittle(trailer.data(), Crc32c(trailer.subspan(4)));
  const uint8_t flags = index::internal::PageFlags(trailer.data());
  LeafHead head{index::internal::Field<uint16_t>(trailer.data(), 4), std::nullopt, std::nullopt,
                version, (flags & index::internal::kFlagDead) != 0};
  if ((flags & index::internal::kFlagNoLow) == 0) head.low = LoadBig64(trailer.data() + 32);
  if ((flags & index::internal::kFlagNoHigh) == 0) head.high = LoadBig64(trailer.data() + 40);
  // As the first part says, if the leaf may be ordered.
  const Placement placement =
      head.Range().bounded() ? ConstPart(image->data()).placement() : Placement::kHashed;
  for (size_t p = 0; p < parts; ++p) {
    Part part(image->data() + p * kPartBytes);
    part.SetIdentity(head.Digest(), head.Structure(placement));
    part.Seal();
  }
}

/// A node of what opened: sorted, and the same again by way of a packed image, whatever stood there before.
void CheckOpened(size_t parts, const Bytes& image, const Bytes& node_image) {
  const Geometry geometry = PartedGeometry(parts);
  FARLEAF_CHECK(ConstNode::Open(geometry, node_image) == OpenOutcome::kValid);
  const ConstNode node(geometry, node_image);
  for (size_t i = 0; i < node.count(); ++i) {
    FARLEAF_CHECK(i == 0 || node.Key(i - 1) < node.Key(i), i);
    FARLEAF_CHECK(node.Value(i).bytes.size() == 8);
  }
  Bytes copy = image;
  const LeafParts leaf(copy, (uint32_t{1} << parts) - 1, RangeOf(node));
  FARLEAF_CHECK(leaf.count() == node.count(), leaf.count(), node.count());
  for (size_t i = 0; i < node.count(); ++i) {
    const LeafParts::Place place = leaf.Find(LoadBig64(node.Key(i).data()));
    FARLEAF_CHECK(place.outcome == LeafParts::Outcome::kYes, i);
  }
  for (const std::span<const std::byte> previous :
       {std::span<const std::byte>(), std::span(image)}) {
    Bytes packed(image.size()), again(image.size());
    PackPartedLeaf(geometry, node, previous, packed);
    FARLEAF_CHECK(OpenPartedLeaf(geometry, packed, again) == OpenOutcome::kValid);
    FARLEAF_CHECK(again == node_image);
  }
}

/// Changes to parts of which nothing was checked.
void Exercise(size_t parts, uint32_t loaded, Bytes image) {
  const std::span<const std::byte> trailer = std::span(image).subspan(parts * kPartBytes);
  LeafParts leaf(image, loaded, {LoadBig64(&trailer[32]), LoadBig64(&trailer[40])});
  leaf.Fits(leaf.part(0).digest());
  FARLEAF_CHECK(leaf.count() <= parts * kPartSlots);
  for (size_t p = 0; p < parts; ++p) {
    const ConstPart part = leaf.part(p);
    for (const uint64_t key : {part.key(p % kPartSlots), ~part.key(0), uint64_t{p}}) {
      const LeafParts::Place found = leaf.Find(key);
      if (found.outcome == LeafParts::Outcome::kYes) {
        FARLEAF_CHECK(leaf.Has(found.part) && leaf.part(found.part).key(found.slot) == key);
        leaf.SetValue(found, "a value.");
        if (key % 2 != 0) leaf.Remove(found);
        continue;
      }
      if (found.outcome == LeafParts::Outcome::kNotLoaded) FARLEAF_CHECK(!leaf.Has(found.part));
      const LeafParts::Place room = leaf.FindRoom(key, 1 + p % parts);
      if (room.outcome != LeafParts::Outcome::kYes) continue;
      FARLEAF_CHECK(leaf.Has(room.part) && room.slot < kPartSlots, room.part, room.slot);
      leaf.Put(room, key, "a value.");
      FARLEAF_CHECK(leaf.Find(key).outcome == LeafParts::Outcome::kYes);
      FARLEAF_CHECK(leaf.part(room.part).Intact(), room.part);
    }
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const size_t parts : {4, 5, 8, 15, 31}) {
    for (uint64_t style = 0; style < kKeyStyles; ++style) {
      Random random(parts * 10 + style);
      LeafEntries entries;
      const size_t count = style == 4 ? parts * kPartSlots : 3 * parts;
      LeafHead head{3, 1, std::nullopt, 0xffffff + style, style == 3};
      if (style % 2 == 0) head.high = 1 << 20;  // ordered, if it can be
      const LeafHomes homes(parts, Placement::kOrdered, head.Range());
      for (const uint64_t key : AwkwardKeys(style, homes, count, &random)) entries[key] = key;
      std::string seed(1, static_cast<char>(parts));
      char loaded[4];
      StoreLittle(loaded, static_cast<uint32_t>(style == 1 ? 0b10110 : ~0));
      seed.append(loaded, 4);
      seed.append(AsChars(PackedLeaf(parts, head, entries)));
      seeds.push_back(std::move(seed));
    }
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHeadBytes) return 0;
  const size_t parts =
      kLeafPartsMin + (data[0] + 256 - kLeafPartsMin) % 256 % (kLeafPartsMax - kLeafPartsMin + 1);
  const uint32_t loaded = LoadLittle<uint32_t>(data + 1) & ((uint32_t{1} << parts) - 1);
  Bytes image(LeafImageBytes(parts));
  std::memcpy(image.data(), data + kHeadBytes, std::min(size - kHeadBytes, image.size()));
  for (const bool mended : {false, true}) {
    if (mended) Mend(parts, &image);
    Bytes node(image.size());
    const OpenOutcome opened = OpenPartedLeaf(PartedGeometry(parts), image, node);
    FARLEAF_CHECK(!mended || opened != OpenOutcome::kMalformed);
    if (opened == OpenOutcome::kValid) CheckOpened(parts, image, node);
    Exercise(parts, loaded, image);
  }
  return 0;
}
