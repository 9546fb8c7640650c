// What every protocol tells of the server behind it. All threads' counters.
#pragma once

#include <cstdint>
#include <string>

namespace farleaf::server {

struct ServerFacts {
  uint64_t connections_open = 0, connections_accepted = 0, connections_refused = 0;
  uint64_t connections_max = 0;
  uint32_t threads = 0;
  uint64_t uptime_s = 0;
  uint64_t swept_expired = 0;
  uint64_t expiry_sweep_s = 0;
  std::string record_tree;
};

}  // namespace farleaf::server
