#include "test/support/history.h"

#include <cstdio>

namespace farleaf::test {

std::string Printable(std::string_view bytes) {
  std::string text = "\"";
  for (size_t i = 0; i < bytes.size() && i < 24; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte >= 0x20 && byte < 0x7f) {
      text += static_cast<char>(byte);
    } else {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", byte);
      text += hex;
    }
  }
  return text + (bytes.size() > 24 ? "\"…" : "\"");
}

std::string Printable(const std::optional<std::string>& value) {
  return value ? Printable(std::string_view(*value)) : "absent";
}

std::string Operation::ToString() const {
  static constexpr const char* kNames[] = {"get",    "insert", "put",       "set",
                                           "update", "delete", "delete_if", "modify"};
  std::string text = "[" + std::to_string(invoked) + ", " +
                     (returned == kNever ? "never" : std::to_string(returned)) + "] " +
                     kNames[static_cast<size_t>(kind)];
  if (kind != OpKind::kGet && kind != OpKind::kDelete) {
    text += " " + Printable(std::string_view(argument));
  }
  if (outcome == Outcome::kFailed) return text + " failed";
  if (kind == OpKind::kModify) {
    text += " of " + Printable(value) + " to " + Printable(argument_after);
  }
  if (outcome == Outcome::kUnknown) return text + " unknown";
  if (kind == OpKind::kGet) return text + " found " + Printable(value);
  if (kind == OpKind::kDeleteIf && existed) text += deleted ? " deleted" : " differed";
  if (kind != OpKind::kModify && kind != OpKind::kSet) text += existed ? " existed" : " was absent";
  return text;
}

}  // namespace farleaf::test
