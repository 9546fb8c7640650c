#include "index/blink/parted_leaf.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/mutation.h"
#include "index/blink/fence_digest.h"

namespace farleaf::index {

using internal::Field;
using internal::Fixed8;
using internal::FoldedProduct;
using internal::PageHeader;

namespace {

constexpr size_t kPartsMax = 31;
constexpr size_t kCheckBytes = 6;
constexpr uint64_t kCheckMask = (uint64_t{1} << 8 * kCheckBytes) - 1;

/// Offsets in the trailer.
constexpr size_t kLow = sizeof(PageHeader), kHigh = kLow + 8, kTail = kHigh + 8;
constexpr size_t kTrailerImageBytes = kLeafTrailerBytes - 8;
static_assert(kTail + internal::kTailBytes == kTrailerImageBytes);

uint32_t TrailerChecksum(const std::byte* trailer) {
  return Crc32c({trailer + 4, kTrailerImageBytes - 4});
}

uint64_t TrailerDigest(const Geometry& geometry, const std::byte* trailer) {
  if ((internal::PageFlags(trailer) & internal::kFlagDead) != 0) return 0;
  const auto fence = [&](uint8_t none, size_t offset) {
    return (internal::PageFlags(trailer) & none) != 0
               ? std::nullopt
               : std::optional(internal::PageChars(trailer, offset, 8));
  };
  return FenceDigest({geometry.digest_key, Field<uint16_t>(trailer, offsetof(PageHeader, tree))},
                     fence(internal::kFlagNoLow, kLow), fence(internal::kFlagNoHigh, kHigh));
}

LeafRange TrailerRange(const std::byte* trailer) {
  const uint8_t none = internal::kFlagNoLow | internal::kFlagNoHigh;
  if ((internal::PageFlags(trailer) & none) != 0) return {};
  return {LoadBig64(trailer + kLow), LoadBig64(trailer + kHigh)};
}

OpenOutcome CheckTrailer(const std::byte* trailer) {
  const auto version = Field<uint64_t>(trailer, offsetof(PageHeader, version));
  const bool checks = !Mutated(Mutation::kSkipChecksum);
  if (checks && (version != Field<uint64_t>(trailer, kTail) ||
                 Field<uint32_t>(trailer, 0) != TrailerChecksum(trailer))) {
    return OpenOutcome::kTorn;
  }
  const auto right = Field<uint64_t>(trailer, offsetof(PageHeader, right));
  const bool plain = internal::PageLevel(trailer) == 0 && internal::PageCount(trailer) == 0 &&
                     (internal::PageFlags(trailer) & ~internal::kFlagsAll) == 0 &&
                     right % kPageAlignment == 0;
  return plain ? OpenOutcome::kValid : OpenOutcome::kMalformed;
}

struct Entry {
  uint64_t key;
  uint64_t value;  // as it stands
};

/// By key. Of an ordered leaf, whose parts are asked one after the other, few entries have far to go: those of a part
/// change places, and what went past its home goes back; a general sort takes several times as long.
void SortEntries(std::span<Entry> entries, bool nearly_sorted) {
  if (!nearly_sorted) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.key < b.key; });
    return;
  }
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry entry = entries[i];
    size_t at = i;
    for (; at > 0 && entries[at - 1].key > entry.key; --at) entries[at] = entries[at - 1];
    entries[at] = entry;
  }
}

/// Whether every part between a key's home and `part` says that entries went past it.
bool WayIsMarked(std::span<const std::byte> raw, const LeafHomes& homes, uint64_t key,
                 size_t part) {
  for (size_t at = homes.Of(key); at != part; at = homes.Next(at)) {
    if (!ConstPart(raw.data() + at * kPartBytes).passed()) return false;
  }
  return true;
}

/// Header and fences of a node, as they stand in the trailer.
void CopyHeader(const std::byte* from, size_t from_low, std::byte* to, size_t to_low) {
  std::memcpy(to, from, sizeof(PageHeader));
  std::memcpy(to + to_low, from + from_low, 16);
}

}  // namespace

uint64_t ConstPart::Check() const {
  static constexpr std::array<uint64_t, 16> kKeys = {
      0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89,
      0x452821e638d01377, 0xbe5466cf34e90c6c, 0xc0ac29b7c97c50dd, 0x3f84d5b5b5470917,
      0x9216d5d98979fb1b, 0xd1310ba698dfb5ac, 0x2ffd72dbd01adfb7, 0xb8e1afed6a267e96,
      0xba7c9045f12c7f99, 0x24a19947b3916cf7, 0x0801f2e2858efc16, 0x636920d871574e69};
  const auto word = [this](size_t i) { return LoadLittle<uint64_t>(data_ + 8 * i); };
  uint64_t sum = FoldedProduct((word(0) & ~kCheckMask) ^ kKeys[0], word(1) ^ kKeys[1]);
  // As a loop: of what is unrolled the compiler keeps so many products at a time that most go by way of the stack.
#pragma GCC unroll 1
  for (size_t i = 2; i < kPartBytes / 8; i += 2) {
    sum += FoldedProduct(word(i) ^ kKeys[i], word(i + 1) ^ kKeys[i + 1]);
  }
  return FoldedProduct(sum, 0x9e3779b97f4a7c15) & kCheckMask;
}

bool ConstPart::Intact() const {
  if (Mutated(Mutation::kSkipChecksum)) return true;
  return (LoadLittle<uint64_t>(data_) & kCheckMask) == Check();
}

void Part::SetIdentity(uint64_t digest, uint32_t structure) {
  StoreLittle(out_ + 8, digest | uint64_t{structure & 0xffff} << 48);
  SetByte(7, static_cast<uint8_t>(structure >> 16));
}

void Part::SetByte(size_t at, uint8_t byte) {
  const uint64_t others = LoadLittle<uint64_t>(out_) & ~(uint64_t{0xff} << 8 * at);
  StoreLittle(out_, others | uint64_t{byte} << 8 * at);
}

void Part::Put(size_t slot, uint64_t key, const void* value) {
  StoreBig64(out_ + SlotOffset(slot), key);
  SetValue(slot, value);
  SetState(used() | 1u << slot, passed());
}

void Part::SetValue(size_t slot, const void* value) {
  std::memcpy(out_ + SlotOffset(slot) + 8, value, 8);
}

void Part::Seal() {
  const uint64_t rest = LoadLittle<uint64_t>(out_) & ~kCheckMask;
  StoreLittle(out_, rest | Check());
}

LeafParts::Place LeafParts::Find(uint64_t key) const {
  size_t at = homes_.Of(key);
  for (size_t i = 0; i < parts_; ++i, at = Next(at)) {
    if (!Has(at)) return {Outcome::kNotLoaded, at};
    const size_t slot = part(at).Find(key);
    if (slot < kPartSlots) return {Outcome::kYes, at, slot};
    if (!part(at).passed() || Mutated(Mutation::kPassedMarkIgnored)) break;
  }
  return {};
}

LeafParts::Place LeafParts::FindRoom(uint64_t key, size_t chain) const {
  size_t at = homes_.Of(key);
  for (size_t i = 0; i < std::min(chain, parts_); ++i, at = Next(at)) {
    if (!Has(at)) return {Outcome::kNotLoaded, at};
    if (!part(at).full()) {
      return {Outcome::kYes, at, static_cast<size_t>(std::countr_one(part(at).used()))};
    }
  }
  return {};
}

void LeafParts::SetValue(const Place& place, const void* value) {
  Mutable(place.part).SetValue(place.slot, value);
  Mutable(place.part).Seal();
}

void LeafParts::Put(const Place& place, uint64_t key, const void* value) {
  Mutable(place.part).Put(place.slot, key, value);
  Mutable(place.part).Seal();
  for (size_t at = homes_.Of(key); at != place.part; at = Next(at)) {
    if (part(at).passed() || Mutated(Mutation::kPassedMarkForgotten)) continue;
    Mutable(at).SetPassed(true);
    Mutable(at).Seal();
  }
}

void LeafParts::Remove(const Place& place) {
  Mutable(place.part).Clear(place.slot);
  Mutable(place.part).Seal();
}

bool LeafParts::Fits(uint64_t digest) const {
  if (loaded_ == 0) return false;
  const uint32_t structure = part(static_cast<size_t>(std::countr_zero(loaded_))).structure();
  for (uint32_t rest = loaded_; rest != 0; rest &= rest - 1) {
    const ConstPart each = part(static_cast<size_t>(std::countr_zero(rest)));
    const bool same_leaf = each.digest() == digest || Mutated(Mutation::kFenceDigestUnchecked);
    if (!same_leaf || each.structure() != structure || !each.Intact()) return false;
  }
  return true;
}

bool LeafParts::HasDigest(uint64_t digest) const {
  for (uint32_t rest = loaded_; rest != 0; rest &= rest - 1) {
    if (part(static_cast<size_t>(std::countr_zero(rest))).digest() == digest) return true;
  }
  return false;
}

size_t LeafParts::count() const {
  size_t entries = 0;
  for (uint32_t rest = loaded_; rest != 0; rest &= rest - 1) {
    entries += part(static_cast<size_t>(std::countr_zero(rest))).count();
  }
  return entries;
}

OpenOutcome OpenPartedLeaf(const Geometry& geometry, std::span<const std::byte> raw,
                           std::span<std::byte> node) {
  const auto page_bytes = static_cast<uint32_t>(raw.size() + 8);
  const size_t parts = PartsOf(page_bytes);
  const std::byte* const trailer = raw.data() + parts * kPartBytes;
  if (const OpenOutcome opened = CheckTrailer(trailer); opened != OpenOutcome::kValid)
    return opened;
  const auto version = Field<uint64_t>(trailer, offsetof(PageHeader, version));
  const uint64_t digest = TrailerDigest(geometry, trailer);
  const Placement placement = ConstPart(raw.data()).placement();
  const LeafHomes homes(parts, placement, TrailerRange(trailer));
  if (homes.ordered() != (placement == Placement::kOrdered)) return OpenOutcome::kTorn;
  std::array<Entry, kPartsMax * kPartSlots> entries;
  size_t count = 0;
  for (size_t p = 0; p < parts; ++p) {
    const ConstPart part(raw.data() + p * kPartBytes);
    const bool belongs =
        part.digest() == digest && part.structure() == StructureOf(version, placement);
    if (!part.Intact() || (!belongs && !Mutated(Mutation::kSkipChecksum)))
      return OpenOutcome::kTorn;
    for (uint32_t rest = part.used(); rest != 0; rest &= rest - 1) {
      const auto slot = static_cast<size_t>(std::countr_zero(rest));
      // The entry has landed and a mark has not: who asks its home next is told that it is absent.
      if (!WayIsMarked(raw, homes, part.key(slot), p)) return OpenOutcome::kTorn;
      entries[count++] = {part.key(slot), LoadLittle<uint64_t>(part.value(slot))};
    }
  }
  SortEntries(std::span(entries).first(count), homes.ordered());
  std::memset(node.data(), 0, node.size());
  CopyHeader(trailer, kLow, node.data(), Fixed8::kLow);
  internal::SetPageCount(node.data(), count);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && entries[i].key == entries[i - 1].key) return OpenOutcome::kTorn;
    StoreBig64(node.data() + Fixed8::kKeys + 8 * i, entries[i].key);
    StoreLittle(node.data() + Fixed8::ValueOffset(page_bytes, i), entries[i].value);
  }
  Node(geometry, node).Seal(version);
  return OpenOutcome::kValid;
}

namespace {

/// Takes over from the leaf's image before what stays and stands at home, each entry in its place, with
/// the node's values. Returns which of the node's entries that were: the others find room anew, so that no
/// part is passed that has some again.
std::array<bool, kPartsMax * kPartSlots> KeepEntries(const ConstNode& node, const LeafHomes& homes,
                                                     std::span<std::byte> raw) {
  std::array<bool, kPartsMax * kPartSlots> kept{};
  for (size_t p = 0; p < homes.parts(); ++p) {
    Part part(raw.data() + p * kPartBytes);
    part.SetPassed(false);
    for (uint32_t rest = part.used(); rest != 0; rest &= rest - 1) {
      const auto slot = static_cast<size_t>(std::countr_zero(rest));
      const uint64_t key = part.key(slot);
      ConstNode::Position at;
      if (homes.Of(key) == p) {
        at = node.Search(
            internal::PageChars(raw.data(), p * kPartBytes + Part::SlotOffset(slot), 8));
      }
      if (!at.found || kept[at.index]) {
        part.Clear(slot);
        continue;
      }
      kept[at.index] = true;
      part.SetValue(slot, node.Value(at.index).bytes.data());
    }
  }
  return kept;
}

/// Puts the node's entries into the parts, at most `chain` from their homes on, and seals none. False: one finds no room.
bool PlaceEntries(const ConstNode& node, std::span<const std::byte> previous, Placement placement,
                  size_t chain, std::span<std::byte> raw) {
  if (previous.empty()) {
    std::memset(raw.data(), 0, raw.size());
  } else {
    std::memcpy(raw.data(), previous.data(), raw.size());
  }
  const size_t parts = PartsOf(static_cast<uint32_t>(raw.size() + 8));
  const uint32_t structure = StructureOf(node.version(), placement);
  for (size_t p = 0; p < parts; ++p) Part(raw.data() + p * kPartBytes).SetIdentity(0, structure);
  LeafParts leaf(raw, (uint32_t{1} << parts) - 1, RangeOf(node));
  const auto kept = KeepEntries(node, leaf.homes(), raw);
  for (size_t i = 0; i < node.count(); ++i) {
    if (kept[i]) continue;
    const uint64_t key = LoadBig64(node.image().data() + Fixed8::kKeys + 8 * i);
    const LeafParts::Place place = leaf.FindRoom(key, chain);
    if (place.outcome != LeafParts::Outcome::kYes) return false;
    Part(raw.data() + place.part * kPartBytes).Put(place.slot, key, node.Value(i).bytes.data());
    for (size_t at = leaf.homes().Of(key); at != place.part; at = leaf.Next(at)) {
      if (Mutated(Mutation::kPassedMarkForgotten)) break;
      Part(raw.data() + at * kPartBytes).SetPassed(true);
    }
  }
  return true;
}

}  // namespace

LeafRange RangeOf(const ConstNode& leaf) {
  if (!leaf.has_low() || !leaf.has_high()) return {};
  return {Fixed8::Low(leaf.image().data()), Fixed8::High(leaf.image().data())};
}

void PackPartedLeaf(const Geometry& geometry, const ConstNode& node,
                    std::span<const std::byte> previous, std::span<std::byte> raw,
                    Placement wanted) {
  FARLEAF_DCHECK(node.is_leaf() && geometry.layout == Layout::kFixed8);
  const size_t parts = PartsOf(geometry.leaf_bytes);
  FARLEAF_CHECK(node.count() <= parts * kPartSlots, node.count(), parts);
  const bool ordered =
      wanted == Placement::kOrdered && RangeOf(node).bounded() &&
      PlaceEntries(node, previous, Placement::kOrdered, OrderedChainPartsOf(parts), raw);
  const bool placed = ordered || PlaceEntries(node, previous, Placement::kHashed, parts, raw);
  FARLEAF_CHECK(placed, node.count(), parts);
  std::byte* const trailer = raw.data() + parts * kPartBytes;
  CopyHeader(node.image().data(), Fixed8::kLow, trailer, kLow);
  internal::SetPageCount(trailer, 0);
  StoreLittle(trailer + kTail, node.version());
  StoreLittle(trailer, TrailerChecksum(trailer));
  const uint64_t digest = TrailerDigest(geometry, trailer);
  const Placement placement = ordered ? Placement::kOrdered : Placement::kHashed;
  for (size_t p = 0; p < parts; ++p) {
    Part part(raw.data() + p * kPartBytes);
    part.SetIdentity(digest, StructureOf(node.version(), placement));
    part.Seal();
  }
}

}  // namespace farleaf::index
