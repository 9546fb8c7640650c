#include "server/control/text_form.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

#include "dsm/base/bytes.h"

namespace farleaf::server {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// nullopt-like: false if these are not two digits.
bool TakeHexByte(std::string_view digits, std::string* out) {
  if (digits.size() < 2) return false;
  const int high = HexDigit(digits[0]), low = HexDigit(digits[1]);
  if (high < 0 || low < 0) return false;
  out->push_back(static_cast<char>(high * 16 + low));
  return true;
}

bool ParseEscapedText(std::string_view typed, std::string* out) {
  for (size_t i = 0; i < typed.size(); ++i) {
    if (typed[i] != '\\') {
      out->push_back(typed[i]);
    } else if (typed.substr(i).starts_with("\\\\")) {
      out->push_back('\\');
      ++i;
    } else if (typed.substr(i).starts_with("\\x") && TakeHexByte(typed.substr(i + 2), out)) {
      i += 3;
    } else {
      return false;
    }
  }
  return true;
}

bool ParseHex(std::string_view typed, std::string* out) {
  if (typed.size() % 2 != 0) return false;
  for (size_t i = 0; i < typed.size(); i += 2) {
    if (!TakeHexByte(typed.substr(i), out)) return false;
  }
  return true;
}

/// Length of the UTF-8 sequence at the front; 0 if there is none.
size_t Utf8Length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const size_t length = at(0) < 0x80       ? 1
                        : at(0) >> 5 == 6  ? 2
                        : at(0) >> 4 == 14 ? 3
                        : at(0) >> 3 == 30 ? 4
                                           : 0;
  if (length == 0 || bytes.size() < length) return 0;
  uint32_t code = length == 1 ? at(0) : at(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (at(i) >> 6 != 2) return 0;
    code = code << 6 | (at(i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid =
      code >= kSmallest[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return valid ? length : 0;
}

}  // namespace

TextForm FormFor(TextForm wanted, client::protocol::TreeLayout layout) {
  if (wanted != TextForm::kAuto) return wanted;
  return layout == client::protocol::TreeLayout::kFixed8 ? TextForm::kU64 : TextForm::kText;
}

Result<std::string> ParseBytes(std::string_view typed, TextForm form) {
  std::string bytes;
  const auto refuse = [&](std::string_view wanted) {
    return Status::InvalidArgument("\"" + std::string(typed) + "\" is not " + std::string(wanted));
  };
  if (form == TextForm::kU64) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), number);
    if (error != std::errc() || end != typed.data() + typed.size()) {
      return refuse("an unsigned 64-bit number");
    }
    bytes.resize(8);
    StoreBig64(bytes.data(), number);
    return bytes;
  }
  if (form == TextForm::kHex) {
    if (!ParseHex(typed, &bytes)) return refuse("an even number of hexadecimal digits");
    return bytes;
  }
  if (!ParseEscapedText(typed, &bytes)) return refuse("text with \\xNN or \\\\ after a backslash");
  return bytes;
}

std::string PrintBytes(std::string_view bytes, TextForm form) {
  if (form == TextForm::kU64 && bytes.size() == 8) return std::to_string(LoadBig64(bytes.data()));
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (form == TextForm::kHex || form == TextForm::kU64) {
      fmt::format_to(std::back_inserter(text), "{:02x}", byte);
    } else if (byte < 0x20 || byte == 0x7f || byte >= 0x80) {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", byte);
    } else {
      if (c == '\\') text.push_back('\\');
      text.push_back(c);
    }
  }
  return text;
}

std::string JsonString(std::string_view bytes) {
  std::string text = "\"";
  while (!bytes.empty()) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    const size_t length = Utf8Length(bytes);
    if (byte == '"' || byte == '\\') {
      text += {'\\', bytes.front()};
    } else if (byte < 0x20 || byte == 0x7f || length == 0) {
      fmt::format_to(std::back_inserter(text), "\\u00{:02x}", byte);
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text + "\"";
}

}  // namespace farleaf::server
