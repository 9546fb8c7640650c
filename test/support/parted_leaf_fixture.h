// What tests of parted leaves share: leaves built from maps, and the page read back by the format's own
// table of offsets (index/blink/parted_leaf.h), not by the code under test.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/fence_digest.h"
#include "index/blink/node.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

using Bytes = std::vector<std::byte>;
using LeafEntries = std::map<uint64_t, uint64_t>;

inline Geometry PartedGeometry(size_t parts) {
  const auto leaf_bytes = static_cast<uint32_t>(kLeafTrailerBytes + kPartBytes * parts);
  return {Layout::kFixed8, leaf_bytes, 1024, 8, 8, LeafLayout::kParted};
}
inline size_t LeafImageBytes(size_t parts) { return kLeafTrailerBytes + kPartBytes * parts - 8; }

inline std::string Big(uint64_t value) {
  std::string key(8, '\0');
  StoreBig64(key.data(), value);
  return key;
}

/// What a leaf says of itself, entries apart.
struct LeafHead {
  TreeId tree = 7;
  std::optional<uint64_t> low, high;
  uint64_t version = 1;
  bool dead = false;
  Placement wanted = Placement::kOrdered;

  LeafRange Range() const { return low && high ? LeafRange{*low, *high} : LeafRange{}; }
  bool Covers(uint64_t key) const { return (!low || key >= *low) && (!high || key < *high); }
  uint64_t Digest() const {
    if (dead) return 0;
    std::optional<std::string> low_key, high_key;
    if (low) low_key = Big(*low);
    if (high) high_key = Big(*high);
    return FenceDigest({0, tree}, low_key, high_key);
  }
  uint32_t Structure(Placement placement) const { return StructureOf(version, placement); }
};

/// The sorted, sealed node, in a heap block of exactly its size.
inline Bytes NodeOf(size_t parts, const LeafHead& head, const LeafEntries& entries) {
  const Geometry geometry = PartedGeometry(parts);
  Bytes image(LeafImageBytes(parts));
  Node node(geometry, image);
  std::optional<std::string> low, high;
  if (head.low) low = Big(*head.low);
  if (head.high) high = Big(*head.high);
  node.Init({head.tree, 0, low, high, head.high ? GlobalAddress(1, 0x20000) : GlobalAddress()});
  for (const auto& [key, value] : entries) {
    char text[8];
    StoreLittle(text, value);
    FARLEAF_CHECK(node.Insert(node.count(), Big(key), {{text, 8}, false}), node.count());
  }
  if (head.dead) node.MarkDead(GlobalAddress(1, 0x40000));
  node.Seal(head.version);
  return image;
}

inline Bytes PackedLeaf(size_t parts, const LeafHead& head, const LeafEntries& entries,
                        std::span<const std::byte> previous = {}) {
  const Geometry geometry = PartedGeometry(parts);
  const Bytes node = NodeOf(parts, head, entries);
  Bytes raw(LeafImageBytes(parts), std::byte{0xa5});
  PackPartedLeaf(geometry, ConstNode(geometry, node), previous, raw, head.wanted);
  return raw;
}

/// A whole-leaf reader. Nullopt: it would read again.
inline std::optional<LeafEntries> OpenedLeaf(size_t parts, std::span<const std::byte> raw) {
  const Geometry geometry = PartedGeometry(parts);
  Bytes image(LeafImageBytes(parts), std::byte{0xa5});
  if (OpenPartedLeaf(geometry, raw, image) != OpenOutcome::kValid) return std::nullopt;
  const ConstNode node(geometry, image);
  LeafEntries entries;
  for (size_t i = 0; i < node.count(); ++i) {
    entries[LoadBig64(node.Key(i).data())] = LoadLittle<uint64_t>(node.Value(i).bytes.data());
  }
  return entries;
}

/// A part as its bytes say.
struct PartBytes {
  uint32_t used = 0;
  bool passed = false;
  uint32_t structure = 0;
  uint64_t digest = 0;
  uint64_t key[kPartSlots] = {}, value[kPartSlots] = {};

  Placement placement() const {
    return structure >> 23 != 0 ? Placement::kOrdered : Placement::kHashed;
  }
  bool full() const { return used == 0x7f; }
  std::optional<size_t> SlotOf(uint64_t wanted) const {
    for (size_t i = 0; i < kPartSlots; ++i) {
      if ((used >> i & 1) != 0 && key[i] == wanted) return i;
    }
    return std::nullopt;
  }
};

inline PartBytes DecodedPart(std::span<const std::byte> image, size_t part) {
  const auto byte = [&](size_t offset) {
    return static_cast<uint64_t>(image[part * 128 + offset]);
  };
  const auto number = [&](size_t offset, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= byte(offset + i) << (8 * i);
    return value;
  };
  PartBytes decoded;
  decoded.used = static_cast<uint32_t>(byte(6) & 0x7f);
  decoded.passed = (byte(6) & 0x80) != 0;
  decoded.structure = static_cast<uint32_t>(byte(7) << 16 | number(14, 2));
  decoded.digest = number(8, 6);
  for (size_t i = 0; i < kPartSlots; ++i) {
    for (size_t b = 0; b < 8; ++b) decoded.key[i] = decoded.key[i] << 8 | byte(16 + 16 * i + b);
    decoded.value[i] = number(24 + 16 * i, 8);
  }
  return decoded;
}

/// The homes that a leaf gives to keys.
inline LeafHomes HomesOf(std::span<const std::byte> image, const LeafHead& head) {
  return {(image.size() + 8) / 128, DecodedPart(image, 0).placement(), head.Range()};
}

/// What the invariants of a leaf at rest have against this one, of which `entries` is the content; ""
/// if nothing. kExact: only the parts that an entry went past may say so.
enum class Marks : uint8_t { kEnough, kExact };
inline std::string LeafFault(std::span<const std::byte> image, const LeafHead& head,
                             const LeafEntries& entries, Marks marks) {
  const size_t parts = (image.size() + 8) / 128;
  LeafEntries seen;
  std::vector<bool> passed(parts, false);
  const LeafHomes homes = HomesOf(image, head);
  const Placement placement = DecodedPart(image, 0).placement();
  if (homes.ordered() != (placement == Placement::kOrdered)) return "ordered, and not bounded";
  for (size_t p = 0; p < parts; ++p) {
    const PartBytes part = DecodedPart(image, p);
    const std::string name = "part " + std::to_string(p);
    if (!ConstPart(image.data() + 128 * p).Intact()) return name + " is not intact";
    if (part.structure != head.Structure(placement)) return name + " has another structure";
    if (part.digest != head.Digest()) return name + " has another digest";
    for (size_t i = 0; i < kPartSlots; ++i) {
      if ((part.used >> i & 1) == 0) continue;
      if (!seen.emplace(part.key[i], part.value[i]).second) return name + " repeats a key";
      for (size_t at = homes.Of(part.key[i]); at != p; at = (at + 1) % parts) {
        if (!DecodedPart(image, at).passed) return name + ": way from home is not marked";
        passed[at] = true;
      }
    }
  }
  if (seen != entries) return "other entries";
  for (size_t p = 0; p < parts && marks == Marks::kExact; ++p) {
    if (DecodedPart(image, p).passed != passed[p])
      return "needless mark, part " + std::to_string(p);
  }
  return "";
}

/// A random key whose home is `home`.
inline uint64_t KeyOfHome(size_t home, const LeafHomes& homes, Random* random) {
  if (homes.ordered()) {
    const uint64_t first = homes.FirstKeyOf(home);
    return first + random->Below(homes.EndKeyOf(home) - first);
  }
  for (;;) {
    const uint64_t key = random->Next() >> (random->OneIn(2) ? 0 : 44);
    if (homes.Of(key) == home) return key;
  }
}
inline uint64_t KeyOfHome(size_t home, size_t parts, Random* random) {
  return KeyOfHome(home, LeafHomes(parts, Placement::kHashed, {}), random);
}

/// Keys that make a leaf's life hard, in ways chosen by `style`: anywhere; all of one home; of the last
/// two parts, so that what goes past wraps; of three neighbours; counting up.
inline constexpr uint64_t kKeyStyles = 5;
inline std::vector<uint64_t> AwkwardKeys(uint64_t style, const LeafHomes& homes, size_t count,
                                         Random* random) {
  std::vector<uint64_t> keys;
  const size_t parts = homes.parts(), home = random->Below(parts);
  const uint64_t first = homes.ordered() ? KeyOfHome(home / 2, homes, random) : random->Next() >> 1;
  while (keys.size() < count) {
    uint64_t key = 0;
    switch (style % kKeyStyles) {
      case 0:
        key = random->OneIn(20) ? 0 - random->Below(2) : random->Next();
        if (homes.ordered()) key = KeyOfHome(random->Below(parts), homes, random);
        break;
      case 1:
        key = KeyOfHome(home, homes, random);
        break;
      case 2:
        key = KeyOfHome(parts - 1 - random->Below(2), homes, random);
        break;
      case 3:
        key = KeyOfHome((home + random->Below(3)) % parts, homes, random);
        break;
      default:
        key = first + keys.size();
    }
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}
inline std::vector<uint64_t> AwkwardKeys(uint64_t style, size_t parts, size_t count,
                                         Random* random) {
  return AwkwardKeys(style, LeafHomes(parts, Placement::kHashed, {}), count, random);
}

}  // namespace farleaf::index
