#include "server/frontend/redis/request.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace farleaf::server::redis {

namespace {

constexpr size_t kKeptArguments = 4096;
constexpr int64_t kProtocolBulkBytesMax = int64_t{512} << 20;

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/// The character behind a backslash within double quotes; `at` moves behind it.
char Unescape(std::string_view line, size_t* at) {
  const char c = line[(*at)++];
  if (c == 'x' && *at + 1 < line.size()) {
    const int high = HexDigit(line[*at]), low = HexDigit(line[*at + 1]);
    if (high >= 0 && low >= 0) {
      *at += 2;
      return static_cast<char>(high * 16 + low);
    }
  }
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'a':
      return '\a';
    default:
      return c;
  }
}

/// A word in quotes, from behind the first of them.
bool TakeQuoted(std::string_view line, char quote, size_t* at, std::string* room) {
  while (*at < line.size()) {
    const char c = line[(*at)++];
    if (c == quote) return *at == line.size() || IsSpace(line[*at]);
    if (c == '\\' && *at < line.size() && quote == '"') {
      room->push_back(Unescape(line, at));
    } else if (c == '\\' && *at < line.size() && line[*at] == '\'') {
      room->push_back(line[(*at)++]);
    } else {
      room->push_back(c);
    }
  }
  return false;
}

}  // namespace

bool SplitLine(std::string_view line, std::string* room, std::vector<size_t>* ends) {
  size_t at = 0;
  for (;;) {
    while (at < line.size() && IsSpace(line[at])) ++at;
    if (at == line.size()) return true;
    while (at < line.size() && !IsSpace(line[at])) {
      const char c = line[at++];
      if (c != '"' && c != '\'') {
        room->push_back(c);
      } else if (!TakeQuoted(line, c, &at, room)) {
        return false;
      } else {
        break;
      }
    }
    ends->push_back(room->size());
  }
}

RequestReader::Outcome RequestReader::Malformed(std::string error) {
  error_ = "Protocol error: " + std::move(error);
  return Outcome::kMalformed;
}

RequestReader::Outcome RequestReader::Read(std::string_view text) {
  consumed_ = 0;
  if (text.size() < bytes_wanted_) return Outcome::kIncomplete;
  bytes_wanted_ = 0;
  arguments_.clear();
  if (arguments_.capacity() > kKeptArguments) std::vector<std::string_view>().swap(arguments_);
  for (;;) {
    const bool at_end = position_ == text.size();
    if (!in_request_ && !at_end && text[position_] != '*') return ReadLine(text);
    const Step step = at_end        ? Step::kIncomplete
                      : in_request_ ? ReadArgument(text)
                                    : ReadHead(text);
    if (step == Step::kMalformed) return Outcome::kMalformed;
    if (step == Step::kIncomplete) {
      // What is consumed is not at the front the next time.
      position_ -= consumed_;
      if (bytes_wanted_ > 0) bytes_wanted_ -= consumed_;
      for (Span& span : spans_) span.at -= consumed_;
      return Outcome::kIncomplete;
    }
    if (in_request_ && arguments_left_ == 0) return EndRequest(text);
  }
}

void RequestReader::GiveBackRoom() {
  std::vector<std::string_view>().swap(arguments_);
  std::string().swap(unquoted_);
  if (!in_request_) std::vector<Span>().swap(spans_);
}

RequestReader::Outcome RequestReader::EndRequest(std::string_view text) {
  in_request_ = false;
  consumed_ = position_;
  position_ = 0;
  if (skipping_) {
    skipping_ = false;
    return Outcome::kTooLarge;
  }
  for (const Span& span : spans_) arguments_.push_back(text.substr(span.at, span.bytes));
  spans_.clear();
  if (spans_.capacity() > kKeptArguments) std::vector<Span>().swap(spans_);
  return Outcome::kRequest;
}

RequestReader::Step RequestReader::ReadNumber(std::string_view text, std::string_view what,
                                              int64_t* number) {
  const std::string_view line = text.substr(position_, kNumberLineBytesMax);
  const size_t end = line.find('\n');
  if (end == std::string_view::npos) {
    if (line.size() < kNumberLineBytesMax) return Step::kIncomplete;
    Malformed("invalid " + std::string(what) + " length");
    return Step::kMalformed;
  }
  const char* const last = line.data() + end - 1;  // where \r is to be; the first byte is * or $
  const auto [behind, error] =
      std::from_chars(line.data() + 1, std::max(last, line.data() + 1), *number);
  if (error != std::errc() || behind != last || *last != '\r') {
    Malformed("invalid " + std::string(what) + " length");
    return Step::kMalformed;
  }
  position_ += end + 1;
  return Step::kGoOn;
}

RequestReader::Step RequestReader::ReadHead(std::string_view text) {
  int64_t count = 0;
  const Step step = ReadNumber(text, "multibulk", &count);
  if (step != Step::kGoOn) return step;
  if (count > static_cast<int64_t>(kArgumentsMax)) {
    Malformed("invalid multibulk length");
    return Step::kMalformed;
  }
  if (count <= 0) {  // asks for nothing, and is not answered
    consumed_ = position_;
    return Step::kGoOn;
  }
  in_request_ = true;
  arguments_left_ = static_cast<size_t>(count);
  spans_.clear();
  return Step::kGoOn;
}

void RequestReader::BeginSkipping(std::string error) {
  skipping_ = true;
  spans_.clear();
  error_ = std::move(error);
}

void RequestReader::Skip(size_t* bytes, size_t available) {
  const size_t skipped = std::min(*bytes, available);
  *bytes -= skipped;
  position_ += skipped;
  consumed_ = position_;
}

RequestReader::Step RequestReader::ReadArgument(std::string_view text) {
  if (skip_bytes_ > 0) {
    Skip(&skip_bytes_, text.size() - position_);
    if (skip_bytes_ > 0) return Step::kIncomplete;
    --arguments_left_;
    return Step::kGoOn;
  }
  if (text[position_] != '$') {
    const char found = text[position_];
    Malformed(std::string("expected '$', got '") + (found >= ' ' && found <= '~' ? found : '?') +
              "'");
    return Step::kMalformed;
  }
  const size_t begin = position_;
  int64_t bytes = 0;
  const Step step = ReadNumber(text, "bulk", &bytes);
  if (step != Step::kGoOn) return step;
  if (bytes < 0 || bytes > kProtocolBulkBytesMax) {
    Malformed("invalid bulk length");
    return Step::kMalformed;
  }
  const size_t size = static_cast<size_t>(bytes), all = size + 2;
  if (!skipping_ && size > limits_.argument_bytes_max) {
    BeginSkipping("an argument of " + std::to_string(size) + " bytes; redis_value_bytes_max is " +
                  std::to_string(limits_.argument_bytes_max));
  } else if (!skipping_ && position_ - consumed_ + all > limits_.request_bytes_max) {
    BeginSkipping("a request of more than " + std::to_string(limits_.request_bytes_max) +
                  " bytes, which is redis_request_bytes_max");
  }
  if (skipping_) {
    skip_bytes_ = all;
    return Step::kGoOn;
  }
  if (text.size() - position_ < all) {
    bytes_wanted_ = position_ + all;
    position_ = begin;
    return Step::kIncomplete;
  }
  if (text.substr(position_ + size, 2) != "\r\n") {
    Malformed("expected the end of an argument");
    return Step::kMalformed;
  }
  spans_.push_back({position_, size});
  position_ += all;
  --arguments_left_;
  return Step::kGoOn;
}

RequestReader::Outcome RequestReader::ReadLine(std::string_view text) {
  const size_t end = text.find('\n', position_);
  if ((end == std::string_view::npos ? text.size() : end) - consumed_ > kInlineBytesMax) {
    return Malformed("too big inline request");
  }
  if (end == std::string_view::npos) {
    position_ = 0;
    return Outcome::kIncomplete;
  }
  const std::string_view line = text.substr(consumed_, end - consumed_);
  consumed_ = end + 1;
  position_ = 0;
  std::vector<size_t> ends;
  unquoted_.clear();
  unquoted_.reserve(line.size());
  if (!SplitLine(line, &unquoted_, &ends)) return Malformed("unbalanced quotes in request");
  size_t at = 0;
  for (const size_t word_end : ends) {
    arguments_.push_back(std::string_view(unquoted_).substr(at, word_end - at));
    at = word_end;
  }
  return Outcome::kRequest;  // without arguments, of an empty line
}

}  // namespace farleaf::server::redis
