#include <algorithm>

#include "server/frontend/memcached/command.h"

namespace farleaf::server::memcached {

namespace {

constexpr std::string_view kWithToken = "CDEFJMNORT";
constexpr size_t kOpaqueBytesMax = 32;

/// Flags that each command has here.
std::string_view KnownTo(Verb verb) {
  switch (verb) {
    case Verb::kMetaGet:
      return "bcfkqstvENORT";
    case Verb::kMetaSet:
      return "bckqsCEFIMNOT";
    case Verb::kMetaDelete:
      return "bkqCEIOT";
    case Verb::kMetaArithmetic:
      return "bckqtvCDEJMNOT";
    default:
      return "b";
  }
}

std::string_view ParseToken(char letter, std::string_view token, MetaFlags* flags) {
  constexpr std::string_view kBadToken = "CLIENT_ERROR bad token in command line format";
  const auto check = [&](bool parsed) { return parsed ? std::string_view() : kBadToken; };
  switch (letter) {
    case 'T':
      return check(ParseNumber(token, &flags->ttl));
    case 'N':
      return check(ParseNumber(token, &flags->vivify_ttl));
    case 'R':
      return check(ParseNumber(token, &flags->renew_ttl));
    case 'C':
      return check(ParseNumber(token, &flags->compare_cas));
    case 'E':
      return check(ParseNumber(token, &flags->next_cas) && flags->next_cas != 0);
    case 'F':
      return check(ParseNumber(token, &flags->client_flags));
    case 'J':
      return check(ParseNumber(token, &flags->initial));
    case 'D':
      return check(ParseNumber(token, &flags->delta));
    case 'M':
      flags->mode = token.size() == 1 ? token[0] : '\0';
      return check(token.size() == 1);
    default:  // 'O'
      return token.size() > kOpaqueBytesMax ? "CLIENT_ERROR opaque token too long" : "";
  }
}

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string_view ParseMetaFlags(Verb verb, std::string_view text, MetaFlags* flags) {
  flags->text = text;
  std::string_view rest = text;
  for (size_t count = 0;; ++count) {
    const std::string_view word = TakeWord(&rest);
    if (word.empty()) return "";
    if (count >= kTokensMax) return "CLIENT_ERROR options flags are too long";
    const char letter = word[0];
    if (verb == Verb::kMetaGet && letter == 'h') return "CLIENT_ERROR flag h is not supported";
    if (verb == Verb::kMetaGet && letter == 'l') return "CLIENT_ERROR flag l is not supported";
    if (verb == Verb::kMetaDelete && letter == 'x') return "CLIENT_ERROR flag x is not supported";
    if (KnownTo(verb).find(letter) == std::string_view::npos) return "CLIENT_ERROR invalid flag";
    if (flags->has(letter)) return "CLIENT_ERROR duplicate flag";
    flags->seen |= MetaFlags::Bit(letter);
    if (kWithToken.find(letter) == std::string_view::npos) continue;
    const std::string_view wrong = ParseToken(letter, word.substr(1), flags);
    if (!wrong.empty()) return wrong;
  }
}

bool DecodeBase64(std::string_view text, std::string* out) {
  out->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t filled = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; ++j) {
      const size_t digit = j < filled ? kDigits.find(text[i + j]) : 0;
      if (digit == std::string_view::npos) return false;
      bits = bits << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j + 1 < filled; ++j) {
      out->push_back(static_cast<char>(bits >> (16 - 8 * j)));
    }
  }
  return true;
}

void AppendBase64(std::string_view bytes, std::string* out) {
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      out->push_back(j <= count ? kDigits[(bits >> (18 - 6 * j)) & 63] : '=');
    }
  }
}

}  // namespace farleaf::server::memcached
