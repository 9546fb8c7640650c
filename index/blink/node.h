// Node: the pages of the tree as pure functions over bytes, for both layouts. No transport here.
//
// A page is leaf_bytes or node_bytes long (geometry.h); its last 8 bytes are the lock word, which no function here touches: a
// node's image is the page without it, and is what one READ or WRITE moves.
//
//   offset            bytes  what
//   0                 4      CRC32C of image[4, image_bytes)
//   4                 2      tree id
//   6                 1      level
//   7                 1      flags: 1 dead, 2 no high fence (rightmost), 4 no low fence (leftmost;
//                            the low fence is then the empty key, or 0 for fixed8)
//   8                 8      version: grows with every write of the page, for ever, reuse included
//   16                8      right sibling; of a dead node: the node that took over its range
//   24                2      count of entries
//   26                6      layout's own
//   32                ...    layout's own: fences and entries
//   image_bytes - 8   8      version again
//   image_bytes       8      lock word (dsm/region_layout.h), outside the checksum
//
// Keys are passed as byte strings (fixed8: 8 bytes, big-endian). A node covers low <= key < high.
// An internal node's entry i is (separator i, child i); separator 0 is the low fence itself and is
// not stored twice. Child i serves separator i <= key < separator i+1.
//
// Invariants of a valid image (Open): checksum and both versions agree; the entries are inside the
// page; what the layout's format.md says of order is the writer's duty and checked by Validate().
// Thread rule: views; as thread-safe as the bytes behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dsm/address.h"
#include "dsm/base/status.h"
#include "index/blink/geometry.h"
#include "index/blink/node_bytes.h"
#include "index/blink/node_fixed8.h"
#include "index/blink/page_header.h"

namespace farleaf::index {

using dsm::GlobalAddress;

enum class OpenOutcome : uint8_t {
  kValid,
  kTorn,       ///< checksum or versions disagree: read it again
  kMalformed,  ///< checksum holds but the contents cannot be a node: a bug or another program
};

/// Where a value that does not fit inline lives. 24 bytes in the leaf's entry.
struct OutOfLineValue {
  GlobalAddress block;
  uint64_t unique_id = 0;  ///< also in the block's header: a reused block is not mistaken
  uint32_t length = 0;     ///< of the value
  bool operator==(const OutOfLineValue&) const = default;
};
inline constexpr size_t kOutOfLineBytes = 24;

/// A leaf entry's value as stored: the value itself, or where it is.
struct StoredValue {
  std::string_view bytes;  ///< inline value, or an encoded OutOfLineValue
  bool out_of_line = false;
};
void EncodeOutOfLine(const OutOfLineValue& value, char (&out)[kOutOfLineBytes]);
OutOfLineValue DecodeOutOfLine(std::string_view bytes);  ///< REQUIRES: kOutOfLineBytes long

/// Read-only view of an image that Open accepted.
class ConstNode {
 public:
  /// Checks an image that came from remote memory.
  static OpenOutcome Open(const Geometry& geometry, std::span<const std::byte> image);
  /// The page's size is the image's. REQUIRES: Open(geometry, image) was kValid, or a Node built it;
  /// `geometry` outlives the view.
  ConstNode(const Geometry& geometry, std::span<const std::byte> image)
      : geometry_(&geometry),
        data_(image.data()),
        image_bytes_(static_cast<uint32_t>(image.size())) {}

  const Geometry& geometry() const { return *geometry_; }
  std::span<const std::byte> image() const { return {data_, image_bytes_}; }
  TreeId tree() const;
  Level level() const;
  bool is_leaf() const { return level() == 0; }
  bool dead() const;
  uint64_t version() const;
  /// Null if rightmost.
  GlobalAddress right() const;
  /// Of a dead node: where its range went.
  GlobalAddress forward() const { return right(); }
  size_t count() const;

  bool has_low() const;      ///< false: leftmost, covers from the smallest key
  bool has_high() const;     ///< false: rightmost, covers to the largest key
  std::string low() const;   ///< empty if !has_low() (bytes) / 8 zero bytes (fixed8)
  std::string high() const;  ///< REQUIRES: has_high()
  bool BelowLow(std::string_view key) const;      ///< key < low
  bool AtOrPastHigh(std::string_view key) const;  ///< key >= high
  /// Of a search for the node just below `key`: move right when key > high.
  bool PastHigh(std::string_view key) const;  ///< has_high() and key > high
  bool Covers(std::string_view key) const { return !BelowLow(key) && !AtOrPastHigh(key); }
  bool LowEquals(std::string_view key) const;   ///< has_low() and low == key
  bool HighEquals(std::string_view key) const;  ///< has_high() and high == key

  /// Key (leaf) or separator (internal; 0 is the low fence) of entry i, appended to `out`.
  void AppendKey(size_t i, std::string* out) const;
  std::string Key(size_t i) const;
  /// Three-way comparison of entry i's key with `key`: <0, 0, >0.
  int CompareKey(size_t i, std::string_view key) const;

  // Leaves.
  struct Position {
    size_t index = 0;    ///< of the first entry whose key is >= the searched one
    bool found = false;  ///< that entry's key is equal
  };
  Position Search(std::string_view key) const;
  StoredValue Value(size_t i) const;
  /// Of byte strings: entry i's key beside the low fence. The same as ProbeBeside(low(), key).
  internal::BytesProbe KeyProbe(size_t i) const;

  // Internal nodes. REQUIRES: count() > 0 (always so in a valid internal node).
  GlobalAddress Child(size_t i) const;
  /// The last i with separator i <= key. REQUIRES: !BelowLow(key).
  size_t ChildIndexFor(std::string_view key) const;
  /// The last i with separator i < key, for "the child just below key"; 0 if none.
  size_t ChildIndexBelow(std::string_view key) const;

  /// Bytes in use of those that entries may take (slots and common-prefix savings counted as they
  /// are stored), and how many there are: used <= capacity.
  size_t used_bytes() const;
  size_t capacity_bytes() const;

  /// Everything that can be checked within one node: order, bounds, fences around keys. Corruption
  /// says what is wrong.
  Status Validate() const;
  /// The same of an image that was opened, and may have been changed and not sealed since.
  Status ValidateOpened() const;

 protected:
  bool is_fixed8() const { return geometry_->layout == Layout::kFixed8; }
  uint8_t flags() const { return internal::PageFlags(data_); }
  uint32_t page_bytes() const { return image_bytes_ + 8; }
  internal::BytesPage bytes_page() const { return {*geometry_, image()}; }

  const Geometry* geometry_;
  const std::byte* data_;
  uint32_t image_bytes_;
};

/// What is inserted while a node is split.
struct PendingEntry {
  std::string_view key;
  StoredValue value;      ///< leaf
  GlobalAddress child;    ///< internal
  bool replaces = false;  ///< leaf: an entry with this key exists and gets this value instead
};

/// A view that writes. The image belongs to the caller; after the last change call Seal.
class Node : public ConstNode {
 public:
  Node(const Geometry& geometry, std::span<std::byte> image) : ConstNode(geometry, image) {}

  struct Header {
    TreeId tree = 0;
    Level level = 0;
    std::optional<std::string_view> low;   ///< nullopt: leftmost
    std::optional<std::string_view> high;  ///< nullopt: rightmost
    GlobalAddress right;
  };
  /// An empty node; zeroes the whole image. Version is set by Seal.
  void Init(const Header& header);

  /// Inserts at the position that Search gave with found == false. False: it does not fit (nothing
  /// changed).
  bool Insert(size_t i, std::string_view key, StoredValue value);
  bool ReplaceValue(size_t i, StoredValue value);
  void Remove(size_t i);

  /// Inserts (separator, child) as entry i, 1 <= i <= count; i == 0 only into an empty node, where
  /// the separator must be the low fence. False: it does not fit.
  bool InsertChild(size_t i, std::string_view separator, GlobalAddress child);
  void SetChild(size_t i, GlobalAddress child);
  /// REQUIRES: i >= 1 (entry 0 stands for the low fence; use SetChild).
  void RemoveChild(size_t i);

  void set_right(GlobalAddress right);
  /// Marks the node dead, with `forward` the node that took over its range. Keeps fences.
  void MarkDead(GlobalAddress forward);
  /// Writes the version (both places) and the checksum.
  void Seal(uint64_t version);
  /// Writes the version alone, where the image is not what stands in the pool (leaf_codec.h).
  void SetVersion(uint64_t version);

 private:
  std::byte* bytes() { return const_cast<std::byte*>(data_); }
  internal::BytesPageWriter bytes_writer() { return {*geometry_, {bytes(), image_bytes_}}; }
};

/// Distributes `full` and `pending` over `left` and `right` (images other than full's), which get
/// Init'ed, unsealed: left covers [full.low, separator), right [separator, full.high). right's
/// right sibling is full's; left's is `right_address`. Returns the separator (in a leaf of byte
/// strings the shortest that separates). Halves by bytes, save that an insert at the very end of a
/// rightmost node leaves left nearly full (ascending loads), and likewise at the very front of a
/// leftmost node is halved as usual. Always succeeds for entries within the geometry's limits.
std::string SplitNode(const ConstNode& full, const PendingEntry& pending,
                      GlobalAddress right_address, Node* left, Node* right);

/// Whether left's and right's entries fit in one node filled to at most `fill_max` (0..1) of its
/// capacity, under left's low and right's high fence. REQUIRES: same level, left.high == right.low.
bool FitsMerged(const ConstNode& left, const ConstNode& right, double fill_max);
/// Builds the merged node into `out` (unsealed), right sibling = right.right(). For internal nodes
/// a first child of `right` equal to left's last child is dropped (one run of the same child).
/// REQUIRES: FitsMerged(left, right, 1.0).
void MergeNodes(const ConstNode& left, const ConstNode& right, Node* out);

// What a search for a key runs through, inline: one predictable branch on the layout.

inline TreeId ConstNode::tree() const {
  return internal::Field<uint16_t>(data_, offsetof(internal::PageHeader, tree));
}
inline Level ConstNode::level() const { return internal::PageLevel(data_); }
inline bool ConstNode::dead() const { return (flags() & internal::kFlagDead) != 0; }
inline uint64_t ConstNode::version() const {
  return internal::Field<uint64_t>(data_, offsetof(internal::PageHeader, version));
}
inline GlobalAddress ConstNode::right() const {
  return GlobalAddress::FromWord(
      internal::Field<uint64_t>(data_, offsetof(internal::PageHeader, right)));
}
inline size_t ConstNode::count() const { return internal::PageCount(data_); }
inline bool ConstNode::has_low() const { return (flags() & internal::kFlagNoLow) == 0; }
inline bool ConstNode::has_high() const { return (flags() & internal::kFlagNoHigh) == 0; }

inline bool ConstNode::BelowLow(std::string_view key) const {
  if (is_fixed8()) return LoadBig64(key.data()) < internal::Fixed8::Low(data_);
  return key < bytes_page().Low();
}
inline bool ConstNode::AtOrPastHigh(std::string_view key) const {
  if (!has_high()) return false;
  if (is_fixed8()) return LoadBig64(key.data()) >= internal::Fixed8::High(data_);
  return key >= bytes_page().High();
}
inline bool ConstNode::PastHigh(std::string_view key) const {
  if (!has_high()) return false;
  if (is_fixed8()) return LoadBig64(key.data()) > internal::Fixed8::High(data_);
  return key > bytes_page().High();
}

inline ConstNode::Position ConstNode::Search(std::string_view key) const {
  using internal::Fixed8;
  if (is_fixed8()) {
    const uint64_t wanted = LoadBig64(key.data());
    const size_t entries = count();
    const std::byte* keys = data_ + Fixed8::kKeys;
    const size_t i = Fixed8::CountBelow(keys, entries, wanted);
    return {i, i < entries && LoadBig64(keys + 8 * i) == wanted};
  }
  const internal::BytesProbe probe = bytes_page().Probe(key);
  const size_t i = bytes_page().Search(0, probe, internal::BytesPage::Bound::kLower);
  return {i, i < count() && bytes_page().Compare(i, probe) == 0};
}

inline StoredValue ConstNode::Value(size_t i) const {
  using internal::Fixed8;
  if (is_fixed8()) {
    return {internal::PageChars(data_, Fixed8::ValueOffset(page_bytes(), i), 8), false};
  }
  const internal::BytesSlot slot = bytes_page().Slot(i);
  return {bytes_page().Value(slot), slot.out_of_line};
}

inline internal::BytesProbe ConstNode::KeyProbe(size_t i) const {
  const internal::BytesSlot slot = bytes_page().Slot(i);
  return {bytes_page().Rest(slot), slot.shared, slot.head};
}

inline GlobalAddress ConstNode::Child(size_t i) const {
  return GlobalAddress::FromWord(LoadLittle<uint64_t>(Value(i).bytes.data()));
}

inline size_t ConstNode::ChildIndexFor(std::string_view key) const {
  if (is_fixed8()) return internal::Fixed8::ChildIndexFor(data_, LoadBig64(key.data()));
  return bytes_page().Search(1, bytes_page().Probe(key), internal::BytesPage::Bound::kUpper) - 1;
}

inline size_t ConstNode::ChildIndexBelow(std::string_view key) const {
  if (is_fixed8()) return internal::Fixed8::ChildIndexBelow(data_, LoadBig64(key.data()));
  return bytes_page().Search(1, bytes_page().Probe(key), internal::BytesPage::Bound::kLower) - 1;
}

}  // namespace farleaf::index
