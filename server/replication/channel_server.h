// ChannelServer: a backup's end of a channel: finds messages in its own memory, has them executed, and leaves replies there. It posts
// nothing: the primary READs them (channel.md).
//
// The primary can write to message slots at any time, whatever it likes. So each word of a header is read once, into private memory, and
// checked there. The payload stays where it is: a handler that looks at it twice has to allow for a primary that changes it meanwhile, as ours
// never does before it has the reply.
//
// Invariants:
//   - messages of one token are given to the handler one by one, in the order of sequences without gaps, each once, and nothing behind one
//     that was damaged;
//   - no byte outside of the area is read or written, whatever it holds;
//   - a reply's word is stored behind the reply (release);
//   - the token changes only while no handler runs.
// Thread rule: one thread, that of the worker that Serve runs on; Stop and statistics may be called by any. REQUIRES: destroyed when Serve has
// ended.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "server/replication/channel_format.h"

namespace farleaf::server::replication {

/// A message that has come. Its checksums were right.
struct ReceivedMessage {
  uint8_t kind = 0;
  Arguments arguments{};
  uint64_t sequence = 0;
  std::string head;
  std::span<const std::byte>
      payload;  ///< in the area, at a multiple of 4 KiB; until the reply is written
};

/// Executes a message. The message stays until the task ends. REQUIRES: a reply's payload is at most kReplyPayloadBytesMax.
using MessageHandler =
    std::function<dsm::Task<Reply>(dsm::Worker& worker, const ReceivedMessage& message)>;

struct ChannelServerOptions {
  uint64_t look_ns_min = 20 * kNsPerUs;  ///< between looks behind a message; then doubling
  uint64_t look_ns_max = 1 * kNsPerMs;   ///< between looks when nothing comes
};

class ChannelServer {
 public:
  struct Statistics {
    uint64_t messages = 0;  ///< executed
    uint64_t bytes = 0;     ///< their heads and payloads
    uint64_t refused = 0;   ///< damaged, or behind one that was
  };

  /// `area`: layout.bytes() of registered memory, aligned to 8. Serves nothing before the first Reset.
  ChannelServer(std::span<std::byte> area, const AreaLayout& layout, ChannelServerOptions options);
  ChannelServer(const ChannelServer&) = delete;

  /// Serves a new primary, which is to be told `token`, from now on, and nobody before it. Waits for the handler that runs. REQUIRES: the token
  /// was drawn at random and is not 0; an earlier primary's connections are confirmed to be cut (dsm/agent.h); one Reset at a time.
  dsm::Task<void> Reset(uint64_t token);
  /// Until Stop, and the end of the handler that runs then. Called once.
  dsm::Task<void> Serve(dsm::Worker& worker, MessageHandler handler);
  /// Serve ends with its next look, within look_ns_max.
  void Stop() { stopped_.store(true, std::memory_order_release); }

  Statistics statistics() const {
    return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
            refused_.load(std::memory_order_relaxed)};
  }
  const AreaLayout& layout() const { return layout_; }

 private:
  /// Whether the next message is there.
  bool Announced() const;
  /// REQUIRES: Announced.
  dsm::Task<void> TakeNext(dsm::Worker& worker, const MessageHandler& handler);
  Status Receive(ReceivedMessage* message) const;
  void WriteReply(const Reply& reply, ReplyOutcome outcome);
  uint32_t slot() const { return SlotOf(next_, layout_.slots); }
  std::atomic_ref<uint64_t> WordAt(uint64_t offset) const {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(area_.data() + offset));
  }

  const std::span<std::byte> area_;
  const AreaLayout layout_;
  const ChannelServerOptions options_;
  uint64_t token_ = 0;
  uint64_t next_ = 1;    // sequence of the message that is waited for
  Status damage_;        // of the first message that was damaged
  bool taking_ = false;  // TakeNext runs
  bool resetting_ = false;
  std::coroutine_handle<> reset_waiter_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> messages_{0}, bytes_{0}, refused_{0};
};

}  // namespace farleaf::server::replication
