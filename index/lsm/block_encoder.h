// BlockEncoder: collects the entries of one block, and writes them as a raw block.
//
// What all keys share is known only at the end, so entries are kept aside until then: this is the inner loop of
// every merge, and copies go 16 bytes at a time, past their end (CharArena::kSlack).
//
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dsm/base/check.h"
#include "index/lsm/block.h"

namespace farleaf::index::lsm {

/// Bytes that grow, with room behind their end that may be written to.
class CharArena {
 public:
  static constexpr size_t kSlack = 32;

  const char* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  /// Where `bytes` more may be written, and kSlack behind them.
  char* Room(size_t bytes) {
    if (size_ + bytes + kSlack > capacity_) [[unlikely]]
      Grow(size_ + bytes + kSlack);
    return bytes_.get() + size_;
  }
  /// Up to `end`, in what Room has returned, is taken.
  void TakeTo(const char* end) { size_ = static_cast<size_t>(end - bytes_.get()); }

 private:
  void Grow(size_t needed) {
    const size_t capacity = std::max(needed, 2 * capacity_);
    auto bytes = std::make_unique_for_overwrite<char[]>(capacity);
    if (size_ > 0) std::memcpy(bytes.get(), bytes_.get(), size_);
    bytes_ = std::move(bytes);
    capacity_ = capacity;
  }
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0, capacity_ = 0;
};

/// Copies `bytes`, and perhaps up to 15 more. REQUIRES: those are there, on both sides.
inline void CopyWithSlack(char* to, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 16) {
    uint64_t words[2];
    std::memcpy(words, from + at, 16);
    std::memcpy(to + at, words, 16);
  }
}

class BlockEncoder {
 public:
  bool empty() const { return items_.empty(); }
  uint32_t count() const { return static_cast<uint32_t>(items_.size()); }
  std::string_view first_key() const { return {keys_.data(), items_.front().key_bytes}; }
  std::string_view last_key() const {
    const Item& last = items_.back();
    return {keys_.data() + last.key_at, last.key_bytes};
  }
  uint32_t last_key_bytes() const { return items_.back().key_bytes; }

  /// At most so many bytes raw, without a filter; exact for keys of one length.
  size_t Bytes() const {
    return Bound(items_.size(), prefix_, key_bytes_min_, key_bytes_max_, key_sum_ + tail_.size());
  }
  /// The same, if an entry with a key of `key_bytes` came to it, that shares `shared` bytes with the last one, and has
  /// `behind_key` bytes behind the key.
  size_t BytesWith(size_t key_bytes, size_t shared, size_t behind_key) const {
    return Bound(items_.size() + 1, items_.empty() ? key_bytes : std::min<size_t>(prefix_, shared),
                 std::min<size_t>(key_bytes_min_, key_bytes),
                 std::max<size_t>(key_bytes_max_, key_bytes),
                 key_sum_ + key_bytes + tail_.size() + behind_key);
  }

  /// Room for what follows the key of the next entry: [sequence] [expiry] value, of `bytes` at most.
  char* TailRoom(size_t bytes) { return tail_.Room(bytes); }
  /// The next entry; what follows its key ends at `tail_end`, in TailRoom. `tag`: kind, and which of sequence and expiry
  /// are there. `shared`: with the last key. REQUIRES: keys ascend.
  void Add(std::string_view key, size_t shared, uint8_t tag, const char* tail_end) {
    items_.push_back({static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(tail_.size()),
                      static_cast<uint16_t>(key.size()), tag});
    tail_.TakeTo(tail_end);
    char* const to = keys_.Room(key.size());
    keys_.TakeTo(std::copy(key.begin(), key.end(), to));
    key_sum_ += key.size();
    prefix_ =
        static_cast<uint32_t>(items_.size() == 1 ? key.size() : std::min<size_t>(prefix_, shared));
    key_bytes_min_ = std::min<uint32_t>(key_bytes_min_, static_cast<uint32_t>(key.size()));
    key_bytes_max_ = std::max<uint32_t>(key_bytes_max_, static_cast<uint32_t>(key.size()));
  }

  struct Head {
    uint8_t level = 0;
    uint32_t number = 0;
    uint32_t filter_lines = 0, filter_probes = 0;
  };
  /// Writes the raw block, its checksum and stored length left to be set, and forgets the entries. The filter is all 0, at
  /// the end of what is returned. REQUIRES: kSlack bytes of room behind it.
  std::span<std::byte> Encode(const Head& head, char* to);
  /// No more bytes than this, the filter included.
  size_t EncodedBytesMax(uint32_t filter_lines) const {
    return Bytes() + 2 * items_.size() + 2 +
           (filter_lines == 0 ? 0 : (filter_lines + 1) * kFilterLineBytes);
  }
  void Clear();

 private:
  struct Item {
    uint32_t key_at, tail_at;
    uint16_t key_bytes;
    uint8_t tag;
  };
  /// `content`: bytes of keys and of what follows them.
  static size_t Bound(size_t count, size_t prefix, size_t least, size_t most, size_t content) {
    size_t bytes = kBlockHeaderBytes + 2 + prefix + (content - count * prefix) +
                   count * (2 + 1);  // offset, tag
    if (most - least >= internal::kTagLengthLong) bytes += 2 * count;
    // The head is a part of the suffix; where that is shorter, it takes 4 bytes all the same.
    if (least < prefix + 4) bytes += 4 * count;
    return bytes;
  }
  char* EncodeEntries(uint32_t prefix, uint32_t base, std::byte* heads, char* offsets, bool wide,
                      char* block, char* to) const;

  std::vector<Item> items_;
  CharArena keys_, tail_;
  size_t key_sum_ = 0;
  uint32_t prefix_ = 0;  ///< bytes that all keys share
  uint32_t key_bytes_min_ = UINT32_MAX, key_bytes_max_ = 0;
};

}  // namespace farleaf::index::lsm
