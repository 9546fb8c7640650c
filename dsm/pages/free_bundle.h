// FreeBundle: how free pages are chained in the pool. Each memory server has, for each page class,
// a stack (Treiber 1986) whose elements are bundles: a free page whose body names further free
// pages, so that one pop brings many. Format: dsm/format.md.
//
// The stack's head word carries a tag that changes with every push and pop, so that a CAS cannot
// succeed on a head that was away and came back (22 bits: it would have to come back after exactly
// a multiple of 4 M changes within one round trip).
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/member.h"
#include "dsm/page_class.h"

namespace farleaf::dsm {

struct FreePage {
  uint64_t offset = 0;   ///< in its memory server's region
  uint64_t version = 0;  ///< last version written to it
};

/// Head of a list: bits 0..41 offset / 64 of the first bundle (0: empty), 42..63 tag.
struct FreeListHead {
  uint64_t offset = 0;
  uint32_t tag = 0;

  static constexpr int kOffsetBits = 42;
  uint64_t Encode() const { return offset / 64 | uint64_t{tag} << kOffsetBits; }
  static FreeListHead Decode(uint64_t word) {
    return {(word & ((uint64_t{1} << kOffsetBits) - 1)) * 64,
            static_cast<uint32_t>(word >> kOffsetBits)};
  }
  bool is_empty() const { return offset == 0; }
  /// The head after a push or pop that makes `new_offset` the first bundle.
  FreeListHead ChangedTo(uint64_t new_offset) const {
    return {new_offset, (tag + 1) & ((1u << (64 - kOffsetBits)) - 1)};
  }
};

/// The word of pages that are free in nobody's name, of one push: no other push has it, so that who saw it
/// before cannot take the page by CAS after it was in use and came back. `push`: 28 bits, counted by the
/// member.
inline uint64_t ListedWord(MemberIdentity pusher, uint32_t push) {
  return LockWord{.state = LockWord::State::kFreePage,
                  .owner = 0,
                  .incarnation = pusher.id,
                  .redo_slot = static_cast<uint16_t>(pusher.short_incarnation() & 0x3ff),
                  .sequence = push & kLockSequenceMax}
      .Encode();
}

struct FreeBundle {
  uint64_t next_offset = 0;                  ///< of the next bundle; 0: none
  uint64_t listed_word = ListedWord({}, 0);  ///< that all of its pages carry
  FreePage carrier;                          ///< the page that the bundle is written in
  std::vector<FreePage> others;
};

/// Pages named in one bundle at most, beside its carrier: bounds the verbs of one push.
inline constexpr uint32_t kBundlePagesMax = 60;

/// Where a bundle lies in its carrier: behind the first cache line of a leaf or search page (so
/// that its version stays) and before its tail (lock word); behind the 16-byte header of a value
/// block.
inline uint64_t BundleOffsetInPage(const PageClass& page_class) {
  return page_class.kind == ChunkKind::kValue ? 16 : 64;
}
/// How many other pages fit beside the carrier, and the bytes of a bundle that holds so many.
uint32_t BundlePagesMax(const PageClass& page_class);
uint64_t BundleBytes(uint32_t others);

/// REQUIRES: out.size() == BundleBytes(bundle.others.size()).
void EncodeBundle(const PageClass& page_class, const FreeBundle& bundle, std::span<std::byte> out);
/// `bytes` may be longer than the bundle. Corruption unless they are a bundle of pages of this
/// class in a region of this layout.
Result<FreeBundle> DecodeBundle(const PageClass& page_class, const RegionLayout& layout,
                                uint64_t carrier_offset, std::span<const std::byte> bytes);

/// Whether a page of this class may begin at `offset` of the region.
bool IsPageOffset(const PageClass& page_class, const RegionLayout& layout, uint64_t offset);

}  // namespace farleaf::dsm
