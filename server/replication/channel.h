// Channel: a primary's end of the channel to one backup: messages are WRITTEN into the backup's area, replies READ from it
// (channel.md has the protocol, and the argument that it is right).
//
// Several calls may be outstanding, as many as the area has slots; more wait for a slot, in the order of their Calls. The backup executes
// all in that order, each at most once. One of those who wait for a reply looks for all of them.
//
// Cost of a call: a round trip that WRITEs the message (header and head · payload · rendezvous word), then one READ of the reply slots in use
// for each look, and one READ more for a reply that has a payload.
//
// Invariants:
//   - a slot is written again only when the reply of its last message was read, payload included;
//   - replies are found in the order of sequences;
//   - after the first failure nothing is posted any more, and every call ends with that failure.
// Thread rule: one thread, that of the worker that all calls are made on. REQUIRES: destroyed when no call runs.
#pragma once

#include <coroutine>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/fabric_counts.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "server/replication/channel_format.h"

namespace farleaf::server::replication {

struct ChannelOptions {
  std::string backup;                    ///< its name in failures; empty: by its memory server
  uint64_t look_ns_min = 20 * kNsPerUs;  ///< before the first look for a reply; then doubling
  uint64_t look_ns_max = 1 * kNsPerMs;   ///< between looks
  uint64_t call_timeout_ms =
      10'000;  ///< from the WRITE to the reply, beside the fabric's own bounds
};

/// Where a channel is, as the backup has told.
struct ChannelAddress {
  dsm::ServerId server = 0;
  uint64_t area = 0;   ///< offset in that memory server's region
  uint64_t token = 0;  ///< ChannelServer::Reset's
};

class Channel {
 public:
  /// Reads the area's header. Corruption, Unimplemented: there is no area of ours. Unavailable: it serves another channel by now.
  static dsm::Task<Result<std::unique_ptr<Channel>>> Open(dsm::Worker& worker,
                                                          ChannelAddress address,
                                                          ChannelOptions options,
                                                          dsm::FabricCounts& counts);
  Channel(const Channel&) = delete;

  /// Has the backup execute `message`, whose bytes stay until this ends. InvalidArgument: it is longer than a slot; the channel goes on.
  /// Any other failure is the channel's end: this message, and those outstanding, were executed or not. What the handler answered is the
  /// Reply, a code other than kOk included. Looks for all are counted for the call that looks.
  dsm::Task<Result<Reply>> Call(dsm::Worker& worker, Message message, dsm::FabricCounts& counts);

  /// Ok, or what ended the channel.
  const Status& failure() const { return failure_; }
  const AreaLayout& layout() const { return layout_; }
  const ChannelAddress& address() const { return address_; }

 private:
  /// A call that has a slot; in its frame.
  struct Calling {
    explicit Calling(uint64_t number) : sequence(number) {}
    const uint64_t sequence;
    uint64_t deadline_ns = 0;
    bool answered = false;           ///< `reply` and `header` are the reply's, but for its payload
    std::coroutine_handle<> waiter;  ///< in Waiting
    ChannelHeader header{};
    Reply reply;
  };
  /// Until the reply was found, the channel has ended, or the one who looked stops.
  struct Waiting {
    Calling* calling;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) { calling->waiter = handle; }
    void await_resume() const noexcept {}
  };
  /// Until `sequence`'s slot is free, or the channel has ended.
  struct WaitingForSlot {
    Channel* channel;
    uint64_t sequence;
    bool await_ready() const { return channel->SlotIsFree(sequence); }
    void await_suspend(std::coroutine_handle<> handle) {
      channel->slot_waiters_.emplace(sequence, handle);
    }
    void await_resume() const noexcept {}
  };
  enum class Found : uint8_t { kNone, kSome, kTorn };

  Channel(ChannelAddress address, const AreaLayout& layout, ChannelOptions options);

  uint32_t SlotOf(uint64_t sequence) const { return replication::SlotOf(sequence, layout_.slots); }
  bool SlotIsFree(uint64_t sequence) const {
    return sequence <= layout_.slots || done_[SlotOf(sequence)] == sequence - layout_.slots;
  }
  Status CheckLengths(const Message& message) const;
  dsm::Task<Status> Exchange(dsm::Worker& worker, Message message, Calling& calling,
                             dsm::FabricCounts& counts);
  dsm::Task<Status> Write(dsm::Worker& worker, Message message, Calling& calling,
                          dsm::FabricCounts& counts);
  dsm::Task<Status> ReadPayload(dsm::Worker& worker, Calling& calling, dsm::FabricCounts& counts);
  /// Looks for everybody's replies until `own` is answered or the channel has ended.
  dsm::Task<void> Look(dsm::Worker& worker, const Calling& own, dsm::FabricCounts& counts);
  /// READs the slots of those who wait.
  void AddReads(dsm::Batch* batch);
  Found TakeReplies(dsm::Worker& worker);
  Result<Reply> ParseReply(const Calling& calling, const std::byte* slot,
                           ChannelHeader* header) const;
  /// Somebody else of those who wait looks from now on.
  void PassOn(dsm::Worker& worker);
  /// Ends the channel if the time of a call is up.
  void BreakIfOverdue(dsm::Worker& worker);
  uint64_t FirstDeadlineNs() const;
  /// The channel's end, unless it has ended. Returns failure().
  const Status& Break(dsm::Worker& worker, Status why);
  static void Resume(dsm::Worker& worker, Calling* calling);

  const ChannelAddress address_;
  const AreaLayout layout_;
  const ChannelOptions options_;
  Status failure_;
  uint64_t last_sequence_ = 0;   // given to a call
  uint64_t found_ = 0;           // replies up to this have been found
  uint64_t torn_ = 0;            // the last reply that was announced and did not match its checksum
  bool looking_ = false;         // somebody is in Look
  std::vector<Calling*> calls_;  // by slot; null: none whose message was posted
  std::vector<uint64_t> done_;   // by slot: the last sequence that is done with it
  std::vector<std::byte> replies_;                            // what the looks READ
  std::map<uint64_t, std::coroutine_handle<>> slot_waiters_;  // by sequence
};

}  // namespace farleaf::server::replication
