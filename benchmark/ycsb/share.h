// How a total falls to equal parts: threads of a process, processes of a command.
//
// Thread rule: a pure function.
#pragma once

#include <cstdint>

namespace farleaf::ycsb {

/// Where the share of `part` of `parts` begins in `total`; that of the next is where it ends.
inline uint64_t ShareBegin(uint64_t total, uint64_t part, uint64_t parts) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(total) * part / parts);
}

}  // namespace farleaf::ycsb
