// What bytes of a request and its answer, and of a page, cost to take apart: the native protocol both ways, a request of Redis', a line of
// memcached's, and the search of an internal node that no cache has.
//
// Thread rule: called before benchmarks run.
#pragma once

namespace farleaf::micro {

/// native_request_append and _parse (a put of 16 + 100 bytes), native_response_append and _parse (a get's value of 100),
/// redis_request_read (SET of as much), memcached_command_parse (its `set` line), node_search.
void RegisterCodecPieces();

}  // namespace farleaf::micro
