// LandingRing: registered memory that payload passes through: WRITEs are copied in before they are
// posted, READs and atomics land here and are copied out at their completion. So callers may name any
// memory in a Batch, and a NIC that still writes after a failure cannot touch it. Space is taken and
// given back in order; whoever has nothing outstanding rewinds it, so that few requests in flight keep
// to few cache lines.
//
// Thread rule: one owner.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dsm/base/result.h"
#include "dsm/verbs/device.h"

namespace farleaf::dsm {

class LandingRing {
 public:
  /// REQUIRES: `bytes` is a power of two.
  static Result<std::unique_ptr<LandingRing>> Create(const VerbsDevice& device, uint64_t bytes);
  ~LandingRing();
  LandingRing(const LandingRing&) = delete;

  uint64_t bytes() const { return bytes_; }
  uint32_t key() const { return region_->lkey; }

  /// A contiguous, 64-byte aligned piece; nullptr: not enough room now. REQUIRES: count is at most a
  /// quarter of the ring.
  std::byte* Take(uint64_t count);
  /// All that was taken so far, to be given back by Release, in the order of the marks.
  uint64_t mark() const { return head_; }
  void Release(uint64_t mark) { tail_ = mark; }
  /// REQUIRES: nothing is taken, and no mark is kept.
  void Rewind() { head_ = tail_ = 0; }

 private:
  LandingRing(std::byte* memory, uint64_t bytes, ibv_mr* region)
      : memory_(memory), bytes_(bytes), region_(region) {}
  std::byte* memory_;
  const uint64_t bytes_;
  ibv_mr* region_;
  uint64_t head_ = 0;  // positions, growing until Rewind
  uint64_t tail_ = 0;
};

}  // namespace farleaf::dsm
