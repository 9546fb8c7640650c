// memcached::Connection: memcached's text protocol, classic and meta, on one connection.
//
// Commands of a connection run one after the other, so that they take effect and are answered in the order in
// which they were sent, with nothing to be compared or put back into order; retrievals that follow one another
// (get, gets) are one MultiGet, since reads commute. That is what clients that pipeline do most. The
// alternative, to run what names different keys at once, would make writes that are pipelined on a fabric
// with latency faster, at the price of a table of keys in flight for each connection; other connections'
// commands run meanwhile anyway.
//
// One coroutine, the pump, runs all commands that have arrived, and ends when there is none: no allocation for
// each. It waits where more than `out_bytes_max` is unsent, also within the answer to one retrieval of many
// keys.
//
// Invariants: those of Connection; a value that is too large is skipped as it comes, never kept; of a line
// without an end at most `line_bytes_max` is kept.
// Thread rule: one thread for life.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/frontend/authenticator.h"
#include "server/frontend/connection.h"
#include "server/frontend/memcached/command.h"
#include "server/frontend/memcached/execute.h"
#include "server/frontend/serving_thread.h"

namespace farleaf::server::memcached {

struct Limits {
  size_t line_bytes_max = size_t{1} << 20;
  size_t value_bytes_max = size_t{1} << 20;
  size_t out_bytes_max = size_t{4} << 20;
};

/// Digits first, the protocol's release that is spoken, since clients decide by them what to send.
std::string_view VersionText();

/// What runs a connection's commands: the service of its thread, or a test.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual ServingThread& thread() = 0;
  virtual const RecordStore& store() = 0;
  virtual Counters& counters() = 0;
  /// Whom peers have to convince before all else; null: nobody.
  virtual const Authenticator* authenticator() const { return nullptr; }
  /// Of a command that begins now.
  virtual uint64_t DeadlineNs() = 0;
  /// stats, and what it has to say of `argument`. False: nothing.
  virtual bool AppendStats(std::string_view argument, std::string* out) = 0;
  /// flush_all: at once, on the calling coroutine, or later.
  virtual dsm::Task<Status> FlushAll(int64_t delay_s) = 0;
};

class Connection final : public server::Connection {
 public:
  Connection(Environment* environment, Limits limits)
      : server::Connection(limits.out_bytes_max), environment_(environment), limits_(limits) {
    const Authenticator* const authenticator = environment->authenticator();
    authenticated_ = authenticator == nullptr || !authenticator->required();
  }

  bool greeted() const override { return authenticated_; }
  uint32_t in_flight() const override { return pumping_ ? 1 : 0; }
  /// Says so, and takes nothing from the peer.
  void RefuseAtOnce(std::string_view answer, Status why);

 private:
  static constexpr size_t kReadAheadBytes = 64 << 10;
  static constexpr size_t kLoginBytesMax = 2 << 10;

  /// A key of a retrieval; `ends` if its command ends with it.
  struct Wanted {
    std::string_view key;
    bool with_cas = false;
    bool ends = false;
  };
  /// Commands that have ended together, and alike.
  struct Ended {
    Verb verb;
    CommandStats::Outcome outcome;
    uint64_t times;
  };
  /// Suspends until output has room.
  struct [[nodiscard]] Room {
    Connection* connection;
    bool await_ready() const { return !connection->output_full() || connection->abandoned(); }
    void await_suspend(std::coroutine_handle<> pump) {
      connection->waiting_ = pump;
      connection->environment_->thread().Flush(*connection);
    }
    void await_resume() const noexcept {}
  };

  bool TakeInput() override;
  size_t BytesWanted() const override;
  bool TooBusy() const override { return pumping_ && unparsed().size() >= kReadAheadBytes; }
  void OutputHasRoom() override;

  /// The command at the front, if all of it is there; its views are into block().
  bool TakeCommand(Command* command);
  bool TakeValue(std::string_view behind_line, size_t line_bytes, Command* command);
  bool TakeSkipped();
  /// As memcached does it with an authentication file: the first command is a `set` of any key, and its value
  /// "USER PASSWORD".
  bool TakeCredentials();
  /// What a peer may send before and after it has authenticated.
  size_t line_bytes_max() const { return authenticated_ ? limits_.line_bytes_max : kLoginBytesMax; }
  size_t value_bytes_max() const {
    return authenticated_ ? limits_.value_bytes_max : kLoginBytesMax;
  }
  /// The peer is to be cut off, behind the answers to what it has sent before.
  void RefusePeer(std::string_view answer, Status why);
  void SayLastWords();

  dsm::Task<void> Pump();
  dsm::Task<void> Run(dsm::OpContext& op, const Command& command);
  dsm::Task<Status> Execute(dsm::OpContext& op, const Command& command);
  /// What needs no record.
  void AnswerByItself(const Command& command);
  /// `next_` and the retrievals behind it become `wanted_`; another command behind those stays in `next_`.
  bool GatherRetrievals();
  dsm::Task<void> RunRetrievals(dsm::OpContext& op);
  dsm::Task<void> RetrieveOneByOne(dsm::OpContext& op, size_t begin, size_t end);
  void Answer(const Wanted& wanted, const Record* record);
  void NoteEnded(Verb verb, const Status& status);
  /// Counts those that were noted; they began at `begin_ns`, and cost `spent`. Sets both for the next ones.
  void CountEnded(uint64_t* begin_ns, dsm::FabricCounts* spent);

  Environment* const environment_;
  const Limits limits_;
  size_t skip_ = 0;           // bytes to come that belong to a refused command
  size_t line_searched_ = 0;  // of unparsed(), without a line's end
  size_t bytes_wanted_ = 0;   // of unparsed(), for a line and its value
  Command next_;
  std::string_view last_words_;
  Status end_;  // not ok: these are to be said, and the peer be cut off
  bool authenticated_ = false;
  int attempts_ = 0;  // to authenticate, that failed
  bool pumping_ = false;
  bool quit_ = false;
  std::coroutine_handle<> waiting_;
  Status retrieval_failure_;  // of the command whose keys are being answered
  size_t batch_keys_ = 64;    // of the next MultiGet
  // Room that is used again from one command to the next.
  std::string key_, value_, keys_bytes_;
  std::vector<Ended> ended_;
  std::vector<Wanted> wanted_;
  std::vector<std::string_view> keys_;
  std::vector<std::optional<std::string>> values_;
  std::vector<std::optional<Record>> records_;
};

}  // namespace farleaf::server::memcached
