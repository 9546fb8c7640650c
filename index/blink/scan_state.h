// A scan on its way.
//
// Thread rule: lives in Scan's frame.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsm/frame_memory.h"
#include "index/blink/scan_guess.h"
#include "index/blink/tree.h"
#include "index/blink/value_lists.h"

namespace farleaf::index {

/// What a scan has taken of a leaf's parts.
enum class BlinkTree::ScanTaken : uint8_t {
  kLeaf,       ///< all that is wanted of it
  kSome,       ///< `position` has moved, and is in the leaf still
  kTooLittle,  ///< what was read proves nothing; what is remembered of the leaf is right now
  kNoLeaf,     ///< it is not the next leaf, or torn
};

struct BlinkTree::ScanLeaf : CachedLeaf {
  PartMask window = 0;                     ///< the parts to read; none: the whole page
  Placement assumed = Placement::kHashed;  ///< when the window was chosen
  size_t guessed = 0;                      ///< blocks that are read beside it
};

/// The rows of a scan. Those that the caller's vector holds from before are written over, so that their strings
/// need no memory again; what is left of them goes at the end.
class ScanRows {
 public:
  explicit ScanRows(std::vector<KeyValue>* rows) : rows_(rows) {}
  ScanRows(const ScanRows&) = delete;
  ~ScanRows() { rows_->resize(count_); }
  size_t size() const { return count_; }
  KeyValue& operator[](size_t i) { return (*rows_)[i]; }
  /// So many rows more, the first of them; their strings hold anything.
  KeyValue* Add(size_t more) {
    const size_t first = count_;
    count_ += more;
    if (count_ > rows_->size()) rows_->resize(count_);
    return rows_->data() + first;
  }
  /// Of a string of such a row. What is large is not kept.
  static void Clear(std::string* text) {
    text->clear();
    if (text->capacity() > kBytesKept) [[unlikely]]
      std::string().swap(*text);
  }
  /// Leaves only the first ones.
  void Cut(size_t count) { count_ = std::min(count_, count); }
  void Erase(size_t i) {
    rows_->erase(rows_->begin() + static_cast<ptrdiff_t>(i));
    --count_;
  }

 private:
  static constexpr size_t kBytesKept = 4096;
  std::vector<KeyValue>* rows_;
  size_t count_ = 0;
};

/// Room for the images of the leaves that are read in one round trip.
class LeafImages {
 public:
  explicit LeafImages(std::pmr::memory_resource* memory) : memory_(memory) {}
  LeafImages(const LeafImages&) = delete;
  ~LeafImages() { Free(); }
  /// Not cleared: most of it is neither written nor read.
  void MakeRoom(size_t leaves, size_t image_bytes) {
    image_bytes_ = image_bytes;
    if (bytes_ >= leaves * image_bytes) return;
    Free();
    data_ = static_cast<std::byte*>(memory_->allocate(leaves * image_bytes));
    bytes_ = leaves * image_bytes;
  }
  std::span<std::byte> operator[](size_t leaf) const {
    return {data_ + leaf * image_bytes_, image_bytes_};
  }

 private:
  void Free() {
    if (data_ != nullptr) memory_->deallocate(std::exchange(data_, nullptr), bytes_);
  }
  std::pmr::memory_resource* const memory_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0, image_bytes_ = 0;
};

struct BlinkTree::ScanState {
  ScanState(OpContext& op, const ScanRange& wanted, std::vector<KeyValue>* into)
      : memory(op.frame_pool()), range(wanted), rows(into) {}

  dsm::FrameMemory memory;  ///< of the lists below
  ScanRange range;
  ScanRows rows;
  std::string position;    ///< forward: the next key to cover; reverse: keys below it are next
  bool from_last = false;  ///< reverse: `position` is not set yet, begin at the very end
  bool done = false;
  bool find_one_leaf = false;  ///< the cache's chain broke
  bool stalled = false;        ///< the last round trip brought no parts that suffice
  CachedLeaves cached{&memory};
  std::pmr::vector<ScanLeaf> leaves{&memory};               ///< to be read in one round trip
  LeafImages images{&memory};                               ///< of these
  std::vector<std::pair<size_t, OutOfLineValue>> to_fetch;  ///< row, where its value is
  std::unique_ptr<ScanGuess> guess;                         ///< none while nothing was ever guessed
  ListVerdict verdict;                                      ///< of the leaf that is taken

  /// The scan fails: rows whose values are not in hand are none, nor is what lies behind the first of them.
  void CutUnfetched() {
    if (!to_fetch.empty()) rows.Cut(to_fetch.front().first);
  }
  /// From the first one whose value is to be fetched on.
  size_t RowsSinceUnfetched() const {
    return to_fetch.empty() ? 0 : rows.size() - to_fetch.front().first;
  }
  bool forward() const { return range.direction == ScanDirection::kForward; }
  uint64_t bytes = 0;  ///< of keys and values in the rows
  /// How many rows of so many bytes each are to be added until it is full.
  size_t RowsMissing(uint64_t row_bytes) const {
    if (full()) return 0;
    const uint64_t left = range.bytes_max - bytes;
    const uint64_t fit = left / row_bytes + (left % row_bytes != 0 ? 1 : 0);
    return std::min<uint64_t>(range.limit - rows.size(), fit);
  }
  bool full() const { return rows.size() >= range.limit || bytes >= range.bytes_max; }
};

}  // namespace farleaf::index
