// A compute server of a pool as text and as JSON.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "server/control/store.h"

namespace farleaf::server {

/// "left", "fenced by memory server 0, 1", "live, silent at memory server 1".
std::string StateText(const PoolMember& member);
std::string MemberJson(const PoolMember& member);

}  // namespace farleaf::server
