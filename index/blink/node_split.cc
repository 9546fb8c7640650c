// Splitting and merging of nodes (index/blink/node.h has the contracts, format.md the argument why
// a split always fits).

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "dsm/base/check.h"
#include "index/blink/node.h"

namespace farleaf::index {

using internal::BytesPage;
using internal::BytesSlot;
using internal::CommonPrefix;
using internal::Fixed8;

namespace {

/// An insert behind everything in the rightmost node: an ascending load.
bool IsAppend(const ConstNode& full, const PendingEntry& pending, size_t position) {
  return !full.has_high() && !pending.replaces && position == full.count();
}

/// Where the pending entry goes: before entry `position`, or in its place.
size_t PendingPosition(const ConstNode& full, const PendingEntry& pending) {
  if (!full.is_leaf()) return full.ChildIndexFor(pending.key) + 1;
  const ConstNode::Position at = full.Search(pending.key);
  FARLEAF_CHECK(at.found == pending.replaces, at.index, at.found);
  return at.index;
}

void InitHalves(const ConstNode& full, std::string_view separator, GlobalAddress right_address,
                Node* left, Node* right) {
  const std::string low = full.low();
  std::string high;
  if (full.has_high()) high = full.high();
  Node::Header header{full.tree(), full.level(), std::nullopt, separator, right_address};
  if (full.has_low()) header.low = low;
  left->Init(header);
  header.low = separator;
  header.high = std::nullopt;
  if (full.has_high()) header.high = high;
  header.right = full.right();
  right->Init(header);
}

std::string SplitFixed8(const ConstNode& full, const PendingEntry& pending,
                        GlobalAddress right_address, Node* left, Node* right) {
  constexpr size_t kEntriesMax = Fixed8::Capacity(kPageBytesMax) + 1;
  struct Entry {
    char key[8];
    char value[8];
  };
  std::array<Entry, kEntriesMax> entries;
  const size_t position = PendingPosition(full, pending);
  const bool leaf = full.is_leaf();
  size_t count = 0;
  for (size_t i = 0; i <= full.count(); ++i) {
    if (i == position) {
      Entry& entry = entries[count++];
      std::memcpy(entry.key, pending.key.data(), 8);
      if (leaf) {
        std::memcpy(entry.value, pending.value.bytes.data(), 8);
      } else {
        StoreLittle(entry.value, pending.child.word());
      }
      if (pending.replaces) continue;
    }
    if (i == full.count()) break;
    Entry& entry = entries[count++];
    StoreBig64(entry.key, Fixed8::Key(full.image().data(), i));
    std::memcpy(entry.value, full.Value(i).bytes.data(), 8);
  }
  FARLEAF_CHECK(count >= 2, count);
  const size_t cut = IsAppend(full, pending, position) ? count - 1 : count / 2;
  const std::string separator(entries[cut].key, 8);
  InitHalves(full, separator, right_address, left, right);
  for (size_t i = 0; i < count; ++i) {
    Node* half = i < cut ? left : right;
    const std::string_view key(entries[i].key, 8), value(entries[i].value, 8);
    const bool fits =
        leaf ? half->Insert(half->count(), key, {value, false})
             : half->InsertChild(half->count(), key,
                                 GlobalAddress::FromWord(LoadLittle<uint64_t>(value.data())));
    FARLEAF_CHECK(fits, i, count);
  }
  return separator;
}

/// The entries of a full node and the pending one, taken apart.
class BytesSplit {
 public:
  BytesSplit(const ConstNode& full, const PendingEntry& pending)
      : full_(full), position_(PendingPosition(full, pending)) {
    StoreLittle(pending_child_, pending.child.word());
    entries_.reserve(full.count() + 1);
    for (size_t i = 0; i <= full.count(); ++i) {
      if (i == position_) {
        const StoredValue child{{pending_child_, sizeof pending_child_}, false};
        entries_.push_back(
            {std::string(pending.key), full.is_leaf() ? pending.value : child, 0, 0});
        if (pending.replaces) continue;
      }
      if (i == full.count()) break;
      entries_.push_back({full.Key(i), full.Value(i), 0, 0});
    }
    const std::string low = full.low();
    size_t begin = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].shared_with_previous =
          CommonPrefix(i == 0 ? std::string_view(low) : entries_[i - 1].key, entries_[i].key);
      entries_[i].begin = begin;
      begin += StoredBytes(i, CommonPrefix(low, entries_[i].key));
    }
    total_ = begin;
  }

  /// Every place to cut, best first. `append`: as late as possible, else as even as possible.
  std::vector<size_t> Candidates(bool append) const {
    std::vector<size_t> cuts;
    for (size_t cut = entries_.size() - 1; cut >= 1; --cut) cuts.push_back(cut);
    if (append) return cuts;
    std::stable_sort(cuts.begin(), cuts.end(),
                     [this](size_t a, size_t b) { return Unevenness(a) < Unevenness(b); });
    return cuts;
  }

  /// Of a leaf the shortest s with (key before the cut) < s <= (key behind it), of an internal node
  /// the separator that moves up.
  std::string_view Separator(size_t cut) const {
    const Entry& first = entries_[cut];
    if (!full_.is_leaf()) return first.key;
    return std::string_view(first.key).substr(0, first.shared_with_previous + 1);
  }

  bool Fits(size_t cut) const {
    const size_t room = full_.image().size() - BytesPage::kOverhead;
    const std::string_view separator = Separator(cut);
    const size_t high = full_.has_high() ? full_.high().size() : 0;
    if (full_.low().size() + separator.size() + entries_[cut].begin > room) return false;
    size_t right = separator.size() + high;
    size_t shared = separator.size();
    for (size_t i = cut; i < entries_.size(); ++i) {
      if (i > cut) shared = std::min(shared, entries_[i].shared_with_previous);
      const bool is_low_fence = i == cut && !full_.is_leaf();
      right += is_low_fence ? BytesSlot::kBytes + entries_[i].value.bytes.size()
                            : StoredBytes(i, shared);
    }
    return right <= room;
  }

  void Fill(size_t cut, Node* left, Node* right) const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      Node* half = i < cut ? left : right;
      const bool fits =
          full_.is_leaf()
              ? half->Insert(half->count(), entry.key, entry.value)
              : half->InsertChild(
                    half->count(), entry.key,
                    GlobalAddress::FromWord(LoadLittle<uint64_t>(entry.value.bytes.data())));
      FARLEAF_CHECK(fits, i, cut, entries_.size());
    }
  }

  size_t position() const { return position_; }
  size_t count() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    StoredValue value;
    size_t shared_with_previous;  ///< of the first entry: with the low fence
    size_t begin;                 ///< bytes of the entries before it, under full's low fence
  };
  size_t StoredBytes(size_t i, size_t shared) const {
    return BytesSlot::kBytes + entries_[i].key.size() - shared + entries_[i].value.bytes.size();
  }
  size_t Unevenness(size_t cut) const {
    const size_t left = entries_[cut].begin, right = total_ - left;
    return left > right ? left - right : right - left;
  }

  const ConstNode& full_;
  size_t position_;
  char pending_child_[8];
  std::vector<Entry> entries_;
  size_t total_ = 0;
};

std::string SplitBytes(const ConstNode& full, const PendingEntry& pending,
                       GlobalAddress right_address, Node* left, Node* right) {
  const BytesSplit split(full, pending);
  FARLEAF_CHECK(split.count() >= 2, split.count());
  for (size_t cut : split.Candidates(IsAppend(full, pending, split.position()))) {
    if (!split.Fits(cut)) continue;
    const std::string separator(split.Separator(cut));
    InitHalves(full, separator, right_address, left, right);
    split.Fill(cut, left, right);
    return separator;
  }
  FARLEAF_CHECK(false, "no cut fits", full.image().size(), full.count(), pending.key.size());
  return {};
}

/// Whether right's first child is left's last: one run of the same child.
bool SharesChild(const ConstNode& left, const ConstNode& right) {
  return !left.is_leaf() && left.Child(left.count() - 1) == right.Child(0);
}

}  // namespace

std::string SplitNode(const ConstNode& full, const PendingEntry& pending,
                      GlobalAddress right_address, Node* left, Node* right) {
  return full.geometry().layout == Layout::kFixed8
             ? SplitFixed8(full, pending, right_address, left, right)
             : SplitBytes(full, pending, right_address, left, right);
}

bool FitsMerged(const ConstNode& left, const ConstNode& right, double fill_max) {
  const Geometry& geometry = left.geometry();
  const size_t first = SharesChild(left, right) ? 1 : 0;
  size_t used = left.used_bytes(), capacity = left.capacity_bytes();
  if (geometry.layout == Layout::kFixed8) {
    used += right.used_bytes() - first * Fixed8::kEntryBytes;
  } else {
    const BytesPage from(geometry, right.image()), to(geometry, left.image());
    capacity = left.image().size() - BytesPage::kOverhead - to.Low().size() -
               (right.has_high() ? from.High().size() : 0);
    const size_t common = CommonPrefix(to.Low(), from.Low());
    for (size_t i = first; i < right.count(); ++i) {
      const BytesSlot slot = from.Slot(i);
      const bool is_low_fence = i == 0 && !right.is_leaf();
      const size_t shared = std::min<size_t>(common, slot.shared);
      const size_t key =
          is_low_fence ? from.Low().size() - common : slot.shared + slot.rest - shared;
      used += BytesSlot::kBytes + key + slot.value;
    }
  }
  return used <= capacity && static_cast<double>(used) <= fill_max * static_cast<double>(capacity);
}

void MergeNodes(const ConstNode& left, const ConstNode& right, Node* out) {
  const std::string low = left.low();
  std::string high, key;
  if (right.has_high()) high = right.high();
  Node::Header header{left.tree(), left.level(), std::nullopt, std::nullopt, right.right()};
  if (left.has_low()) header.low = low;
  if (right.has_high()) header.high = high;
  out->Init(header);
  for (const ConstNode* from : {&left, &right}) {
    for (size_t i = from == &right && SharesChild(left, right); i < from->count(); ++i) {
      key.clear();
      from->AppendKey(i, &key);
      const bool fits = from->is_leaf() ? out->Insert(out->count(), key, from->Value(i))
                                        : out->InsertChild(out->count(), key, from->Child(i));
      FARLEAF_CHECK(fits, "merged nodes do not fit", i, from->count());
    }
  }
}

}  // namespace farleaf::index
