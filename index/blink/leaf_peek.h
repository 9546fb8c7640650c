// LeafPeek: looks for a key in a leaf of byte strings where it lies, by loads, instead of reading all of it.
//
// The checksum covers the whole image, so it cannot tell whether a few words of it stood there together. The lock word
// and the version can, where each load is a READ that is awaited before the next (dsm::Transport::Mapped):
//
//   version v1 · lock word, unlocked · what is looked at · lock word, unlocked · version v2 = v1
//
// Why all that was looked at stood in the leaf together when the second lock word was loaded: suppose that a
// write-back W changed some of it meanwhile. W took the lock, wrote the version (it grows with every write-back) and the
// rest in any order, and unlocked.
//   - W had not taken the lock at the first lock word: if anything of W was seen, the lock word behind it shows W's lock, or
//     that W is over; then v2, loaded still later, is not v1. If nothing of W was seen, it changed nothing for us.
//   - W had the lock then: it was not unlocked, and the peek has ended.
//   - W was over then: all that was looked at came behind it.
// The version is loaded ahead of the first lock word, or W's could be taken for v1 while W still wrote; and behind the second,
// or a W that began meanwhile could write it after that. A write-back that the dead left half-way keeps its lock word until whoever took
// it over has written the rest. Pages that are freed change their lock word, and their version before that.
//
// Until then anything may have been seen: every extent is checked before it is used. What the page holds other than a
// leaf of this tree is told by tree, level and both versions, as a checksum would.
//
// Thread rule: one owner; the page is shared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dsm/base/bytes.h"
#include "dsm/base/shared_copy.h"
#include "dsm/region_layout.h"
#include "index/blink/geometry.h"
#include "index/blink/node.h"
#include "index/blink/page.h"

namespace farleaf::index {

/// A page in memory that this process loads from.
class MappedPage {
 public:
  explicit MappedPage(const std::byte* page = nullptr) : page_(page) {}
  uint64_t Word(size_t offset) const {
    auto* const word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(page_ + offset));
    return std::atomic_ref(*word).load(std::memory_order_acquire);
  }
  void Prefetch(size_t offset) const {
    __builtin_prefetch(page_ + offset);
    // GCC takes a function that does nothing but prefetch for one without effect, and drops its calls.
    asm volatile("" ::"r"(page_ + offset));
  }
  /// `offset` and `bytes` are multiples of 8.
  void Copy(size_t offset, size_t bytes, std::byte* to) const {
    CopyFromShared(to, page_ + offset, bytes);
  }

 private:
  const std::byte* page_;
};

enum class PeekOutcome : uint8_t {
  kFound,
  kOutOfLine,  ///< found; what Value() loads is not the value, but where it is
  kAbsent,
  kNotHere,  ///< nothing is known: locked, another leaf's key, or not to be told by a peek
};

template <typename Page>
class BasicLeafPeek {
 public:
  BasicLeafPeek() = default;
  BasicLeafPeek(const Geometry& geometry, TreeId tree, Page page)
      : geometry_(&geometry), page_(page), tree_(tree) {}

  /// Looks for the key. What was loaded stands in `image`, at its place; the rest of it is not touched. To be believed when
  /// Holds() says so.
  PeekOutcome Find(std::string_view key, PageBuffer& image) {
    const auto outcome = BeginFind(key, image);
    return outcome ? *outcome : EndFind(image);
  }
  /// The same in two steps, so that looks for several keys overlap: the first goes by the slots alone, if they tell which
  /// entry would be the key's. nullopt: EndFind is to look at that, with the image of the first or any other.
  std::optional<PeekOutcome> BeginFind(std::string_view key, PageBuffer& image) {
    Begin();
    if (page_.Word(image_bytes()) != dsm::kUnlockedWord || version_ == 0) {
      return PeekOutcome::kNotHere;
    }
    if (!LoadSlots(image)) return PeekOutcome::kNotHere;
    const ConstNode node(*geometry_, image.image(*geometry_, 0));
    if (node.tree() != tree_ || node.level() != 0 || node.dead() || node.version() != version_ ||
        node.AtOrPastHigh(key)) {
      return PeekOutcome::kNotHere;
    }
    return SearchSlots(key, image);
  }
  /// REQUIRES: BeginFind gave nullopt, and its key is still there.
  PeekOutcome EndFind(PageBuffer& image) {
    Load(slot_.offset, slot_.rest, image);
    const std::string_view rest = internal::PageChars(image.bytes, slot_.offset, slot_.rest);
    return internal::CompareRests(rest, rest_) == 0 ? FoundOutcome() : PeekOutcome::kAbsent;
  }
  /// Loads the first words and the last, beside the value all that its replacement changes. Find has done so, if `image`
  /// has been no other leaf's since.
  void LoadEnds(PageBuffer& image) {
    Load(0, kEndBytes, image);
    Load(image_bytes() - internal::kTailBytes, internal::kTailBytes, image);
  }
  /// Loads the value that was found. REQUIRES: Find gave kFound or kOutOfLine.
  std::string_view Value(PageBuffer& image) {
    Load(slot_.offset + slot_.rest, slot_.value, image);
    return internal::PageChars(image.bytes, slot_.offset + slot_.rest, slot_.value);
  }
  /// Begins to fetch what Find and Holds will load: the lock word and the version in front of it; so much from the page's
  /// beginning.
  void PrefetchLock() const { page_.Prefetch(image_bytes()); }
  void PrefetchFirst(size_t bytes) const {
    for (size_t at = 0; at < bytes; at += 64) page_.Prefetch(at);
  }
  /// Begins to fetch what EndFind and Value will load. REQUIRES: BeginFind gave nullopt, or Find has found the key.
  void PrefetchEntry() const {
    const size_t end = value_offset() + slot_.value;
    for (size_t at = slot_.offset; at < end; at += 64) page_.Prefetch(at);
    page_.Prefetch(end - 1);
  }
  /// Where it begins in the page.
  size_t value_offset() const { return slot_.offset + slot_.rest; }
  /// Whether all that was loaded stood in the leaf just now.
  bool Holds() const { return page_.Word(image_bytes()) == dsm::kUnlockedWord && SameVersion(); }
  /// The same for whoever has taken the leaf's lock since.
  bool SameVersion() const { return page_.Word(kVersionAt) == version_; }
  uint64_t version() const { return version_; }
  size_t loaded_bytes() const { return loaded_bytes_; }

 private:
  using BytesPage = internal::BytesPage;
  using BytesSlot = internal::BytesSlot;
  static constexpr size_t kVersionAt = offsetof(internal::PageHeader, version);
  static constexpr size_t kFirstBytes = 128;
  static constexpr size_t kEndBytes = 16;  // checksum and version
  static_assert(kFirstBytes <= kPageBytesMin - 8);

  size_t image_bytes() const { return geometry_->image_bytes(0); }
  void Begin() {
    version_ = page_.Word(kVersionAt);
    loaded_bytes_ = 4 * sizeof(uint64_t);  // lock word and version, twice
  }
  /// Whole words around the extent. REQUIRES: it is inside the image.
  void Load(size_t offset, size_t bytes, PageBuffer& image) {
    const size_t begin = offset / 8 * 8, end = RoundUp(offset + bytes, 8);
    page_.Copy(begin, end - begin, image.bytes + begin);
    loaded_bytes_ += end - begin;
  }
  /// Header, fences, slots and the version at the end, if they may be a leaf's.
  bool LoadSlots(PageBuffer& image) {
    Load(0, kFirstBytes, image);
    Load(image_bytes() - internal::kTailBytes, internal::kTailBytes, image);
    const std::byte* const page = image.bytes;
    const size_t low = internal::Field<uint16_t>(page, BytesPage::kLowLength),
                 high = internal::Field<uint16_t>(page, BytesPage::kHighLength);
    heap_begin_ = internal::Field<uint16_t>(page, BytesPage::kHeapBegin);
    count_ = internal::PageCount(page);
    const size_t slots_end = BytesPage::kFences + low + high + count_ * BytesSlot::kBytes;
    if (low > geometry_->key_bytes_max || high > geometry_->key_bytes_max ||
        slots_end > heap_begin_ || heap_begin_ > heap_end() ||
        (internal::PageFlags(page) & ~internal::kFlagsAll) != 0 ||
        internal::Field<uint64_t>(page, heap_end()) != version_) {
      return false;
    }
    if (slots_end > kFirstBytes) Load(kFirstBytes, slots_end - kFirstBytes, image);
    return true;
  }
  size_t heap_end() const { return image_bytes() - internal::kTailBytes; }

  bool IsInside(const BytesSlot& slot) const {
    return slot.offset >= heap_begin_ && slot.offset + slot.rest + slot.value <= heap_end();
  }
  PeekOutcome FoundOutcome() const {
    if (!slot_.out_of_line) return PeekOutcome::kFound;
    return slot_.value == kOutOfLineBytes ? PeekOutcome::kOutOfLine : PeekOutcome::kNotHere;
  }
  /// nullopt: `slot_` alone may be the key's.
  std::optional<PeekOutcome> SearchSlots(std::string_view key, PageBuffer& image) {
    const BytesPage page(*geometry_, image.image(*geometry_, 0));
    const internal::BytesProbe probe = page.Probe(key);
    if (probe.below_low) return PeekOutcome::kNotHere;
    const uint64_t wanted = probe.order();
    const std::byte* const slots = page.Slots();
    const auto is_wanted = [&](size_t i) {
      return i < count_ && internal::SlotOrderAt(slots + i * BytesSlot::kBytes) == wanted;
    };
    const size_t first = internal::FirstNotBelow(slots, 0, count_, wanted);
    if (!is_wanted(first)) return PeekOutcome::kAbsent;
    if (is_wanted(first + 1)) return SearchEntries(first, probe, image);
    slot_ = page.Slot(first);
    rest_ = probe.rest;
    if (!IsInside(slot_)) return PeekOutcome::kNotHere;
    return std::nullopt;
  }
  /// Among the entries from `first` on, of which at least two have the probe's order.
  PeekOutcome SearchEntries(size_t first, const internal::BytesProbe& probe, PageBuffer& image) {
    const BytesPage page(*geometry_, image.image(*geometry_, 0));
    const uint64_t wanted = probe.order();
    size_t end = count_;
    while (first < end) {
      const size_t middle = first + (end - first) / 2;
      const BytesSlot slot = page.Slot(middle);
      const uint64_t order = internal::SlotOrder(slot.shared, slot.head);
      int compared = order < wanted ? -1 : 1;
      if (order == wanted) {
        if (!IsInside(slot)) return PeekOutcome::kNotHere;
        Load(slot.offset, slot.rest, image);
        compared = internal::CompareRests(page.Rest(slot), probe.rest);
      }
      if (compared == 0) {
        slot_ = slot;
        return FoundOutcome();
      }
      if (compared < 0) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    return PeekOutcome::kAbsent;
  }

  const Geometry* geometry_ = nullptr;
  Page page_;
  TreeId tree_ = 0;
  uint64_t version_ = 0;
  size_t loaded_bytes_ = 0, count_ = 0, heap_begin_ = 0;
  BytesSlot slot_{};
  std::string_view
      rest_;  ///< of the key that is looked for, behind what it shares with the low fence
};

using LeafPeek = BasicLeafPeek<MappedPage>;

}  // namespace farleaf::index
