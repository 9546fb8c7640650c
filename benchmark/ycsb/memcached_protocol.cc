// memcached's text protocol: get, gets, add, replace and cas.
#include <array>

#include "benchmark/ycsb/text_protocol.h"

namespace farleaf::ycsb {

namespace {

constexpr std::string_view kEnd = "\r\nEND\r\n";  // behind a value

bool Gets(RequestKind kind) {
  return kind == RequestKind::kGet || kind == RequestKind::kGetVersion;
}

std::string_view NameOf(RequestKind kind) {
  switch (kind) {
    case RequestKind::kLogin:
      return "set";
    case RequestKind::kProbe:
      return "version";
    case RequestKind::kGet:
      return "get";
    case RequestKind::kGetVersion:
      return "gets";
    case RequestKind::kInsert:
      return "add";
    case RequestKind::kReplace:
      return "replace";
    case RequestKind::kReplaceVersion:
      return "cas";
  }
  return {};
}

std::optional<Status> ErrorOf(std::string_view line) {
  constexpr std::string_view kOfClient = "CLIENT_ERROR ", kOfServer = "SERVER_ERROR ";
  if (line == "ERROR" || line.starts_with("ERROR ")) {
    return ServerError(StatusCode::kInvalidArgument, line, {});
  }
  if (line.starts_with(kOfClient)) {
    return ServerError(StatusCode::kInvalidArgument, line, line.substr(kOfClient.size()));
  }
  if (!line.starts_with(kOfServer)) return std::nullopt;
  const bool full = line.find("out of memory") != std::string_view::npos ||
                    line.find("too large") != std::string_view::npos;
  return ServerError(full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable, line,
                     line.substr(kOfServer.size()));
}

/// The words of a line, at most five; with more, or other than one space between them, none.
struct Words {
  std::array<std::string_view, 5> at;
  size_t count = 0;
};

Words SplitWords(std::string_view line) {
  Words words;
  while (words.count < words.at.size()) {
    const size_t end = line.find(' ');
    words.at[words.count++] = line.substr(0, end);
    if (end == std::string_view::npos) return words;
    line.remove_prefix(end + 1);
  }
  return {};
}

class MemcachedProtocol final : public TextProtocol {
 public:
  bool has_versions() const override { return true; }
  bool has_binary_keys() const override { return false; }
  size_t key_bytes_max() const override { return 250; }

  void AppendRequest(const Request& request, std::string* out) const override {
    *out += NameOf(request.kind);
    if (request.kind == RequestKind::kLogin) {
      // The first set of a connection to a server that wants a password is the login.
      const std::string credentials = "ycsb " + std::string(request.value);
      *out += " login 0 0 " + std::to_string(credentials.size()) + "\r\n" + credentials;
    } else if (request.kind != RequestKind::kProbe) {
      *out += ' ';
      *out += request.key;
      if (!Gets(request.kind)) AppendData(request, out);
    }
    *out += "\r\n";
  }

  Result<size_t> ParseAnswer(const Request& request, std::string_view bytes,
                             Answer* answer) const override {
    auto first = FirstAnswerLine(bytes);
    if (!first.ok()) return first.status();
    if (!*first) return size_t{0};
    const std::string_view line = **first;
    *answer = {};
    if (auto error = ErrorOf(line)) {
      answer->status = std::move(*error);
      return line.size() + 2;
    }
    if (Gets(request.kind) && line != "END") return ParseValue(request, line, bytes, answer);
    const auto outcome = OutcomeOf(request.kind, line);
    if (!outcome) return WrongAnswer("an answer to " + std::string(NameOf(request.kind)), line);
    answer->outcome = *outcome;
    return line.size() + 2;
  }

 private:
  static void AppendData(const Request& request, std::string* out) {
    *out += " 0 0 ";
    *out += std::to_string(request.value.size());
    if (request.kind == RequestKind::kReplaceVersion) {
      *out += ' ';
      *out += std::to_string(request.version);
    }
    *out += "\r\n";
    *out += request.value;
  }

  static std::optional<Answer::Outcome> OutcomeOf(RequestKind kind, std::string_view line) {
    using Outcome = Answer::Outcome;
    switch (kind) {
      case RequestKind::kProbe:
        if (line.starts_with("VERSION ")) return Outcome::kDone;
        return std::nullopt;
      case RequestKind::kGet:
      case RequestKind::kGetVersion:
        return Outcome::kMissing;
      case RequestKind::kLogin:
        break;
      case RequestKind::kInsert:
        if (line == "NOT_STORED") return Outcome::kPresent;
        break;
      case RequestKind::kReplace:
        if (line == "NOT_STORED") return Outcome::kMissing;
        break;
      case RequestKind::kReplaceVersion:
        if (line == "NOT_FOUND") return Outcome::kMissing;
        if (line == "EXISTS") return Outcome::kDifferent;
        break;
    }
    if (line == "STORED") return Outcome::kDone;
    return std::nullopt;
  }

  static Result<size_t> ParseValue(const Request& request, std::string_view line,
                                   std::string_view bytes, Answer* answer) {
    const bool versioned = request.kind == RequestKind::kGetVersion;
    const Words words = SplitWords(line);
    const auto length = ParseCount(words.at[3], kValueBytesMax);
    const auto version = versioned ? ParseCount(words.at[4], UINT64_MAX) : 0;
    if (words.count != (versioned ? 5 : 4) || words.at[0] != "VALUE" ||
        words.at[1] != request.key || words.at[2] != "0" || !length || !version) {
      return WrongAnswer("VALUE " + std::string(request.key) + " 0 LENGTH" +
                             (versioned ? " VERSION" : ""),
                         line);
    }
    const size_t begin = line.size() + 2, end = begin + *length;
    if (bytes.size() < end + kEnd.size()) return size_t{0};
    if (bytes.substr(end, kEnd.size()) != kEnd) {
      return WrongAnswer("END behind " + std::string(line), bytes.substr(end, kEnd.size()));
    }
    answer->value = bytes.substr(begin, *length);
    answer->version = *version;
    return end + kEnd.size();
  }
};

}  // namespace

std::unique_ptr<TextProtocol> NewMemcachedProtocol() {
  return std::make_unique<MemcachedProtocol>();
}

}  // namespace farleaf::ycsb
