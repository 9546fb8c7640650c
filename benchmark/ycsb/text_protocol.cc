#include "benchmark/ycsb/text_protocol.h"

#include <algorithm>
#include <charconv>

#include "benchmark/ycsb/record.h"

namespace farleaf::ycsb {

Result<std::optional<std::string_view>> FirstAnswerLine(std::string_view bytes) {
  const size_t end = bytes.substr(0, kAnswerLineBytesMax).find('\n');
  if (end == std::string_view::npos) {
    if (bytes.size() < kAnswerLineBytesMax) return std::optional<std::string_view>();
    return WrongAnswer("a line of at most " + std::to_string(kAnswerLineBytesMax) + " bytes",
                       bytes);
  }
  if (end == 0 || bytes[end - 1] != '\r') {
    return WrongAnswer("a line that ends with CR LF", bytes.substr(0, end));
  }
  return std::optional(bytes.substr(0, end - 1));
}

Status WrongAnswer(std::string_view expected, std::string_view line) {
  return Status::Corruption("expected " + std::string(expected) + ", got " + Printable(line));
}

Status ServerError(StatusCode code, std::string_view line, std::string_view message) {
  for (uint8_t named = 1; named <= kStatusCodeMax; ++named) {
    const std::string_view name = StatusCodeName(static_cast<StatusCode>(named));
    if (message.starts_with(name) && message.substr(name.size()).starts_with(": ")) {
      code = static_cast<StatusCode>(named);
    }
  }
  constexpr size_t kShownMax = 300;
  std::string shown(line.substr(0, kShownMax));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '.');
  return {code, "the server answers \"" + shown + "\""};
}

std::optional<uint64_t> ParseCount(std::string_view text, uint64_t max) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || value > max) return std::nullopt;
  return value;
}

}  // namespace farleaf::ycsb
