// One command line of memcached's text protocol, classic or meta, parsed: memcached's protocol.txt, as of its
// release 1.6.
//
// Invariants: parsing is total; a command views the line that it was parsed from. Keys have 1 to 250 bytes
// and neither spaces nor control characters.
// Thread rule: pure functions and value types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace farleaf::server::memcached {

inline constexpr size_t kKeyBytesMax = 250;
/// Of a command that is not a retrieval of keys.
inline constexpr size_t kTokensMax = 24;

enum class Verb : uint8_t {
  kNone,
  kGet,
  kGets,
  kGat,
  kGats,
  kSet,
  kAdd,
  kReplace,
  kAppend,
  kPrepend,
  kCas,
  kIncr,
  kDecr,
  kTouch,
  kDelete,
  kMetaGet,
  kMetaSet,
  kMetaDelete,
  kMetaArithmetic,
  kMetaDebug,
  kMetaNoop,
  kFlushAll,
  kStats,
  kVersion,
  kVerbosity,
  kQuit,
  kShutdown,
};
inline constexpr size_t kVerbCount = static_cast<size_t>(Verb::kShutdown) + 1;

std::string_view VerbName(Verb verb);

/// The flags of a meta command. Letters without a token are in `seen` only.
struct MetaFlags {
  std::string_view text;  ///< all of them, in the order in which they are answered
  uint64_t seen = 0;
  int64_t ttl = 0;                         ///< T
  int64_t vivify_ttl = 0;                  ///< N
  int64_t renew_ttl = 0;                   ///< R
  uint64_t compare_cas = 0, next_cas = 0;  ///< C, E
  uint32_t client_flags = 0;               ///< F
  uint64_t initial = 0, delta = 1;         ///< J, D
  char mode = 0;                           ///< M

  static constexpr uint64_t Bit(char letter) { return uint64_t{1} << (letter - 'A'); }
  bool has(char letter) const { return (seen & Bit(letter)) != 0; }
};

struct Command {
  Verb verb = Verb::kNone;
  std::string_view key;        ///< as it was sent
  std::string_view more_keys;  ///< retrievals: those behind it, separated by spaces
  uint32_t flags = 0;
  int64_t exptime = 0;
  uint64_t cas = 0;
  uint64_t delta = 0;
  std::string_view argument;  ///< of stats
  MetaFlags meta;
  bool quiet = false;  ///< noreply, or q
  /// A value of so many bytes and a line's end follow the line.
  std::optional<size_t> value_bytes;
  std::string_view value;
  /// Not empty: what to answer, rather than to run it. What follows the line is skipped.
  std::string_view refusal;
};

struct ParseLimits {
  size_t value_bytes_max = size_t{1} << 20;
};

inline constexpr std::string_view kError = "ERROR";
inline constexpr std::string_view kBadFormat = "CLIENT_ERROR bad command line format";
inline constexpr std::string_view kTooLarge = "SERVER_ERROR object too large for cache";

/// `line` is without its end.
Command ParseCommand(std::string_view line, const ParseLimits& limits);

/// The next word of `text`, which is taken from its front; empty at the end.
std::string_view TakeWord(std::string_view* text);
bool IsKey(std::string_view text);

template <typename T>
bool ParseNumber(std::string_view text, T* number);

/// Sets what the flags in `text` say. What is wrong with them, or nothing.
std::string_view ParseMetaFlags(Verb verb, std::string_view text, MetaFlags* flags);

/// Bytes of RFC 4648's base64, with padding; nullopt if it is none. `out` is replaced.
bool DecodeBase64(std::string_view text, std::string* out);
void AppendBase64(std::string_view bytes, std::string* out);

}  // namespace farleaf::server::memcached
