// Counts what operator new is asked for, in a program that is linked with allocation_count.cc.
//
// Thread rule: any thread; the count is of the calling thread.
#pragma once

#include <cstdint>

namespace farleaf::micro {

/// Calls of operator new by this thread so far.
uint64_t AllocationCount();

}  // namespace farleaf::micro
