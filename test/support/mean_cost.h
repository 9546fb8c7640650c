// MeanCost: what operations cost on average, in round trips and bytes.
//
// Thread rule: one owner.
#pragma once

#include <cstdint>
#include <cstdio>

#include "dsm/transport.h"

namespace farleaf::index {

struct MeanCost {
  dsm::FabricCounts sum;
  uint64_t count = 0;

  void Add(const dsm::FabricCounts& cost) {
    sum += cost;
    ++count;
  }
  double round_trips() const { return Mean(sum.round_trips); }
  double bytes() const { return Mean(sum.bytes_read + sum.bytes_written); }
  double Mean(uint64_t of) const { return static_cast<double>(of) / static_cast<double>(count); }
  void Print(const char* name) const {
    std::printf("%-8s %.3f round trips, %.1f bytes read, %.1f written\n", name, round_trips(),
                Mean(sum.bytes_read), Mean(sum.bytes_written));
  }
};

}  // namespace farleaf::index
