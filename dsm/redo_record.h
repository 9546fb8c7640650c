// RedoRecord: what a compute server leaves in the lock's redo slot ahead of each locked write-back,
// so that whoever finds it dead can finish the write-back (dsm/format.md has picture and example).
//
//   offset  bytes  what
//   0       4      CRC32C of bytes [4, record_bytes)
//   4       2      record_bytes: a multiple of 8, header included
//   6       1      RedoKind, 3 bits; the page's level, 5 bits
//   7       1      the tree that the page belongs to
//   8       8      the lock word of this acquisition
//   16      8      the page
//   24      8      number of the write-back: the page's version after it
//   32      8      follow-up page, 0: none
//   40      8      the follow-up page's lock word, 0: none
//   48      ...    ranges, ascending: offset:2 length:2 0:4 bytes[length]
//
// A plain change, with nothing to follow, is the most frequent record: bytes 32..47 are left out, and
// the kind in byte 6 is 5.
//
// A range is an after-image of bytes of the page, in whole 8-byte words. Applying all of them to any
// mix of the page's words before and after the write-back gives the page after it, as often as one
// likes; the record of a later write-back under the same lock word replaces that of an earlier one,
// which by then has completed.
//
// Invariant: a record is at most kRedoSlotBytes long, whatever changed in a page of up to
// kRedoImageBytesMax.
// Thread rule: pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dsm/address.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

/// What else there is to be done when the write-back of the page is.
enum class RedoKind : uint8_t {
  kChange = 0,     ///< nothing; or the follow-up block, whose unique id is the word, is to be freed
  kMergeLeft = 1,  ///< the follow-up page, locked with the follow-up word, dies into this page
  kNewPage =
      2,  ///< the page is new and may not be linked yet, by the follow-up page (null: a root)
  /// The page may be about to die, into the follow-up page (null: a root, into its only child). Such
  /// a record has no ranges, and stands before anything is written that makes the page die.
  kDying = 3,
  kSplitLeft =
      4,  ///< the write-back links the follow-up page, new and locked with the follow-up word
};
inline constexpr uint8_t kRedoKindMax = 4;
inline constexpr uint8_t kRedoLevelMax = 31;

inline constexpr size_t kRedoHeaderBytes = 48;
inline constexpr size_t kRedoPlainHeaderBytes = 32;  ///< of a change with nothing to follow
inline constexpr size_t kRedoRangeHeaderBytes = 8;
/// The longest image whose record always fits into a slot.
inline constexpr size_t kRedoImageBytesMax =
    kRedoSlotBytes - kRedoHeaderBytes - kRedoRangeHeaderBytes;
/// Room for the record of a changed image of this length.
constexpr size_t RedoBytesMax(size_t image_bytes) {
  return kRedoHeaderBytes + kRedoRangeHeaderBytes + image_bytes;
}

struct RedoHead {
  RedoKind kind = RedoKind::kChange;
  uint64_t lock_word = 0;
  GlobalAddress page;
  uint64_t write_back = 0;
  GlobalAddress follow_up;
  uint64_t follow_up_word = 0;
  uint8_t level = 0;  ///< of the page, at most kRedoLevelMax
  uint8_t tree = 0;   ///< that the page belongs to
  bool operator==(const RedoHead&) const = default;

  /// A change with nothing to follow.
  bool plain() const {
    return kind == RedoKind::kChange && follow_up.is_null() && follow_up_word == 0;
  }
  size_t header_bytes() const { return plain() ? kRedoPlainHeaderBytes : kRedoHeaderBytes; }
};

struct RedoRecord : RedoHead {
  std::span<const std::byte> ranges;  ///< as they stand in the slot; checked by ParseRedo
};

/// Bytes of a page, in whole words.
struct RedoExtent {
  uint32_t offset = 0, length = 0;
};

/// Writes the record of a write-back that turns `before` into `after` (both empty: one that changes
/// nothing) and returns its length. REQUIRES: equal sizes, multiples of 8, at most
/// kRedoImageBytesMax; `out` has room for RedoBytesMax.
size_t EncodeRedo(const RedoHead& head, std::span<const std::byte> before,
                  std::span<const std::byte> after, std::span<std::byte> out);
/// The same, of a write-back that changes nothing outside of `extents` (ascending, apart): `before` and
/// `after` need to be right only there.
size_t EncodeRedo(const RedoHead& head, std::span<const std::byte> before,
                  std::span<const std::byte> after, std::span<const RedoExtent> extents,
                  std::span<std::byte> out);
/// The ranges of the record that EncodeRedo made with this head: how many, and the first of them that `out`
/// has room for.
size_t RedoExtents(const RedoHead& head, std::span<const std::byte> record,
                   std::span<RedoExtent> out);
/// The same record under another head, for a taker's slot. `out`: kRedoHeaderBytes + ranges.
size_t CopyRedo(const RedoRecord& record, uint64_t lock_word, std::span<std::byte> out);

/// The record that the bytes of a slot begin with; nullopt if that is none, or half of one. Any
/// bytes may be given. The result refers to `slot`.
std::optional<RedoRecord> ParseRedo(std::span<const std::byte> slot);

/// Puts the after-images into `image`. False, and nothing is changed, if one lies outside.
bool ApplyRedo(const RedoRecord& record, std::span<std::byte> image);

}  // namespace farleaf::dsm
