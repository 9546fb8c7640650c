// RaiseTo: the greatest of all values that were ever written.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace farleaf {

inline void RaiseTo(std::atomic<uint64_t>* greatest, uint64_t value) {
  uint64_t before = greatest->load(std::memory_order_relaxed);
  while (before < value &&
         !greatest->compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace farleaf
