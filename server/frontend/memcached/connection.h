// memcached::Connection: memcached's text protocol, classic and meta, on one connection.
//
// Invariants: those of OrderedConnection; a value that is too large is skipped as it comes, never kept; of a line
// without an end at most `line_bytes_max` is kept.
// Thread rule: one thread for life.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/authenticator.h"
#include "server/frontend/memcached/command.h"
#include "server/frontend/memcached/execute.h"
#include "server/frontend/ordered_connection.h"

namespace farleaf::server::memcached {

struct Limits {
  size_t line_bytes_max = size_t{1} << 20;
  size_t value_bytes_max = size_t{1} << 20;
  size_t out_bytes_max = size_t{4} << 20;
};

/// Digits first, the protocol's release that is spoken, since clients decide by them what to send.
std::string_view VersionText();

/// What runs a connection's commands: the service of its thread, or a test.
class Environment : public RecordEnvironment {
 public:
  /// `counters` outlive it.
  Environment(Parts parts, Counters* counters)
      : RecordEnvironment(parts, counters), counters_(*counters) {}
  Counters& counters() const { return counters_; }
  /// stats, and what it has to say of `argument`. False: nothing.
  virtual bool AppendStats(std::string_view argument, std::string* out) = 0;
  /// flush_all: at once, on the calling coroutine, or later.
  virtual dsm::Task<Status> FlushAll(int64_t delay_s) = 0;

 private:
  Counters& counters_;
};

class Connection final : public OrderedConnection {
 public:
  Connection(Environment* environment, Limits limits)
      : OrderedConnection(environment, limits.out_bytes_max),
        environment_(environment),
        limits_(limits),
        authenticated_(!environment->authenticator().required()) {}

  bool greeted() const override { return authenticated_; }
  /// Says so, and takes nothing from the peer. `answer` outlives the connection.
  void RefuseAtOnce(std::string_view answer, Status why) {
    RefusePeerAtOnce(answer, std::move(why));
  }

 private:
  static constexpr size_t kLoginBytesMax = 2 << 10;

  /// A key of a retrieval; `ends` if its command ends with it.
  struct Wanted {
    std::string_view key;
    bool with_cas = false;
    bool ends = false;
  };

  /// What a `set` stores.
  struct Stored {
    std::string_view key;
    int64_t exptime = 0;
    bool quiet = false;
    StoreRule rule;
  };

  bool TakeInput() override;
  size_t BytesWanted() const override;
  bool TakeNext() override;
  bool NextIsRetrieval() const override;
  bool GatherRetrievals(size_t* count) override;
  std::string_view WantedKey(size_t i) const override { return wanted_[i].key; }
  void AnswerWanted(size_t i, const Record* record) override;
  bool NextIsSet() const override { return next_.verb == Verb::kSet && next_.refusal.empty(); }
  bool GatherSets(size_t max, size_t* count) override;
  std::string_view SetKey(size_t i) const override { return sets_[i].key; }
  RecordRule& RuleOfSet(size_t i) override;
  void AnswerSet(size_t i, const Status& status) override;
  dsm::Task<void> RunNext(dsm::OpContext& op) override;
  std::string_view GuessKey(std::string_view text) const override;
  void FreeOwnRoom() override { Free(&key_, &value_, &wanted_, &sets_); }
  bool InRequest() const override {
    return OrderedConnection::InRequest() || (skip_ > 0 && !ended());
  }
  void TellTruncated(const Status& why) override {
    AppendLine("CLIENT_ERROR " + std::string(why.message()), &out());
  }
  std::string_view ProtocolName() const override { return "memcached"; }
  std::string_view CommandName(size_t command) const override {
    return VerbName(static_cast<Verb>(command));
  }
  std::string_view KeyOfNext() const override { return next_.key; }

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
  Call CallOf(dsm::OpContext& op);
  dsm::Task<Status> Execute(dsm::OpContext& op, const Command& command);
  /// What needs no record.
  void AnswerByItself(const Command& command);

  Environment* const environment_;
  const Limits limits_;
  size_t skip_ = 0;           // bytes to come that belong to a refused command
  size_t line_searched_ = 0;  // of unparsed(), without a line's end
  size_t bytes_wanted_ = 0;   // of unparsed(), for a line and its value
  Command next_;              // its views are into block()
  bool authenticated_;
  int attempts_ = 0;  // to authenticate, that failed
  // Room that is used again from one command to the next.
  std::string key_, value_;
  std::vector<Wanted> wanted_;
  std::vector<Stored> sets_;
};

}  // namespace farleaf::server::memcached
