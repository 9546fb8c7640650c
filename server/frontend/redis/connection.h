// redis::Connection: Redis' protocol, RESP2 and RESP3, on one connection.
//
// Invariants: those of OrderedConnection and RequestReader; the answer to a command is at most reply_bytes_max,
// and is appended to the output as a whole. So that a connection takes at most a request, an answer, the unsent
// output and one batch of a multi-get.
// Thread rule: one thread for life.
#pragma once

#include <string>
#include <vector>

#include "server/frontend/ordered_connection.h"
#include "server/frontend/redis/command.h"
#include "server/records/value_rules.h"

namespace farleaf::server::redis {

class Connection final : public OrderedConnection {
 public:
  Connection(Environment* environment, Limits limits, uint64_t id);

  bool greeted() const override { return client_.authenticated; }
  /// Says so, and takes nothing from the peer.
  void RefuseAtOnce(Status why);

 private:
  size_t BytesWanted() const override;
  bool TakeNext() override;
  bool NextIsRetrieval() const override;
  bool GatherRetrievals(size_t* count) override;
  std::string_view WantedKey(size_t i) const override { return wanted_[i]; }
  void AnswerWanted(size_t i, const Record* record) override;
  bool NextIsSet() const override;
  bool GatherSets(size_t max, size_t* count) override;
  std::string_view SetKey(size_t i) const override { return sets_[i].key; }
  RecordRule& RuleOfSet(size_t i) override;
  void AnswerSet(size_t i, const Status& status) override;
  dsm::Task<void> RunNext(dsm::OpContext& op) override;
  std::string_view GuessKey(std::string_view text) const override;
  void FreeOwnRoom() override {
    Free(&wanted_, &sets_, &reply_, &key_, &value_);
    reader_.GiveBackRoom();
  }
  bool InRequest() const override {
    return OrderedConnection::InRequest() || (reader_.in_request() && !ended());
  }
  void TellTruncated(const Status& why) override {
    OutReply().Error("ERR Protocol error: " + std::string(why.message()));
  }
  std::string_view ProtocolName() const override { return "redis"; }
  std::string_view CommandName(size_t command) const override { return Commands()[command].name; }
  std::string_view KeyOfNext() const override;

  static constexpr size_t kLoginBytesMax = 2 << 10;

  /// What a SET without options stores.
  struct Stored {
    std::string_view key;
    SetRule rule;
  };
  /// Whether what the reader has given stays where it is when the next request is read.
  bool Stays(std::string_view argument) const;

  /// What a peer may send before and after it has authenticated.
  RequestLimits RequestLimitsNow() const;
  void CutOff(std::string error);
  /// The next command is the one that the reader's first argument names, or none.
  void FindNextCommand();
  void AnswerFailure(const Status& failure);
  /// What is wrong with the next command; empty: nothing, and it is `next_command_`.
  std::string WrongWith();
  Reply OutReply() { return {&out(), client_.version}; }

  Environment* const environment_;
  const Limits limits_;
  Client client_;
  RequestReader reader_;
  const CommandSpec* next_command_ = nullptr;
  bool next_is_too_large_ = false;
  const CommandSpec* found_command_ = nullptr;  // that was asked for last
  std::string found_name_;                      // as it was spelled
  std::string last_error_;
  std::vector<std::string_view> wanted_;
  size_t wanted_command_ = 0;  // its place in the table
  std::vector<Stored> sets_;
  size_t set_command_ = 0;  // likewise
  std::string reply_;
  // Room that is used again from one command to the next.
  std::string key_, value_;
};

}  // namespace farleaf::server::redis
