// Whether this process may open as many files as a test wants.
//
// Thread rule: thread-safe.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace farleaf::test {

/// The limit is raised as far as it goes.
inline bool MayOpenFiles(uint64_t wanted) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= wanted;
}

}  // namespace farleaf::test
