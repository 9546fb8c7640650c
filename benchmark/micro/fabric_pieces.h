// The verbs of every fabric that this process can reach, one at a time: READ of 64 and of 1,024 bytes, WRITE of 64, FETCH-ADD.
//
// Thread rule: called before benchmarks run.
#pragma once

#include <string>

namespace farleaf::micro {

/// read/FABRIC/BYTES, write/FABRIC/64 and fetch_add/FABRIC, at random places of 256 MiB: of `shm` (this process's own
/// memory by the verbs of shared memory) and of `tcp` (a memory server's agent with one thread in this process, over
/// loopback); with a bootstrap URL those of its pool's memory server 0 as well, an extent of 16 MiB of it, which is given
/// back. What cannot be opened, or fails, is that benchmark's error.
void RegisterFabricPieces(const std::string& bootstrap);

}  // namespace farleaf::micro
