#include "server/frontend/memcached/command.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <limits>
#include <span>

#include "dsm/base/bytes.h"

namespace farleaf::server::memcached {

namespace {

constexpr std::string_view kNames[kVerbCount] = {
    "none",    "get", "gets", "gat",       "gats",  "set",     "add",       "replace", "append",
    "prepend", "cas", "incr", "decr",      "touch", "delete",  "mg",        "ms",      "md",
    "ma",      "me",  "mn",   "flush_all", "stats", "version", "verbosity", "quit",    "shutdown"};

constexpr uint64_t kEachByte = 0x0101'0101'0101'0101;
constexpr uint64_t kNoControl = 'x' * kEachByte;

/// Whether one of eight characters is at most ' ', or DEL.
bool HasSpaceOrControl(uint64_t characters) {
  constexpr uint64_t kTop = 0x80 * kEachByte, kDel = 0x7f * kEachByte;
  const uint64_t small = (characters - (' ' + 1) * kEachByte) & ~characters;
  const uint64_t other = characters ^ kDel;  // 0 where it is DEL
  return ((small | ((other - kEachByte) & ~other)) & kTop) != 0;
}

/// How many characters `text` has in front of its first space.
size_t WordBytes(std::string_view text) {
  // Most verbs and numbers end sooner than a call of memchr begins.
  const size_t few = std::min<size_t>(text.size(), 4);
  for (size_t at = 0; at < few; ++at) {
    if (text[at] == ' ') return at;
  }
  return std::min(text.find(' ', few), text.size());
}

/// A number of up to nine digits, and nothing but digits.
bool ParseFewDigits(std::string_view text, uint32_t* number) {
  if (text.empty() || text.size() > 9) return false;
  for (const char character : text) {
    const uint32_t digit = static_cast<uint32_t>(character) - '0';
    if (digit > 9) return false;
    *number = *number * 10 + digit;
  }
  return true;
}

Verb FindVerb(std::string_view word) {
  if (word.empty()) return Verb::kNone;
  for (size_t i = 1; i < kVerbCount; ++i) {
    if (kNames[i].front() == word.front() && kNames[i] == word) return static_cast<Verb>(i);
  }
  return Verb::kNone;
}

/// What memcached has and there is none of here: commands, and what `stats` tells. Each is refused by its name.
struct NotServed {
  std::string_view name, refusal;
};
constexpr NotServed kVerbsNotServed[] = {
    {"bget", "CLIENT_ERROR 'bget' is not supported by Farleaf: use get"},
    {"cache_memlimit",
     "CLIENT_ERROR 'cache_memlimit' is not supported by Farleaf: memory servers have the memory"},
    {"debugtime", "CLIENT_ERROR 'debugtime' is not supported by Farleaf"},
    {"extstore", "CLIENT_ERROR 'extstore' is not supported by Farleaf: there is no second store"},
    {"lru", "CLIENT_ERROR 'lru' is not supported by Farleaf: nothing is evicted"},
    {"lru_crawler",
     "CLIENT_ERROR 'lru_crawler' is not supported by Farleaf: what has expired is swept by itself"},
    {"misbehave", "CLIENT_ERROR 'misbehave' is not supported by Farleaf"},
    {"refresh_certs",
     "CLIENT_ERROR 'refresh_certs' is not supported by Farleaf: certificates are read on SIGHUP"},
    {"slabs", "CLIENT_ERROR 'slabs' is not supported by Farleaf: memory has no classes of sizes"},
    {"watch", "CLIENT_ERROR 'watch' is not supported by Farleaf: use the server's metrics"},
};
constexpr NotServed kStatsNotServed[] = {
    {"cachedump",
     "CLIENT_ERROR 'stats cachedump' is not supported by Farleaf: use farleafctl scan"},
    {"conns", "CLIENT_ERROR 'stats conns' is not supported by Farleaf"},
    {"detail", "CLIENT_ERROR 'stats detail' is not supported by Farleaf"},
    {"extstore", "CLIENT_ERROR 'stats extstore' is not supported by Farleaf"},
    {"proxy", "CLIENT_ERROR 'stats proxy' is not supported by Farleaf"},
    {"reset",
     "CLIENT_ERROR 'stats reset' is not supported by Farleaf: other servers' counters would stay"},
    {"sizes_disable", "CLIENT_ERROR 'stats sizes_disable' is not supported by Farleaf"},
    {"sizes_enable", "CLIENT_ERROR 'stats sizes_enable' is not supported by Farleaf"},
};

/// Empty: nothing of that name is known.
std::string_view RefusalOf(std::span<const NotServed> not_served, std::string_view name) {
  for (const NotServed& each : not_served) {
    if (each.name == name) return each.refusal;
  }
  return {};
}

/// The words of a line; of those behind the first few only how many, and the last.
struct Words {
  std::array<std::string_view, 8> word;
  std::string_view last;
  size_t count = 0;
  bool last_is_noreply() const { return count > 1 && last == "noreply"; }
};

/// Of a line that begins with `first`, and goes on with `rest`.
Words SplitWords(std::string_view first, std::string_view rest) {
  Words words;
  words.word[0] = words.last = first;
  words.count = 1;
  while (words.count < kTokensMax) {
    const std::string_view word = TakeWord(&rest);
    if (word.empty()) break;
    if (words.count < words.word.size()) words.word[words.count] = word;
    words.last = word;
    ++words.count;
  }
  return words;
}

void ParseKeys(std::string_view keys, Command* command) {
  command->key = TakeWord(&keys);
  command->more_keys = keys;
  if (command->key.empty()) command->refusal = kError;
  for (std::string_view key = command->key; !key.empty(); key = TakeWord(&keys)) {
    if (!IsKey(key)) command->refusal = kBadFormat;
  }
}

void ParseGetAndTouch(std::string_view rest, Command* command) {
  const std::string_view exptime = TakeWord(&rest);
  ParseKeys(rest, command);
  if (!command->refusal.empty()) return;
  if (!ParseNumber(exptime, &command->exptime)) {
    command->refusal = "CLIENT_ERROR invalid exptime argument";
  }
}

void CheckValueBytes(int64_t bytes, const ParseLimits& limits, Command* command) {
  if (bytes < 0 || bytes > INT_MAX - 2) {
    command->refusal = kBadFormat;
    return;
  }
  command->value_bytes = static_cast<size_t>(bytes);
  if (*command->value_bytes > limits.value_bytes_max) command->refusal = kTooLarge;
}

void ParseStorage(const Words& words, const ParseLimits& limits, Command* command) {
  const size_t wanted = command->verb == Verb::kCas ? 6 : 5;
  if (words.count != wanted && words.count != wanted + 1) {
    command->refusal = kError;
    return;
  }
  command->quiet = words.last_is_noreply();
  command->key = words.word[1];
  int64_t bytes = 0;
  if (!IsKey(command->key) || !ParseNumber(words.word[2], &command->flags) ||
      !ParseNumber(words.word[3], &command->exptime) || !ParseNumber(words.word[4], &bytes) ||
      (wanted == 6 && !ParseNumber(words.word[5], &command->cas))) {
    command->refusal = kBadFormat;
    return;
  }
  CheckValueBytes(bytes, limits, command);
}

/// incr, decr, touch: a key and a number.
void ParseKeyAndNumber(const Words& words, Command* command) {
  if (words.count != 3 && words.count != 4) {
    command->refusal = kError;
    return;
  }
  command->quiet = words.last_is_noreply();
  command->key = words.word[1];
  if (!IsKey(command->key)) {
    command->refusal = kBadFormat;
  } else if (command->verb == Verb::kTouch) {
    if (!ParseNumber(words.word[2], &command->exptime)) {
      command->refusal = "CLIENT_ERROR invalid exptime argument";
    }
  } else if (!ParseNumber(words.word[2], &command->delta)) {
    command->refusal = "CLIENT_ERROR invalid numeric delta argument";
  }
}

void ParseDelete(const Words& words, Command* command) {
  if (words.count < 2 || words.count > 4) {
    command->refusal = kError;
    return;
  }
  command->quiet = words.last_is_noreply() && words.count > 2;
  command->key = words.word[1];
  // Old clients send a delay, which must be 0.
  const bool zero = words.count > 2 && words.word[2] == "0";
  if (words.count > 2 && !(words.count == 3 ? zero || command->quiet : zero && command->quiet)) {
    command->refusal = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
  } else if (!IsKey(command->key)) {
    command->refusal = kBadFormat;
  }
}

/// A verb that is not served, which memcached may have.
void ParseNotServed(const Words& words, Command* command) {
  command->refusal = RefusalOf(kVerbsNotServed, words.word[0]);
  if (command->refusal.empty()) {
    command->refusal = kError;
  } else {
    command->quiet = words.last_is_noreply();
  }
}

void ParseFlushAll(const Words& words, Command* command) {
  command->quiet = words.last_is_noreply();
  const bool delayed = words.count == 3 || (words.count == 2 && !command->quiet);
  if (words.count > 3) {
    command->refusal = kError;
  } else if (delayed && !ParseNumber(words.word[1], &command->exptime)) {
    command->refusal = "CLIENT_ERROR invalid exptime argument";
  }
}

void ParseMeta(std::string_view rest, const ParseLimits& limits, Command* command) {
  command->key = TakeWord(&rest);
  if (command->key.empty() || command->key.size() > kKeyBytesMax) {
    command->refusal = command->key.empty() ? kError : kBadFormat;
    return;
  }
  if (command->verb == Verb::kMetaSet) {
    int64_t bytes = 0;
    const std::string_view size = TakeWord(&rest);
    if (size.empty() || !ParseNumber(size, &bytes)) {
      command->refusal = kBadFormat;
      return;
    }
    CheckValueBytes(bytes, limits, command);
    if (!command->refusal.empty()) return;
  }
  command->refusal = ParseMetaFlags(command->verb, rest, &command->meta);
  command->quiet = command->meta.has('q');
  if (command->refusal.empty() && !command->meta.has('b') && !IsKey(command->key)) {
    command->refusal = kBadFormat;
  }
}

}  // namespace

std::string_view VerbName(Verb verb) { return kNames[static_cast<size_t>(verb)]; }

std::string_view TakeWord(std::string_view* text) {
  std::string_view rest = *text;
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const std::string_view word(rest.data(), WordBytes(rest));
  rest.remove_prefix(word.size());
  *text = rest;
  return word;
}

bool IsKey(std::string_view text) {
  if (text.empty() || text.size() > kKeyBytesMax) return false;
  // Eight at a time, the last ones among others that are allowed.
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    if (HasSpaceOrControl(LoadLittle<uint64_t>(text.data() + at))) return false;
  }
  if (at == text.size()) return true;
  uint64_t rest = kNoControl;
  std::memcpy(&rest, text.data() + at, text.size() - at);
  return !HasSpaceOrControl(rest);
}

template <typename T>
bool ParseNumber(std::string_view text, T* number) {
  // Most are a few digits, which any of the types has room for.
  if (uint32_t few = 0; ParseFewDigits(text, &few)) {
    *number = few;
    return true;
  }
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  *number = parsed;
  return true;
}
template bool ParseNumber<int64_t>(std::string_view, int64_t*);
template bool ParseNumber<uint64_t>(std::string_view, uint64_t*);
template bool ParseNumber<uint32_t>(std::string_view, uint32_t*);

Command ParseCommand(std::string_view line, const ParseLimits& limits) {
  Command command;
  std::string_view rest = line;
  const std::string_view name = TakeWord(&rest);
  command.verb = FindVerb(name);
  switch (command.verb) {
    case Verb::kNone:
      ParseNotServed(SplitWords(name, rest), &command);
      break;
    case Verb::kGet:
    case Verb::kGets:
      ParseKeys(rest, &command);
      break;
    case Verb::kGat:
    case Verb::kGats:
      ParseGetAndTouch(rest, &command);
      break;
    case Verb::kSet:
    case Verb::kAdd:
    case Verb::kReplace:
    case Verb::kAppend:
    case Verb::kPrepend:
    case Verb::kCas:
      ParseStorage(SplitWords(name, rest), limits, &command);
      break;
    case Verb::kIncr:
    case Verb::kDecr:
    case Verb::kTouch:
      ParseKeyAndNumber(SplitWords(name, rest), &command);
      break;
    case Verb::kDelete:
      ParseDelete(SplitWords(name, rest), &command);
      break;
    case Verb::kMetaGet:
    case Verb::kMetaSet:
    case Verb::kMetaDelete:
    case Verb::kMetaArithmetic:
    case Verb::kMetaDebug:
      ParseMeta(rest, limits, &command);
      break;
    case Verb::kFlushAll:
      ParseFlushAll(SplitWords(name, rest), &command);
      break;
    case Verb::kVerbosity: {
      const Words words = SplitWords(name, rest);
      command.quiet = words.last_is_noreply();
      if (words.count < 2 || words.count > 3) {
        command.refusal = kError;
      } else if (uint32_t level = 0;
                 words.word[1] != "noreply" && !ParseNumber(words.word[1], &level)) {
        command.refusal = kBadFormat;
      }
      break;
    }
    case Verb::kStats:
      command.argument = TakeWord(&rest);
      command.refusal = RefusalOf(kStatsNotServed, command.argument);
      break;
    case Verb::kShutdown:
      command.refusal = "ERROR: shutdown not enabled";
      break;
    case Verb::kMetaNoop:
    case Verb::kVersion:
    case Verb::kQuit:
      break;
  }
  return command;
}

}  // namespace farleaf::server::memcached
