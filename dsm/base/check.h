// Assertions about our own code, on in every build. Bytes from outside are never CHECKed: they are
// validated and answered with a Status.
//
//   FARLEAF_CHECK(count <= capacity, count, capacity);   // prints both values, then aborts
//
// FARLEAF_DCHECK is the same in builds without NDEBUG and compiles to nothing otherwise.
// Thread rule: any thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace farleaf::internal {

template <typename... Values>
[[noreturn, gnu::cold, gnu::noinline]] void CheckFailed(const char* file, int line,
                                                        const char* condition,
                                                        const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  std::fprintf(stderr, "%s:%d: check failed: %s |%s\n", file, line, condition, out.str().c_str());
  std::abort();
}

}  // namespace farleaf::internal

#define FARLEAF_CHECK(condition, ...)                                              \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::farleaf::internal::CheckFailed(__FILE__, __LINE__, #condition __VA_OPT__(, ) \
                                           __VA_ARGS__);                           \
  } while (false)

#ifdef NDEBUG
#define FARLEAF_DCHECK(condition, ...) \
  do {                                 \
  } while (false && (condition))
#else
#define FARLEAF_DCHECK(condition, ...) FARLEAF_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
