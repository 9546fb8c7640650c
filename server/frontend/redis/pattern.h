// Patterns as Redis' MATCH takes them: * ? [a-c] [^a-c], and \ before what is meant as it stands.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace farleaf::server::redis {

/// Takes at most pattern x text steps.
bool MatchesPattern(std::string_view pattern, std::string_view text);
/// What every text that matches begins with.
std::string LiteralPrefix(std::string_view pattern);

}  // namespace farleaf::server::redis
