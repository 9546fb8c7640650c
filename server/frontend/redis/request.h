// RequestReader: what a Redis client sends, as requests: arrays of bulk strings, or lines of words (inline
// commands).
//
// Invariants:
//   - reading is total and incremental: no byte is looked at twice because others had not come yet, save those of
//     an argument's length, and of a line up to its end;
//   - a request that is larger than the limits is skipped as it comes, never kept; what follows it is read;
//   - arguments are views into the text, or, of a line with quotes, into the reader's own room: valid until the
//     next Read.
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farleaf::server::redis {

struct RequestLimits {
  size_t argument_bytes_max = size_t{1} << 20;
  size_t request_bytes_max = size_t{16} << 20;
};

class RequestReader {
 public:
  static constexpr size_t kInlineBytesMax = 64 << 10;
  static constexpr size_t kArgumentsMax = size_t{1} << 20;

  enum class Outcome : uint8_t {
    kIncomplete,
    kRequest,
    kTooLarge,   ///< a request was skipped: error()
    kMalformed,  ///< error(); nothing behind it can be read
  };

  explicit RequestReader(RequestLimits limits) : limits_(limits) {}
  /// From the next argument on.
  void set_limits(RequestLimits limits) { limits_ = limits; }

  /// `text`: what is unread; at its front is what was there at the last call, less what that consumed.
  Outcome Read(std::string_view text);
  /// Of the text, by the last call; also where the outcome is kIncomplete.
  size_t consumed() const { return consumed_; }
  /// How many bytes of text the request at the front needs at least; 0: not known.
  size_t bytes_wanted() const { return bytes_wanted_; }
  /// Whether a request has begun, of which text may have been consumed, that has not ended.
  bool in_request() const { return in_request_; }
  /// How much of the text has been looked at.
  size_t position() const { return position_; }
  const std::vector<std::string_view>& arguments() const { return arguments_; }
  /// Forgets the arguments, and keeps memory only for a request that is still coming.
  void GiveBackRoom();
  /// One line, without its end.
  const std::string& error() const { return error_; }

 private:
  enum class Step : uint8_t { kGoOn, kIncomplete, kMalformed };
  struct Span {
    size_t at, bytes;
  };
  static constexpr size_t kNumberLineBytesMax = 32;

  Step ReadHead(std::string_view text);
  Step ReadArgument(std::string_view text);
  Outcome ReadLine(std::string_view text);
  Outcome EndRequest(std::string_view text);
  /// "*5\r\n" or "$5\r\n" at the position, which moves behind it.
  Step ReadNumber(std::string_view text, std::string_view what, int64_t* number);
  Outcome Malformed(std::string error);
  void Skip(size_t* bytes, size_t available);
  void BeginSkipping(std::string error);

  RequestLimits limits_;
  size_t consumed_ = 0, position_ = 0, bytes_wanted_ = 0;
  size_t arguments_left_ = 0;
  bool in_request_ = false;
  bool skipping_ = false;
  size_t skip_bytes_ = 0;  // of the argument that is being skipped
  std::vector<Span> spans_;
  std::vector<std::string_view> arguments_;
  std::string unquoted_;
  std::string error_;
};

/// Words of a line, as Redis takes them: in double quotes with \n \r \t \b \a \xHH, or in single quotes. False:
/// quotes are not balanced. The words are in `room`, one after the other, `ends` says where they end.
bool SplitLine(std::string_view line, std::string* room, std::vector<size_t>* ends);

}  // namespace farleaf::server::redis
