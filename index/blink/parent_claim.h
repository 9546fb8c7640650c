// ParentClaim: of those who want to read a parent again at once, one does.
//
// Thread rule: thread-safe; lives in the reader's frame.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dsm/address.h"
#include "dsm/base/random.h"

namespace farleaf::index {

/// The right to read a parent again, of one of those that want it at once. A table that is too small for
/// all gives it to two at times.
class ParentClaim {
 public:
  ParentClaim(std::array<std::atomic<uint64_t>, 32>* parents, dsm::GlobalAddress parent)
      : place_(&(*parents)[Mix64(parent.word()) % parents->size()]) {
    uint64_t holder = 0;
    held_ = place_->compare_exchange_strong(holder, parent.word(), std::memory_order_relaxed);
    mine_ = held_ || holder != parent.word();
  }
  ParentClaim(const ParentClaim&) = delete;
  ~ParentClaim() {
    if (held_) place_->store(0, std::memory_order_relaxed);
  }
  bool mine() const { return mine_; }

 private:
  std::atomic<uint64_t>* place_;
  bool held_ = false, mine_ = false;
};

}  // namespace farleaf::index
