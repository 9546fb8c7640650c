// What is answered to what, as rows of a table, and how answers are compared.
//
// Thread rule: pure functions.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace farleaf::test {

struct Exchange {
  std::string request, answer;
};

/// Whether `text` is what `pattern` says. '#' in it stands for a number.
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

}  // namespace farleaf::test
