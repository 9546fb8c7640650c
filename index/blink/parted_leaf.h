// The parted leaf of fixed8 trees: a leaf that is read and written in part.
//
// The page is `parts` parts of two cache lines each, then a trailer of one line whose last 8 bytes
// are the page's lock word. An entry stands in its home, the part that the leaf's placement gives its
// key (leaf_homes.h), or, where that was full, in one of the parts behind it (the last is followed by
// the first): every full part that it went past says so. So one part answers for a key, present or
// absent, unless it says that entries went past it; then the next one is asked too.
//
//   a part: offset  bytes  what
//           0       6      check of bytes [6, 128)
//           6       1      slots in use (bits 0..6); bit 7: entries went past this part
//           7       1      structure, bits 16..23
//           8       6      keyed digest of tree and fences (fence_digest.h); 0: the leaf is dead
//           14      2      structure, bits 0..15
//           16      7 x 16 slots: key (big-endian), value
//
//   trailer: a page header as of any node (page_header.h: CRC32C of the trailer's image behind it,
//           tree, level 0, flags, version, right sibling, count 0), low fence, high fence, the
//           version again, the lock word
//
// The structure is the low 23 bits of the leaf's version, which grows when the leaf is written whole
// (split, merge, another placement, reuse), not when a part changes, and the placement in bit 23: 1 is
// ordered. An entry moves to another part only when the structure changes.
//
// What a reader may conclude:
//   - one part, intact, whose digest is that of the cached fences: the leaf was alive with exactly
//     these fences when the part was read; if it is the key's home by the placement that it states, it
//     is the part to ask;
//   - several parts from one READ, all with the same structure: the leaf was not written whole in
//     between, and no entry that stayed throughout moved;
//   - the whole leaf: what it holds is what readers of parts find. While an insert that went past full
//     parts lands, its entry may be there before their marks: that is torn, or a reader of the home part
//     would deny what another one had seen before.
// The check is no CRC: 48 bits of a multiplicative hash, since 32 alone let one torn read in four
// thousand million pass, and a part has no version at its end.
//
// Invariants of a leaf at rest: all parts carry the same structure and digest, the trailer's; no key
// stands twice; an entry's home and every part between that and its own say that entries went past;
// a leaf is ordered only if it has both fences.
// Memory safety: whatever the bytes, no function leaves the image.
// Thread rule: views; as thread-safe as the bytes behind them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "dsm/base/bytes.h"
#include "index/blink/geometry.h"
#include "index/blink/leaf_homes.h"
#include "index/blink/node.h"

namespace farleaf::index {

inline constexpr uint32_t kPartBytes = 128;
inline constexpr uint32_t kLeafTrailerBytes = 64;  ///< lock word included
inline constexpr size_t kPartSlots = 7;
/// A leaf is split when the parts of one key are full, which is at about this fill.
inline constexpr double kPartedFillMax = 0.75;
/// An insert looks for room in so many parts, from the key's home on, before the leaf is split: a longer way makes up for what leaves
/// of more parts would be filled less (README.md, Why parts).
constexpr size_t ChainPartsOf(size_t parts) { return parts < 20 ? 3 : 4; }
/// A leaf that is written whole is ordered if its entries find room in so many: some is left for others.
constexpr size_t OrderedChainPartsOf(size_t parts) { return ChainPartsOf(parts) - 1; }
inline constexpr uint32_t kStructureVersionMask = 0x7fffff, kStructureOrdered = 0x800000;

constexpr uint32_t StructureOf(uint64_t version, Placement placement) {
  return static_cast<uint32_t>(version & kStructureVersionMask) |
         (placement == Placement::kOrdered ? kStructureOrdered : 0);
}

constexpr size_t PartsOf(uint32_t leaf_bytes) {
  return (leaf_bytes - kLeafTrailerBytes) / kPartBytes;
}

/// A key's or a value's 8 bytes; without a call where the string has that length already.
inline void AssignWord(const std::byte* word, std::string* out) {
  if (out->size() != 8) out->assign(8, '\0');
  std::memcpy(out->data(), word, 8);
}

/// Read-only view of one part.
class ConstPart {
 public:
  explicit ConstPart(const std::byte* data) : data_(data) {}

  bool Intact() const;
  uint64_t digest() const { return LoadLittle<uint64_t>(data_ + 8) & ((uint64_t{1} << 48) - 1); }
  uint32_t structure() const {
    return uint32_t{LoadLittle<uint8_t>(data_ + 7)} << 16 | LoadLittle<uint16_t>(data_ + 14);
  }
  Placement placement() const {
    return (LoadLittle<uint8_t>(data_ + 7) & 0x80) != 0 ? Placement::kOrdered : Placement::kHashed;
  }
  uint32_t used() const { return LoadLittle<uint8_t>(data_ + 6) & kSlotMask; }  ///< bit i: slot i
  bool full() const { return used() == kSlotMask; }
  /// Bits in used(); without an instruction for it, which not every processor has, std::popcount is a call.
  size_t count() const { return kBitsOf[used()]; }
  bool passed() const { return (LoadLittle<uint8_t>(data_ + 6) & kPassed) != 0; }
  uint64_t key(size_t slot) const { return LoadBig64(data_ + SlotOffset(slot)); }
  const std::byte* key_bytes(size_t slot) const { return data_ + SlotOffset(slot); }
  const std::byte* value(size_t slot) const { return data_ + SlotOffset(slot) + 8; }
  /// The slot that holds `key`; kPartSlots if none does.
  size_t Find(uint64_t key) const {
    const uint64_t wanted = __builtin_bswap64(key);
    uint32_t equal = 0;
    for (size_t i = 0; i < kPartSlots; ++i) {
      equal |= static_cast<uint32_t>(LoadLittle<uint64_t>(data_ + SlotOffset(i)) == wanted) << i;
    }
    equal &= used();
    return equal == 0 ? kPartSlots : static_cast<size_t>(std::countr_zero(equal));
  }

  static constexpr size_t SlotOffset(size_t slot) { return 16 + 16 * slot; }

 protected:
  static constexpr uint8_t kSlotMask = 0x7f, kPassed = 0x80;
  static constexpr std::array<uint8_t, kSlotMask + 1> kBitsOf = [] {
    std::array<uint8_t, kSlotMask + 1> bits{};
    for (size_t i = 1; i < bits.size(); ++i) bits[i] = static_cast<uint8_t>(bits[i / 2] + i % 2);
    return bits;
  }();
  uint64_t Check() const;
  const std::byte* data_;
};

/// A view that writes. After the last change call Seal.
class Part : public ConstPart {
 public:
  explicit Part(std::byte* data) : ConstPart(data), out_(data) {}

  void SetIdentity(uint64_t digest, uint32_t structure);
  void Put(size_t slot, uint64_t key, const void* value);
  void SetValue(size_t slot, const void* value);
  void Clear(size_t slot) { SetState(used() & ~(1u << slot), passed()); }
  void SetPassed(bool passed) { SetState(used(), passed); }
  void Seal();

 private:
  void SetState(uint32_t used, bool passed) {
    SetByte(6, static_cast<uint8_t>(used | (passed ? kPassed : 0)));
  }
  /// Of the first word, which is stored as one: the check loads it so, and would wait for a narrower store to leave the
  /// processor's store buffer.
  void SetByte(size_t at, uint8_t byte);
  std::byte* out_;
};

/// The parts of one leaf that are in hand: a buffer of the page's shape, of which some parts hold
/// what was read.
class LeafParts {
 public:
  /// `image`: the page without its lock word; `loaded`: bit i: part i; `range`: the leaf's fences, by which
  /// keys have the homes that the placement stated by the parts gives them.
  LeafParts(std::span<std::byte> image, uint32_t loaded, LeafRange range)
      : data_(image.data()),
        parts_(PartsOf(static_cast<uint32_t>(image.size() + 8))),
        loaded_(loaded),
        homes_(parts_, StatedPlacement(), range) {}

  enum class Outcome : uint8_t {
    kYes,
    kNo,
    kNotLoaded,  ///< it depends on `part`, which is not in hand
  };
  struct Place {
    Outcome outcome = Outcome::kNo;
    size_t part = 0;
    size_t slot = 0;
  };
  /// Where the key stands.
  Place Find(uint64_t key) const;
  /// Where a key that stands nowhere may go, at most `chain` parts from its home on. kNo: all are full.
  Place FindRoom(uint64_t key, size_t chain) const;

  void SetValue(const Place& place, const void* value);
  /// Puts an entry where FindRoom said, and marks the parts that it went past.
  void Put(const Place& place, uint64_t key, const void* value);
  void Remove(const Place& place);

  /// Whether all that is loaded is intact and has this digest, and all have one structure.
  bool Fits(uint64_t digest) const;
  /// Whether something that is loaded, intact or not, has it.
  bool HasDigest(uint64_t digest) const;

  const LeafHomes& homes() const { return homes_; }
  size_t parts() const { return parts_; }
  uint32_t loaded() const { return loaded_; }
  uint32_t all() const { return (uint32_t{1} << parts_) - 1; }
  bool whole() const { return loaded_ == all(); }
  /// Entries in what is loaded.
  size_t count() const;
  ConstPart part(size_t i) const { return ConstPart(data_ + i * kPartBytes); }
  size_t Next(size_t part) const { return part + 1 == parts_ ? 0 : part + 1; }
  bool Has(size_t part) const { return (loaded_ >> part & 1) != 0; }

 private:
  Placement StatedPlacement() const {
    if (loaded_ == 0) return Placement::kHashed;
    return part(static_cast<size_t>(std::countr_zero(loaded_))).placement();
  }
  Part Mutable(size_t i) { return Part(data_ + i * kPartBytes); }
  std::byte* data_;
  size_t parts_;
  uint32_t loaded_;
  LeafHomes homes_;
};

/// The fences of a leaf's node, if it has both.
LeafRange RangeOf(const ConstNode& leaf);

/// Verifies a leaf's whole image and turns it into the sorted node that ConstNode views, of the same
/// size. A key that stands twice or where nobody looks for it, parts of two structures: torn.
OpenOutcome OpenPartedLeaf(const Geometry& geometry, std::span<const std::byte> raw,
                           std::span<std::byte> node);
/// The reverse, with the node's version. What stands in `previous` (the leaf's image before; empty:
/// none) keeps its place if it stays, and that is its home still. `wanted`: kOrdered: ordered if there are
/// two fences and the keys are spread evenly enough. REQUIRES: at most kPartSlots entries a part.
void PackPartedLeaf(const Geometry& geometry, const ConstNode& node,
                    std::span<const std::byte> previous, std::span<std::byte> raw,
                    Placement wanted = Placement::kOrdered);

}  // namespace farleaf::index
