// What an operation cost on the fabric. Exact and free of noise, so it is the first performance
// figure of every operation.
//
// A round trip is one wait for a set of batches posted together, to any number of servers. Bytes
// are payload: a READ's length in, a WRITE's length out, an atomic 8 out and 8 in.
// Thread rule: one owner; add up copies.
#pragma once

#include <cstdint>

namespace farleaf::dsm {

struct FabricCounts {
  uint64_t round_trips = 0;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t atomics = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;

  uint64_t verbs() const { return reads + writes + atomics; }
  FabricCounts& operator+=(const FabricCounts& other) {
    round_trips += other.round_trips;
    reads += other.reads;
    writes += other.writes;
    atomics += other.atomics;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    return *this;
  }
  bool operator==(const FabricCounts&) const = default;
};

}  // namespace farleaf::dsm
