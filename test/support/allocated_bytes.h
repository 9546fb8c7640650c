// How much memory this process has allocated, for tests that assert that it does not grow.
//
// Thread rule: thread-safe.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <optional>

namespace farleaf::test {

/// Of the C library's allocator, by all threads; nullopt under sanitizers, which bring one of their own that keeps
/// what was freed.
inline std::optional<size_t> AllocatedBytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::nullopt;
#else
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

}  // namespace farleaf::test
