// TextProtocol: how requests for a record look in Redis' protocol (RESP2) and in memcached's text
// protocol, and how their answers are read. Pure functions over bytes: whoever has the connection
// keeps the order of requests and answers.
//
// Answers are foreign bytes: what does not answer the request that it is due for is Corruption, and
// the connection is then of no more use. An error that the server reports is an answer.
//
// Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dsm/base/result.h"

namespace farleaf::ycsb {

enum class RequestKind : uint8_t {
  kLogin,           ///< the value is the password
  kProbe,           ///< whether the server speaks the protocol, and to us
  kGet,             ///< the value
  kGetVersion,      ///< the value, and the version that kReplaceVersion wants
  kInsert,          ///< stores if the key is not there
  kReplace,         ///< stores if the key is there
  kReplaceVersion,  ///< stores if the key is there with this version
};

/// Views of what outlives the call.
struct Request {
  RequestKind kind = RequestKind::kProbe;
  std::string_view key = {}, value = {};
  uint64_t version = 0;
};

struct Answer {
  enum class Outcome : uint8_t {
    kDone,       ///< found, stored, let in
    kMissing,    ///< the key is not there
    kPresent,    ///< the key is there: nothing was inserted
    kDifferent,  ///< the key is there with another version
  };
  Status status;  ///< the server's error, in its words; else ok
  Outcome outcome = Outcome::kDone;
  std::string_view value;  ///< of a get: into the bytes that were parsed
  uint64_t version = 0;    ///< of kGetVersion
};

class TextProtocol {
 public:
  /// A longer value is no answer: more than any workload writes.
  static constexpr uint64_t kValueBytesMax = 64 << 20;

  virtual ~TextProtocol() = default;
  /// kGetVersion and kReplaceVersion exist.
  virtual bool has_versions() const = 0;
  /// Keys may be of any bytes; else of printable ASCII without spaces.
  virtual bool has_binary_keys() const = 0;
  virtual size_t key_bytes_max() const = 0;
  /// REQUIRES: a key that the protocol can carry.
  virtual void AppendRequest(const Request& request, std::string* out) const = 0;
  /// Reads the answer to `request` at the front of `bytes`. Returns its length; 0: it has not come
  /// as a whole, and `answer` says nothing.
  virtual Result<size_t> ParseAnswer(const Request& request, std::string_view bytes,
                                     Answer* answer) const = 0;
};

std::unique_ptr<TextProtocol> NewRedisProtocol();
std::unique_ptr<TextProtocol> NewMemcachedProtocol();

// What both have in common:

inline constexpr size_t kAnswerLineBytesMax = 4096;

/// The line at the front of `bytes`, without its CR LF; nullopt: its end has not come. Corruption:
/// it ends otherwise, or not within kAnswerLineBytesMax.
Result<std::optional<std::string_view>> FirstAnswerLine(std::string_view bytes);
/// An answer that was not to be expected.
Status WrongAnswer(std::string_view expected, std::string_view line);
/// A server's error. A message of a Farleaf server begins with the name of its code, which then
/// wins over `code`.
Status ServerError(StatusCode code, std::string_view line, std::string_view message);
/// Decimal digits and nothing else, up to `max`.
std::optional<uint64_t> ParseCount(std::string_view text, uint64_t max);

}  // namespace farleaf::ycsb
