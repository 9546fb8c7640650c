#include "server/frontend/redis/pattern.h"

#include <utility>

namespace farleaf::server::redis {

namespace {

/// Whether the class at the front of `pattern`, behind its bracket, has `c`; takes it from the front.
bool TakeClass(std::string_view* pattern, char c) {
  const bool negated = pattern->starts_with('^');
  if (negated) pattern->remove_prefix(1);
  bool has = false;
  while (!pattern->empty() && pattern->front() != ']') {
    if (pattern->front() == '\\' && pattern->size() > 1) {
      has |= (*pattern)[1] == c;
      pattern->remove_prefix(2);
    } else if (pattern->size() > 2 && (*pattern)[1] == '-') {
      auto low = static_cast<unsigned char>((*pattern)[0]);
      auto high = static_cast<unsigned char>((*pattern)[2]);
      if (low > high) std::swap(low, high);
      has |= static_cast<unsigned char>(c) >= low && static_cast<unsigned char>(c) <= high;
      pattern->remove_prefix(3);
    } else {
      has |= pattern->front() == c;
      pattern->remove_prefix(1);
    }
  }
  if (!pattern->empty()) pattern->remove_prefix(1);
  return has != negated;
}

/// Whether one character at the front of `pattern`, which is no star, is `c`; takes it from the front.
bool TakeOne(std::string_view* pattern, char c) {
  const char wanted = pattern->front();
  pattern->remove_prefix(1);
  if (wanted == '?') return true;
  if (wanted == '[') return TakeClass(pattern, c);
  if (wanted == '\\' && !pattern->empty()) {
    const char literal = pattern->front();
    pattern->remove_prefix(1);
    return literal == c;
  }
  return wanted == c;
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  // Of all stars only the last one has to be tried again with more.
  std::string_view behind_star, rest_of_star;
  bool star = false;
  while (!text.empty() || !pattern.empty()) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      behind_star = pattern;
      rest_of_star = text;
      star = true;
      continue;
    }
    if (!text.empty() && !pattern.empty()) {
      const char c = text.front();
      text.remove_prefix(1);
      if (TakeOne(&pattern, c)) continue;
    }
    if (!star || rest_of_star.empty()) return false;
    rest_of_star.remove_prefix(1);
    pattern = behind_star;
    text = rest_of_star;
  }
  return true;
}

std::string LiteralPrefix(std::string_view pattern) {
  std::string prefix;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*' || c == '?' || c == '[') break;
    if (c == '\\' && i + 1 < pattern.size()) {
      prefix.push_back(pattern[++i]);
    } else {
      prefix.push_back(c);
    }
  }
  return prefix;
}

}  // namespace farleaf::server::redis
