// What Redis answers to what, as tables of requests and exact answers. Each row stands on the rows above it; keys
// begin with "t.".
//
// Thread rule: constants and pure functions.
#pragma once

#include <vector>

#include "test/support/exchange.h"

namespace farleaf::test {

/// What needs no key.
std::vector<Exchange> RedisServerTable();
/// Strings, keys and expiries.
std::vector<Exchange> RedisStringTable();
/// Hashes and sorted sets.
std::vector<Exchange> RedisCollectionTable();
/// The rows of which Redis' own answer is another, and why.
std::vector<Exchange> RedisOwnTable();

}  // namespace farleaf::test
