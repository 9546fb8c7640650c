// Which addresses a server may listen on.
//
// Thread rule: pure functions; a host name is looked up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/status.h"

namespace farleaf::server {

/// What to say of addresses for metrics and health.
inline constexpr std::string_view kWatchedByAll =
    "metrics are shown to whoever asks, without a password; give --metrics-insecure where all may "
    "see them";

/// InvalidArgument if a listen address is not a loopback address; `otherwise` says what would make it right.
Status CheckLoopback(const std::vector<std::string>& listen, std::string_view otherwise);

}  // namespace farleaf::server
