// ExpiryTimes: how much of a table, or of a memtable, expires when, in few numbers.
//
// Bytes are counted by spans of time, all of one length, a power of two of milliseconds: the shortest with which there are no more than
// kSpansMax of them. So it is the same in whatever order they were added; and a single time far from all others takes one span, and makes
// the others no longer.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <vector>

namespace farleaf::index::lsm {

class ExpiryTimes {
 public:
  static constexpr size_t kSpansMax = 16;
  struct Span {
    uint64_t number = 0;  ///< times in [number << shift, (number + 1) << shift)
    uint64_t bytes = 0;
    bool operator==(const Span&) const = default;
  };
  ExpiryTimes() = default;
  /// `spans`: ascending. See Fits.
  ExpiryTimes(uint32_t shift, std::vector<Span> spans) : shift_(shift), spans_(std::move(spans)) {}

  /// `expires_ms`: since 1970.
  void Add(uint64_t expires_ms, uint64_t bytes);
  /// Those that have expired by then; of a span of which it is not known all of whose times have passed, none.
  uint64_t ExpiredBytes(uint64_t now_ms) const;
  uint64_t all_bytes() const;

  uint32_t shift() const { return shift_; }
  const std::vector<Span>& spans() const { return spans_; }
  /// Whether they are such as Add makes.
  bool Fits() const;
  bool operator==(const ExpiryTimes&) const = default;

 private:
  void Coarsen();
  uint32_t shift_ = 0;
  std::vector<Span> spans_;
};

}  // namespace farleaf::index::lsm
