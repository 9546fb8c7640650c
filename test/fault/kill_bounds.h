// What tests that kill compute servers set, and how long nobody else may wait.
//
// A dead owner's lock is taken over by whoever waits for it when the page's memory server has confirmed the fence: at
// once on shm, where the end of a process is seen, else when the lease has run out (kLeaseMs, and a fifth of it until
// the memory server looks). The recovery of a page is a few round trips. The bound has room for a busy machine besides.
#pragma once

#include <cstdint>

namespace farleaf {

inline constexpr int kLeaseMs = 3'000;
inline constexpr uint64_t kBoundMs = 20'000;

}  // namespace farleaf
