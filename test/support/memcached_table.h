// What memcached answers to what, as a table of requests and exact answers: one for every front of the records
// that memcached's clients can meet. Each row stands on the rows above it; keys begin with "t.".
//
// '#' in an answer stands for a number.
// Thread rule: constants and pure functions.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace farleaf::test {

struct Exchange {
  std::string request, answer;
};

/// Whether `text` is what `pattern` says.
inline bool Matches(std::string_view pattern, std::string_view text) {
  while (!pattern.empty()) {
    if (text.empty()) return false;
    if (pattern.front() == '#') {
      if (!std::isdigit(static_cast<unsigned char>(text.front()))) return false;
      while (!text.empty() && std::isdigit(static_cast<unsigned char>(text.front()))) {
        text.remove_prefix(1);
      }
    } else {
      if (pattern.front() != text.front()) return false;
      text.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return text.empty();
}

/// The classic commands.
std::vector<Exchange> ClassicTable();
/// The meta commands.
std::vector<Exchange> MetaTable();

/// The rows of which memcached's own answer is another, and why.
std::vector<Exchange> OwnTable();

}  // namespace farleaf::test
