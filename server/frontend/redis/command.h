// The commands of Redis' protocol: a table of what is served, and what each runs on.
//
// Invariants: a command answers once and as a whole: what it has written is dropped if it fails. Names are looked
// up whatever their case.
// Thread rule: commands are coroutines on the worker of their OpContext.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/command_stats.h"
#include "server/frontend/ordered_connection.h"
#include "server/frontend/redis/reply.h"
#include "server/frontend/redis/request.h"
#include "server/frontend/side_by_side.h"

namespace farleaf::server::redis {

struct Limits {
  size_t value_bytes_max = size_t{1} << 20;
  size_t request_bytes_max = size_t{16} << 20;
  size_t reply_bytes_max = size_t{64} << 20;
  size_t out_bytes_max = size_t{4} << 20;
};

/// The release of Redis whose protocol is spoken: clients decide by it what to send.
inline constexpr std::string_view kSpokenRelease = "7.0.15";

inline constexpr size_t kCommandsMax = 128;

/// What a thread counts. Written by one thread, read by any.
struct Counters : RecordCounters {
  Counters() : RecordCounters(kCommandsMax) {}
  Count refused{0};  ///< unknown or not served
  Count key_hits{0}, key_misses{0};

  /// Adds all but `stats` to `sum`.
  void AddTo(Counters* sum) const;
  /// Lines `redis.key_hits 5`, of all but `stats`.
  void AppendTo(std::string* text) const;
  /// Likewise.
  void AppendMetrics(MetricsText* out) const;
};

/// What INFO has, in the order in which it is told.
inline constexpr std::string_view kInfoSections[] = {"server",      "clients", "memory",  "stats",
                                                     "replication", "cluster", "keyspace"};

/// What runs a connection's commands: the service of its thread, or a test.
class Environment : public RecordEnvironment {
 public:
  /// `counters` outlive it.
  Environment(Parts parts, Counters* counters)
      : RecordEnvironment(parts, counters), counters_(*counters) {}
  Counters& counters() const { return counters_; }
  /// A section of INFO, one of kInfoSections: its heading and lines.
  virtual void AppendInfo(std::string_view section, std::string* out) = 0;
  /// What CONFIG GET knows.
  virtual std::vector<std::pair<std::string, std::string>> Settings() = 0;
  virtual dsm::Task<Status> FlushAll() = 0;

 private:
  Counters& counters_;
};

/// What a connection is to its commands.
struct Client {
  uint64_t id = 0;
  RespVersion version = RespVersion::k2;
  std::string name;
  bool authenticated = false;
  int attempts = 0;  ///< to authenticate, that failed
};

struct Call {
  dsm::OpContext& op;
  Environment& environment;
  Client& client;
  const Limits& limits;
  std::span<const std::string_view> arguments;  ///< the command's name first
  Reply reply;
  std::string& key;    ///< room for a tree's key
  std::string& value;  ///< room for a record

  dsm::FramePool* frame_pool() const { return op.frame_pool(); }
  const RecordStore& store() const { return environment.store(); }
  std::string_view at(size_t i) const { return arguments[i]; }
  size_t count() const { return arguments.size(); }
};

using Handler = dsm::Task<Status> (*)(Call);

struct CommandSpec {
  std::string_view name;  ///< in lower case
  /// Of arguments, the name among them; negative: at least so many.
  int arity;
  Handler run;  ///< null: the connection does it
  enum class Access : uint8_t { kRead, kWrite, kServer } access;
  /// Where keys are among the arguments; 0: nowhere. `last_key` -1: up to the end.
  int first_key = 0, last_key = 0, key_step = 0;
};

/// In the order of names.
std::span<const CommandSpec> Commands();
/// Null if it is not served.
const CommandSpec* FindCommand(std::string_view name);
inline size_t IndexOf(const CommandSpec& command) {
  return static_cast<size_t>(&command - Commands().data());
}
/// Why a command is not served, as an error.
std::string RefusalOf(std::span<const std::string_view> arguments);

// ---- For commands

inline constexpr std::string_view kSyntaxError = "ERR syntax error";
inline constexpr std::string_view kNotAnInteger = "ERR value is not an integer or out of range";
inline constexpr std::string_view kNotAFloat = "ERR value is not a valid float";
inline constexpr std::string_view kWrongType =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
inline constexpr std::string_view kReplyTooLarge =
    "ERR the answer is larger than redis_reply_bytes_max; ask for less at a time";

/// Whether `text` is `word`, whatever its case. `word` is in lower case.
bool IsWord(std::string_view text, std::string_view word);
std::string LowerCase(std::string_view text);
/// All of `text`, as Redis takes it: no spaces, no plus sign, no leading zeros.
bool ParseInteger(std::string_view text, int64_t* number);
/// inf among them; nan is none.
bool ParseDouble(std::string_view text, double* number);

/// The tree's key of a key that users name.
void MakeTreeKey(std::string_view key, std::string* buffer);
/// Names of types as TYPE tells them.
std::string_view TypeName(RecordType type);

/// Keys, fields or members that a command names: every `step`-th argument from `first` on.
struct Elements {
  size_t first;
  size_t step = 1;
};
/// Whether what is done to an element that is named twice depends on which comes first.
enum class Repeated : uint8_t { kAnyOrder, kInOrder };
/// Runs `each`, of an argument's number, for all elements: side by side, and one behind the other where their order
/// matters. `each` has a room of its own for keys and records, and outlives it.
dsm::Task<Status> ForEachElement(Call call, Elements elements, Repeated repeated,
                                 const NumberedStep& each);

/// A time on `expire` and the like, as milliseconds since 1970; nullopt: it does not fit.
struct TimeForm {
  bool in_seconds = false;
  bool absolute = false;
};
std::optional<uint64_t> ExpiryMs(int64_t time, TimeForm form, uint64_t now_ms);

}  // namespace farleaf::server::redis
