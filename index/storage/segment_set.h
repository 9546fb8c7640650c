// SegmentSet: which segments exist, in a few bytes each: ids are mostly dense.
//
// Thread rule: one owner.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <vector>

#include "index/storage/storage.h"

namespace farleaf::index::storage {

class SegmentSet {
 public:
  /// False: it was there.
  bool Insert(SegmentId id) {
    uint64_t& word = words_[Number(id) / 64];
    const uint64_t bit = BitOf(id);
    if (word & bit) return false;
    word |= bit;
    ++size_;
    return true;
  }
  /// False: it was not there.
  bool Erase(SegmentId id) {
    const auto at = words_.find(Number(id) / 64);
    if (at == words_.end() || !(at->second & BitOf(id))) return false;
    at->second &= ~BitOf(id);
    if (at->second == 0) words_.erase(at);
    --size_;
    return true;
  }
  bool Contains(SegmentId id) const {
    const auto at = words_.find(Number(id) / 64);
    return at != words_.end() && (at->second & BitOf(id)) != 0;
  }
  size_t size() const { return size_; }
  /// Ascending.
  std::vector<SegmentId> All() const {
    std::vector<SegmentId> all;
    all.reserve(size_);
    for (const auto& [place, bits] : words_) {
      for (uint64_t rest = bits; rest != 0; rest &= rest - 1) {
        all.push_back(SegmentId{place * 64 + static_cast<uint64_t>(std::countr_zero(rest))});
      }
    }
    return all;
  }

 private:
  static uint64_t BitOf(SegmentId id) { return uint64_t{1} << (Number(id) % 64); }
  std::map<uint64_t, uint64_t> words_;  // of 64 ids each, none empty
  size_t size_ = 0;
};

}  // namespace farleaf::index::storage
