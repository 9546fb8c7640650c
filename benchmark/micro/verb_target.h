// VerbTarget: memory of a pool that holds nothing but what verb_bench puts there: an extent, taken
// and given back by the allocator as any member of the pool does it. So a live pool may be measured;
// no byte that another member owns is touched.
//
// Who is killed before Close leaves the extent in its dead member's name, as any member would.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dsm/address.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "dsm/transport.h"

namespace farleaf::micro {

struct VerbTargetOptions {
  std::string bootstrap;
  uint32_t servers_min = 1;
  dsm::ServerId server = 0;
  uint64_t span_bytes = 0;
};

class VerbTarget {
 public:
  /// Joins the pool and takes span_bytes of `server`, all zero. InvalidArgument: the pool has no such
  /// server; ResourceExhausted: it has no room. `clock` outlives the target.
  static Result<std::unique_ptr<VerbTarget>> Open(const VerbTargetOptions& options,
                                                  const Clock* clock);

  /// The sum of the span's words.
  Result<uint64_t> SumWords();
  /// Gives the memory back and leaves the pool. With kKeep the memory is not given back: a write of
  /// unknown outcome could still land in it. REQUIRES: no verb is in flight.
  enum class Memory : uint8_t { kGiveBack, kKeep };
  Status Close(Memory memory);

  dsm::Pool& pool() { return *pool_; }
  dsm::Fabric& fabric() { return *fabric_; }
  dsm::GlobalAddress address() const { return address_; }
  uint64_t span_bytes() const { return span_bytes_; }

 private:
  VerbTarget(std::unique_ptr<dsm::Pool> pool, dsm::Fabric* fabric, uint64_t span_bytes)
      : pool_(std::move(pool)), fabric_(fabric), span_bytes_(span_bytes) {}
  Status Take(dsm::ServerId server);

  std::unique_ptr<dsm::Pool> pool_;
  dsm::Fabric* fabric_;  // the pool's
  std::unique_ptr<dsm::Worker> worker_;
  dsm::GlobalAddress address_;
  uint64_t span_bytes_;
};

}  // namespace farleaf::micro
