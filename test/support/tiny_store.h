// Options of an LSM store that is so small that a few operations turn all of it over.
#pragma once

#include "index/lsm/options.h"

namespace farleaf::test {

inline index::lsm::LsmOptions TinyStore() {
  index::lsm::LsmOptions options;
  options.memtable_bytes = uint64_t{1} << 20;
  options.cache_bytes = uint64_t{1} << 20;
  options.growth_factor = 4;
  options.table_bytes_max = uint64_t{4} << 20;
  options.value_separation_bytes = 64;
  options.log_buffers_max = 2;
  return options;
}

}  // namespace farleaf::test
