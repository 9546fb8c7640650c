// OrderedConnection: a connection of a protocol whose answers carry no number: its commands run one after the
// other, so that they take effect and are answered in the order in which they were sent, with nothing to be
// compared or put back into order; reads of one key that follow one another are one MultiGet, since reads
// commute. That is what clients that pipeline do most. The alternative, to run what names different keys at
// once, would make writes that are pipelined on a fabric with latency faster, at the price of a table of keys
// in flight for each connection; other connections' commands run meanwhile anyway.
//
// Sets that follow one another are looked at together before the first is made, so that their cache misses overlap;
// they are made and answered in their order. Those that have to wait until they survive are waited for once (RangeIndex::ModifyTogether, where the
// index does that): one sync, or one round trip to the backups, for up to 64. Sets and reads run without a coroutine as far as none has to wait.
//
// One coroutine, the pump, runs all else that has arrived, and ends when there is nothing: no allocation for
// each command. It waits where more than `out_bytes_max` is unsent, also within the answers to many reads.
//
// Invariants: those of Connection; nothing is run behind last words, and they stand behind earlier answers.
// Thread rule: one thread for life.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/frontend/at_once.h"
#include "server/frontend/authenticator.h"
#include "server/frontend/command_stats.h"
#include "server/frontend/connection.h"
#include "server/frontend/serving_thread.h"
#include "server/frontend/slow_log.h"
#include "server/records/record_store.h"

namespace farleaf::server {

/// What runs the commands of such a connection: the service of its thread, or a test.
class RecordEnvironment {
 public:
  /// All of them outlive it.
  struct Parts {
    ServingThread* thread;
    const RecordStore* store;
    const Authenticator* authenticator;  ///< whom peers have to convince before all else
    SlowLog* slow_log = nullptr;         ///< where slow commands are kept; null: nowhere
  };
  RecordEnvironment(Parts parts, RecordCounters* counters)
      : parts_(parts), record_counters_(counters) {}
  virtual ~RecordEnvironment() = default;

  ServingThread& thread() const { return *parts_.thread; }
  const RecordStore& store() const { return *parts_.store; }
  const Authenticator& authenticator() const { return *parts_.authenticator; }
  SlowLog* slow_log() const { return parts_.slow_log; }
  RecordCounters& record_counters() const { return *record_counters_; }
  /// Of a command that begins now.
  virtual uint64_t DeadlineNs() = 0;

 private:
  const Parts parts_;
  RecordCounters* const record_counters_;
};

class OrderedConnection : public Connection {
 public:
  OrderedConnection(RecordEnvironment* environment, size_t out_bytes_max)
      : Connection(out_bytes_max), environment_(environment), out_bytes_max_(out_bytes_max) {}

  uint32_t in_flight() const override { return pumping_ ? 1 : 0; }
  void GiveBackRoom() override;

 protected:
  // What a protocol gives.
  /// The command at the front, if all of it is there, becomes the next. Not called behind last words.
  virtual bool TakeNext() = 0;
  /// Whether the next command reads single keys, and nothing else.
  virtual bool NextIsRetrieval() const = 0;
  /// The next command, and the retrievals behind it, become those that are wanted. `count`: their keys. Returns
  /// whether another command was taken, which is the next one now; its views are into the same block.
  virtual bool GatherRetrievals(size_t* count) = 0;
  /// As the peer has sent it.
  virtual std::string_view WantedKey(size_t i) const = 0;
  /// `record`: null where there is none, and where retrieval_failure() says why it is not known.
  virtual void AnswerWanted(size_t i, const Record* record) = 0;
  /// Whether the next command stores a value of a key, whatever it has.
  virtual bool NextIsSet() const = 0;
  /// The next command, and sets behind it, up to `max`, become those that are to be run together. Returns whether another
  /// command was taken, as of GatherRetrievals.
  virtual bool GatherSets(size_t max, size_t* count) = 0;
  virtual std::string_view SetKey(size_t i) const = 0;
  /// Good until it is answered.
  virtual RecordRule& RuleOfSet(size_t i) = 0;
  /// Behind the rule of this set: what has come of it.
  virtual void AnswerSet(size_t i, const Status& status) = 0;
  virtual dsm::Task<void> RunNext(dsm::OpContext& op) = 0;
  /// Which key a command that begins `text` seems to name, if it can be told in passing; a guess.
  virtual std::string_view GuessKey(std::string_view text) const = 0;
  /// What the protocol keeps from one command to the next. No command runs.
  virtual void FreeOwnRoom() = 0;
  // For the slow log: how the protocol is called, the name of a command of the counters' stats, and the key of the command that
  // has just run, as the peer sent it.
  virtual std::string_view ProtocolName() const = 0;
  virtual std::string_view CommandName(size_t command) const = 0;
  virtual std::string_view KeyOfNext() const = 0;

  /// The peer is to be cut off, behind the answers to what it has sent before. `answer` outlives it.
  void RefusePeer(std::string_view answer, Status why);
  /// Likewise, at once.
  void RefusePeerAtOnce(std::string_view answer, Status why);
  /// No command is run behind this one, and the connection ends.
  void Quit();
  /// If the peer is to be cut off: that nothing is left to be answered before.
  void SayLastWords();
  /// To be called for each command that has run, with its number in the counters' stats.
  void NoteEnded(size_t command, const Status& status);
  /// While it is not ok, wanted keys are answered without being asked for; whoever answers clears it.
  Status& retrieval_failure() { return retrieval_failure_; }

  /// TakeNext for whoever gathers.
  bool TakeAnother() { return !unparsed().empty() && TakeNext(); }
  bool TakeInput() override;
  /// A command runs, or none is run any more.
  bool ended() const { return pumping_ || quit_ || !end_.ok(); }
  bool InRequest() const override { return !ended() && Connection::InRequest(); }
  bool TooBusy() const final { return pumping_ && unparsed().size() >= kReadAheadBytes; }
  void OutputHasRoom() final;

 private:
  static constexpr size_t kReadAheadBytes = 64 << 10;
  static constexpr size_t kBatchKeysMax = 256;
  static constexpr size_t kGatheredSetsMax = 64;

  /// Suspends until output has room.
  struct [[nodiscard]] Room {
    OrderedConnection* connection;
    bool await_ready() const { return !connection->output_full() || connection->abandoned(); }
    void await_suspend(std::coroutine_handle<> pump) {
      connection->waiting_ = pump;
      connection->environment_->thread().Flush(*connection);
    }
    void await_resume() const noexcept {}
  };

  /// Whose key stands for commands that have ended together.
  enum class KeyOf : uint8_t { kWanted, kSet, kNext };
  /// Commands that have ended together, and alike.
  struct Ended {
    size_t command;
    CommandStats::Outcome outcome;
    uint64_t times;
  };

  /// Answers wanted keys as they are read, from `begin` on.
  class Answerer final : public RecordVisitor {
   public:
    Answerer(OrderedConnection* connection, size_t begin)
        : connection_(connection), begin_(begin), next_(begin) {}
    size_t next() const { return next_; }
    /// Of the answers. (What is unsent meanwhile is not these alone.)
    size_t bytes() const { return bytes_; }
    void Visit(size_t number, const Record* record, const Status& why) override {
      next_ = begin_ + number + 1;
      if (!why.ok() && connection_->retrieval_failure_.ok()) connection_->retrieval_failure_ = why;
      const bool failed = !connection_->retrieval_failure_.ok();
      const size_t before = connection_->out().size();
      connection_->AnswerWanted(begin_ + number, failed ? nullptr : record);
      bytes_ += connection_->out().size() - before;
    }

   private:
    OrderedConnection* const connection_;
    const size_t begin_;
    size_t next_;
    size_t bytes_ = 0;
  };

  /// Answers sets as they are done, from `begin` on.
  class SetAnswerer final : public RecordChanges {
   public:
    SetAnswerer(OrderedConnection* connection, size_t begin)
        : RecordChanges(&connection->value_), connection_(connection), begin_(begin) {}
    RecordRule& RuleOf(size_t number) override { return connection_->RuleOfSet(begin_ + number); }
    void Done(size_t number, const Result<RecordUpdate>& update) override {
      connection_->AnswerSet(begin_ + number, update.ok() ? Status::Ok() : update.status());
    }

   private:
    OrderedConnection* const connection_;
    const size_t begin_;
  };

  /// Has what the command behind the next one will look at be fetched meanwhile.
  void ExpectFollowing(dsm::OpContext& op);
  bool TakeCommand() { return end_.ok() && TakeAnother(); }
  /// Sets that were gathered, or keys that are wanted, of which the first `done` are done.
  struct Gathered {
    KeyOf what = KeyOf::kNext;
    size_t count = 0, done = 0;
    bool took_next = false;
    bool waits = false;       ///< the first that is not done is known to have to wait
    uint64_t begin_ns = 0;    ///< of that one
    dsm::FabricCounts spent;  ///< on it, in vain
  };
  /// Runs the next command, and sets and retrievals behind it, without a coroutine, as far as they need not wait. True:
  /// nothing is left to be run of what was taken. Otherwise there is what was `gathered`, or the next command.
  bool RunAtOnce(Gathered* gathered);
  void DoAllSetsAtOnce(dsm::OpContext& op, Gathered* sets);
  void RetrieveAtOnce(dsm::OpContext& op, Gathered* wanted);
  dsm::Task<void> Pump(Gathered gathered);
  /// Counts those that were noted; they began at `begin_ns`, and cost `spent`. Sets both for the next ones.
  void CountEnded(uint64_t* begin_ns, dsm::FabricCounts* spent, KeyOf key_of);
  void NoteSlow(uint64_t duration_ns, uint64_t round_trips, KeyOf key_of);
  dsm::Task<void> RunRetrievals(dsm::OpContext& op, size_t begin, size_t count);
  /// Those that were met without a coroutine.
  dsm::Task<void> DeleteExpired(dsm::OpContext& op);
  void GatherAllSets(Gathered* sets);
  /// Does what need not wait of the next few, until one has to.
  void DoSomeSets(dsm::OpContext& op, Gathered* sets);
  /// The server is stopping: answers those that are not done.
  void RefuseSets(Gathered* sets);
  /// Does the first that is not done, which has to wait, and those behind it that are waited for with it.
  dsm::Task<void> RunWaitingSets(dsm::OpContext& op, Gathered* sets);
  /// Makes keys_ of the tree's keys of what is wanted, or of sets, from begin to end.
  void MakeKeys(KeyOf what, size_t begin, size_t end);
  dsm::Task<void> RetrieveTogether(dsm::OpContext& op, size_t begin, size_t end);
  dsm::Task<void> RetrieveOneByOne(dsm::OpContext& op, size_t begin, size_t end);

  RecordEnvironment* const environment_;
  const size_t out_bytes_max_;
  std::string_view last_words_;
  Status end_;  // not ok: these are to be said, and the peer be cut off
  bool pumping_ = false;
  bool quit_ = false;
  std::coroutine_handle<> waiting_;
  Status retrieval_failure_;
  size_t batch_keys_ = 64;  // of the next MultiGet
  /// Answers of so many bytes came of a whole batch.
  void NoteBatch(size_t bytes);
  std::vector<size_t> expired_;  // of the keys that are wanted, by number: to be deleted
  uint64_t ended_ns_ = 0;        // when commands were counted last
  AtOnce sets_together_;
  size_t first_ended_set_ = 0;  // of those that were noted
  // Room that is used again from one command to the next.
  std::string key_, value_, keys_bytes_;
  std::vector<Ended> ended_;
  std::vector<std::string_view> keys_;  // into keys_bytes_
};

}  // namespace farleaf::server
