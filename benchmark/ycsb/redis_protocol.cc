// Redis' protocol, RESP2: GET, SET NX and SET XX. It has no versions in one command.
#include <charconv>

#include "benchmark/ycsb/text_protocol.h"

namespace farleaf::ycsb {

namespace {

using Outcome = Answer::Outcome;

void AppendBulk(std::string_view bytes, std::string* out) {
  char length[20];
  const auto end = std::to_chars(length, length + sizeof length, bytes.size()).ptr;
  *out += '$';
  out->append(length, end);
  *out += "\r\n";
  *out += bytes;
  *out += "\r\n";
}

StatusCode CodeOfError(std::string_view line) {
  if (line.starts_with("-OOM ")) return StatusCode::kResourceExhausted;
  for (const std::string_view busy : {"-LOADING ", "-BUSY ", "-CLUSTERDOWN ", "-MASTERDOWN ",
                                      "-TRYAGAIN ", "-MISCONF ", "-READONLY "}) {
    if (line.starts_with(busy)) return StatusCode::kUnavailable;
  }
  return StatusCode::kInvalidArgument;
}

class RedisProtocol final : public TextProtocol {
 public:
  bool has_versions() const override { return false; }
  bool has_binary_keys() const override { return true; }
  size_t key_bytes_max() const override { return size_t{1} << 20; }

  void AppendRequest(const Request& request, std::string* out) const override {
    switch (request.kind) {
      case RequestKind::kLogin:
        *out += "*2\r\n$4\r\nAUTH\r\n";
        return AppendBulk(request.value, out);
      case RequestKind::kProbe:
        *out += "*1\r\n$4\r\nPING\r\n";
        return;
      case RequestKind::kGet:
      case RequestKind::kGetVersion:
        *out += "*2\r\n$3\r\nGET\r\n";
        return AppendBulk(request.key, out);
      case RequestKind::kInsert:
      case RequestKind::kReplace:
      case RequestKind::kReplaceVersion:
        *out += "*4\r\n$3\r\nSET\r\n";
        AppendBulk(request.key, out);
        AppendBulk(request.value, out);
        *out += request.kind == RequestKind::kInsert ? "$2\r\nNX\r\n" : "$2\r\nXX\r\n";
        return;
    }
  }

  Result<size_t> ParseAnswer(const Request& request, std::string_view bytes,
                             Answer* answer) const override {
    auto first = FirstAnswerLine(bytes);
    if (!first.ok()) return first.status();
    if (!*first) return size_t{0};
    const std::string_view line = **first;
    *answer = {};
    if (line.starts_with('-')) {
      const std::string_view message =
          line.starts_with("-ERR ") ? line.substr(5) : std::string_view();
      answer->status = ServerError(CodeOfError(line), line, message);
      return line.size() + 2;
    }
    const bool gets =
        request.kind == RequestKind::kGet || request.kind == RequestKind::kGetVersion;
    if (gets && line.starts_with('$') && line != "$-1") return ParseValue(line, bytes, answer);
    const bool stores = request.kind == RequestKind::kInsert ||
                        request.kind == RequestKind::kReplace ||
                        request.kind == RequestKind::kReplaceVersion;
    if ((gets || stores) && line == "$-1") {
      answer->outcome =
          request.kind == RequestKind::kInsert ? Outcome::kPresent : Outcome::kMissing;
      return line.size() + 2;
    }
    const std::string_view expected = gets ? "$LENGTH"
                                           : request.kind == RequestKind::kProbe ? "+PONG" : "+OK";
    if (gets || line != expected) return WrongAnswer(expected, line);
    return line.size() + 2;
  }

 private:
  static Result<size_t> ParseValue(std::string_view line, std::string_view bytes,
                                   Answer* answer) {
    const auto length = ParseCount(line.substr(1), kValueBytesMax);
    if (!length) return WrongAnswer("$LENGTH", line);
    const size_t begin = line.size() + 2;
    if (bytes.size() < begin + *length + 2) return size_t{0};
    const std::string_view end = bytes.substr(begin + *length, 2);
    if (end != "\r\n") return WrongAnswer("CR LF behind " + std::string(line), end);
    answer->value = bytes.substr(begin, *length);
    return begin + *length + 2;
  }
};

}  // namespace

std::unique_ptr<TextProtocol> NewRedisProtocol() { return std::make_unique<RedisProtocol>(); }

}  // namespace farleaf::ycsb
