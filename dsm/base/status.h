// Status: how an operation that can fail for operating reasons reports it. Expected outcomes (a key
// that is not there) are return types of their own and never a Status.
//
// Invariant: an ok Status carries no message and costs no allocation.
// Thread rule: a value type; no sharing.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace farleaf {

/// The numeric values travel in the native protocol and the memory layer's frames: never renumber.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     ///< the caller's argument or configuration is wrong
  kUnavailable = 2,         ///< a server or a connection is gone; the message names it
  kDeadlineExceeded = 3,    ///< the wait ended at its deadline; the message says on whom
  kResourceExhausted = 4,   ///< a pool, a table or a limit is full
  kCorruption = 5,          ///< bytes from outside failed validation
  kUnknown = 6,             ///< the operation may or may not have taken effect
  kFenced = 7,              ///< this compute server was cut off and must rejoin
  kAlreadyExists = 8,       ///< a name or an id is taken
  kNotFound = 9,            ///< a named thing (tree, server, file) does not exist
  kIoError = 10,            ///< the operating system refused; the message holds its reason
  kUnimplemented = 11,      ///< the peer or this build does not offer it
  kVersionMismatch = 12,    ///< a compare-and-set found another version than its caller had seen
};
inline constexpr uint8_t kStatusCodeMax = 12;

constexpr std::string_view StatusCodeName(StatusCode code) {
  constexpr std::string_view kNames[] = {"ok",          "invalid argument",   "unavailable",
                                         "deadline exceeded", "resource exhausted", "corruption",
                                         "unknown outcome",   "fenced",             "already exists",
                                         "not found",   "i/o error",          "unimplemented",
                                         "version mismatch"};
  return kNames[static_cast<uint8_t>(code)];
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : rep_(code == StatusCode::kOk ? nullptr : std::make_unique<Rep>(code, std::move(message))) {}
  Status(const Status& other) { *this = other; }
  Status& operator=(const Status& other) {
    if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status DeadlineExceeded(std::string m) { return {StatusCode::kDeadlineExceeded, std::move(m)}; }
  static Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
  static Status Corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
  static Status Unknown(std::string m) { return {StatusCode::kUnknown, std::move(m)}; }
  static Status Fenced(std::string m) { return {StatusCode::kFenced, std::move(m)}; }
  static Status AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status IoError(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
  static Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
  static Status VersionMismatch(std::string m) { return {StatusCode::kVersionMismatch, std::move(m)}; }

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : ""; }
  /// "unavailable: memory server 3 lost", or "ok".
  std::string ToString() const {
    if (ok()) return "ok";
    return std::string(StatusCodeName(rep_->code)) + ": " + rep_->message;
  }
  /// The same failure with `context` in front of its message.
  Status WithContext(std::string_view context) const {
    if (ok()) return {};
    return {rep_->code, std::string(context) + ": " + rep_->message};
  }

 private:
  struct Rep {
    StatusCode code;
    std::string message;
    Rep(StatusCode c, std::string m) : code(c), message(std::move(m)) {}
  };
  std::unique_ptr<Rep> rep_;
};

inline std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace farleaf

/// Evaluates an expression of type Status and returns it from the enclosing function if it failed.
#define FARLEAF_RETURN_IF_ERROR(expression)              \
  do {                                                   \
    ::farleaf::Status farleaf_status_ = (expression);    \
    if (!farleaf_status_.ok()) return farleaf_status_;   \
  } while (false)

/// The same in a coroutine. The expression must not itself contain a co_await.
#define FARLEAF_CO_RETURN_IF_ERROR(expression)            \
  do {                                                    \
    ::farleaf::Status farleaf_status_ = (expression);     \
    if (!farleaf_status_.ok()) co_return farleaf_status_; \
  } while (false)
