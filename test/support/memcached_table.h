// What memcached answers to what, as a table of requests and exact answers: one for every front of the records
// that memcached's clients can meet. Each row stands on the rows above it; keys begin with "t.".
//
// Thread rule: constants and pure functions.
#pragma once

#include <vector>

#include "test/support/exchange.h"

namespace farleaf::test {

/// The classic commands.
std::vector<Exchange> ClassicTable();
/// The meta commands.
std::vector<Exchange> MetaTable();

/// The rows of which memcached's own answer is another, and why.
std::vector<Exchange> OwnTable();

}  // namespace farleaf::test
