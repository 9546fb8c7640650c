#include "server/frontend/redis/reply.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace farleaf::server::redis {

namespace {
constexpr std::string_view kEnd = "\r\n";
}  // namespace

void Reply::Line(char kind, std::string_view text) {
  out_->append(1, kind).append(text).append(kEnd);
}

void Reply::Number(char kind, int64_t number) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  Line(kind, {digits, static_cast<size_t>(end - digits)});
}

void Reply::Error(std::string_view text) {
  const size_t at = out_->size();
  out_->append(1, '-').append(text);
  std::replace_if(
      out_->begin() + static_cast<std::ptrdiff_t>(at), out_->end(),
      [](char c) { return c == '\r' || c == '\n'; }, ' ');
  out_->append(kEnd);
}

void Reply::Bulk(std::string_view bytes) {
  Number('$', static_cast<int64_t>(bytes.size()));
  out_->append(bytes).append(kEnd);
}

void Reply::Null() { out_->append(version_ == RespVersion::k3 ? "_\r\n" : "$-1\r\n"); }

void Reply::NullArray() { out_->append(version_ == RespVersion::k3 ? "_\r\n" : "*-1\r\n"); }

void Reply::Map(size_t pairs) {
  const bool map = version_ == RespVersion::k3;
  Number(map ? '%' : '*', static_cast<int64_t>(map ? pairs : 2 * pairs));
}

void Reply::Double(double number) {
  if (version_ == RespVersion::k3) {
    Line(',', DoubleText(number));
  } else {
    Bulk(DoubleText(number));
  }
}

void Reply::Text(std::string_view text) {
  if (version_ != RespVersion::k3) return Bulk(text);
  constexpr std::string_view kPlain = "txt:";
  Number('=', static_cast<int64_t>(kPlain.size() + text.size()));
  out_->append(kPlain).append(text).append(kEnd);
}

void Reply::Head(Kind kind, size_t at, size_t count) {
  std::string head;
  Reply in_front(&head, version_);
  if (kind == Kind::kMap) {
    in_front.Map(count);
  } else {
    in_front.Array(count);
  }
  out_->insert(at, head);
}

std::string DoubleText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  // Whole numbers without an exponent, as far as doubles hold them all.
  constexpr double kWholeMax = 1e17;
  char digits[64];
  const auto [end, error] =
      std::abs(number) < kWholeMax && number == std::floor(number)
          ? std::to_chars(digits, digits + sizeof digits, static_cast<int64_t>(number))
          : std::to_chars(digits, digits + sizeof digits, number);
  return {digits, end};
}

}  // namespace farleaf::server::redis
