// Which addresses a server may listen on.
//
// Thread rule: pure functions; a host name is looked up.
#pragma once

#include <string>
#include <vector>

#include "dsm/base/status.h"

namespace farleaf::server {

/// InvalidArgument if a listen address is not a loopback address.
Status CheckLoopback(const std::vector<std::string>& listen);

}  // namespace farleaf::server
