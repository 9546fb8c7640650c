// What Redis answers about keys that have expired, whatever they were: as if they had not been there. Each question is of a
// key of its own, since whoever meets one may delete it; keys begin with "t.".
//
// Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "test/support/exchange.h"

namespace farleaf::test {

inline constexpr uint64_t kRedisExpiryMs = 100;

struct RedisExpiryTable {
  /// Makes the keys: strings, hashes and sorted sets, which expire kRedisExpiryMs later, and one hash that does not.
  std::vector<Exchange> before;
  /// What is answered when all have expired.
  std::vector<Exchange> behind;
};
RedisExpiryTable RedisExpiredTable();
/// The rows between these of which Redis' own answer is another, since it has no such command.
std::vector<Exchange> RedisOwnExpiredTable();

}  // namespace farleaf::test
