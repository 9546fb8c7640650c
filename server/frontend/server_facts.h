// What every protocol tells of the server behind it. All threads' counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace farleaf::server {

struct ServerFacts {
  uint64_t connections_open = 0, connections_accepted = 0, connections_refused = 0;
  uint64_t connections_max = 0;
  uint32_t threads = 0;
  uint64_t uptime_s = 0;
  uint64_t swept_expired = 0;
  uint64_t expiry_sweep_s = 0;
  /// The keys that the last whole turn of the sweep came by.
  struct SweptKeys {
    uint64_t keys = 0, expiring = 0;
    uint64_t ended_ns = 0;  ///< the turn, by the workers' clock
  };
  std::optional<SweptKeys> swept_keys;
  std::string record_tree;
};

}  // namespace farleaf::server
