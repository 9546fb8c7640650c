// ReserveAccount: how much of each part of the reserve (storage.h) is there.
//
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "index/storage/storage.h"

namespace farleaf::index::storage {

class ReserveAccount {
 public:
  /// What is there of a part that is to be smaller goes to parts that are short.
  void Want(const ReserveSizes& sizes) {
    wanted_ = sizes;
    uint64_t over = 0;
    for (size_t i = 0; i < kReserves; ++i) {
      const uint64_t kept = std::min(held_[i], wanted_[i]);
      over += held_[i] - kept;
      held_[i] = kept;
    }
    while (over > 0 && Add()) --over;
  }
  uint64_t wanted() const { return std::accumulate(wanted_.begin(), wanted_.end(), uint64_t{0}); }
  uint64_t held() const { return std::accumulate(held_.begin(), held_.end(), uint64_t{0}); }
  bool whole() const { return held_ == wanted_; }

  /// One more, for the first part that is short. False: none is.
  bool Add() {
    for (size_t i = 0; i < kReserves; ++i) {
      if (held_[i] == wanted_[i]) continue;
      ++held_[i];
      return true;
    }
    return false;
  }
  bool Take(Reserve part) {
    uint64_t& held = held_[static_cast<size_t>(part)];
    if (held == 0) return false;
    --held;
    return true;
  }
  /// For a named file: of the part that is filled last.
  bool TakeAny() {
    for (size_t i = kReserves; i-- > 0;) {
      if (Take(static_cast<Reserve>(i))) return true;
    }
    return false;
  }

 private:
  ReserveSizes wanted_{}, held_{};
};

}  // namespace farleaf::index::storage
