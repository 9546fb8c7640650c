#include "benchmark/rivals/conversation.h"

#include <charconv>

namespace farleaf::rivals {

std::string_view NameOf(RequestKind kind) { return kind == RequestKind::kGet ? "GET" : "SET"; }

std::string_view NameOf(Protocol protocol) {
  switch (protocol) {
    case Protocol::kRedis:
      return "redis";
    case Protocol::kMemcached:
      return "memcached";
    default:
      return "native";
  }
}

void AppendKey(uint64_t number, std::string* out) {
  constexpr std::string_view kPrefix = "user";
  char digits[20];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  const auto count = static_cast<size_t>(end - digits);
  out->append(kPrefix);
  out->append(kKeyBytes - kPrefix.size() - count, '0');
  out->append(digits, count);
}

void AppendValue(uint64_t number, char letter, std::string* out) {
  AppendKey(number, out);
  out->append(kValueBytes - kKeyBytes, letter);
}

Result<std::unique_ptr<Conversation>> Connect(Protocol protocol, std::string_view address) {
  if (protocol == Protocol::kNative) return ConnectNative(address);
  return ConnectText(protocol, address);
}

}  // namespace farleaf::rivals
