// FreeAddress: where a program that a test starts can listen.
//
// Thread rule: one thread.
#pragma once

#include <string>

#include "test/support/tested_fabrics.h"

namespace farleaf {

/// HOST:PORT where nobody listens, kept until this process ends: no other FreeAddress, in no process, and no connection
/// gets its port. Programs that allow the reuse of addresses (SO_REUSEADDR; all that tests start do) can listen there,
/// and again after a pause.
std::string FreeAddress(const std::string& host = dsm::kLoopback);

}  // namespace farleaf
