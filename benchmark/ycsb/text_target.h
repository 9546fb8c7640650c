// Servers that speak Redis' protocol or memcached's, be they Farleaf's front ends or others.
//
// Each session has one connection and keeps up to `in_flight` requests on it.
//
// Thread rule: see target.h.
#pragma once

#include <string_view>

#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

bool NamesTextTarget(std::string_view url);

/// `redis://HOST:PORT`, `redis+unix:PATH`, `memcached://HOST:PORT` or `memcached+unix:PATH`. A
/// record is under TREE:KEY. InvalidArgument: the URL is wrong, or the protocol lacks what the
/// options ask for. REQUIRES: NamesTextTarget(url).
Result<std::unique_ptr<Target>> OpenTextTarget(const std::string& url, const TargetOptions& options,
                                               const Clock* clock);

}  // namespace farleaf::ycsb
